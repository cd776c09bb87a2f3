//! Tests parsing of formulas: ambiguity, postfix operators, limits, and unsupported grammars.

use sgs_metamath::database::{Database, Symbol};
use sgs_metamath::grammar::{Grammar, MAX_DEPTH, MAX_FORMULA, ParseError, Tree};

struct Language {
    database: Database,
    grammar: Grammar,
}

impl Language {
    fn new(text: &str) -> Self {
        let database = Database::parse("language.mm", text.as_bytes()).unwrap();
        let grammar = Grammar::new(&database).unwrap();
        Self { database, grammar }
    }

    fn symbols(&self, text: &str) -> Vec<Symbol> {
        text.split_ascii_whitespace().map(|t| self.database.symbol(t).unwrap()).collect()
    }

    fn parse_as(&self, typecode: &str, text: &str) -> Result<Tree, ParseError> {
        let goal = self.grammar.type_of(self.database.symbol(typecode).unwrap()).unwrap();
        let type_of = |s: Symbol| {
            let float =
                self.database.global_floats().iter().find_map(|&f| match self.database.statement(f).kind {
                    sgs_metamath::database::StatementKind::Floating { typecode, variable, .. } => {
                        (variable == s).then_some(typecode)
                    }
                    _ => None,
                });
            self.grammar.type_of(float?)
        };
        self.grammar.parse(goal, &self.symbols(text), type_of)
    }

    /// Parses a formula and checks that its tree has the same symbols.
    #[track_caller]
    fn reads(&self, typecode: &str, text: &str) -> Tree {
        let tree = self.parse_as(typecode, text).unwrap();
        assert_eq!(self.grammar.unparse(&tree), self.symbols(text));
        assert_eq!(self.grammar.subtree_end(&tree, 0), tree.len());
        tree
    }
}

fn refused(text: &str) -> String {
    Grammar::new(&Database::parse("language.mm", text.as_bytes()).unwrap()).unwrap_err()
}

const WFF: &str = "$c wff |- ( ) -> /\\ -. ! T $. $v p q $. wp $f wff p $. wq $f wff q $. ";

#[test]
fn ambiguous_formulas_are_rejected() {
    let language = Language::new(&format!("{WFF} i $a wff p -> q $. t $a wff T $."));
    language.reads("wff", "p -> T");
    assert_eq!(language.parse_as("wff", "p -> q -> T"), Err(ParseError::Ambiguous));
    let twice = Language::new(&format!("{WFF} i $a wff ( p -> q ) $. j $a wff ( q -> p ) $."));
    assert_eq!(twice.parse_as("wff", "( p -> q )"), Err(ParseError::Ambiguous));
}

#[test]
fn the_search_for_very_ambiguous_formulas_ends_quickly() {
    let language = Language::new(&format!("{WFF} i $a wff p q $."));
    let long = "p ".repeat(300);
    assert_eq!(language.parse_as("wff", &long), Err(ParseError::Ambiguous));
    // This formula has no parse but many partial ones: nine adjacent formulas without a valid end.
    let many = Language::new(
        "$c wff |- ! . $. $v a b c d e f g h i $. wa $f wff a $. wb $f wff b $. wc $f wff c $. wd $f wff d $.
        we $f wff e $. wf $f wff f $. wg $f wff g $. wh $f wff h $. wi $f wff i $.
        s1 $a wff ! a $. s2 $a wff ! ! a $. s $a wff . a b c d e f g h i $.",
    );
    let error = many.parse_as("wff", &format!(". {} !", ". ! a ! ! b ".repeat(200))).unwrap_err();
    assert!(matches!(error, ParseError::NoReading { .. } | ParseError::TooHard), "{error}");
}

#[test]
fn postfix_operators_grow_to_the_left() {
    let language = Language::new(&format!(
        "{WFF} n $a wff p ! $. a $a wff p /\\ q ) $. i $a wff ( p -> q ) $. m $a wff -. p $."
    ));
    let tree = language.reads("wff", "p ! ! !");
    assert_eq!(tree.len(), 4);
    language.reads("wff", "( p ! -> q /\\ p ) ! )");
    let chain = language.reads("wff", "p /\\ q ) /\\ T ) ! /\\ p )".replace("T", "q").as_str());
    assert_eq!(chain.len(), 8);
    // A prefix operator competes with a postfix operator, so there are two readings.
    assert_eq!(language.parse_as("wff", "-. p !"), Err(ParseError::Ambiguous));
    assert_eq!(language.parse_as("wff", "! p"), Err(ParseError::NoReading { at: 0 }));
}

#[test]
fn a_parse_error_names_the_symbol() {
    let language = Language::new(&format!("{WFF} i $a wff ( p -> q ) $."));
    assert_eq!(language.parse_as("wff", "( p -> )"), Err(ParseError::NoReading { at: 3 }));
    assert_eq!(language.parse_as("wff", "( p -> q"), Err(ParseError::NoReading { at: 4 }));
    assert!(matches!(language.parse_as("wff", "p q"), Err(ParseError::NoReading { .. })));
    assert!(matches!(language.parse_as("wff", ""), Err(ParseError::NoReading { .. })));
}

#[test]
fn left_recursion_through_several_types_is_rejected() {
    let language = Language::new(
        "$c wff class setvar e. |- $. $v x y A B $. vx $f setvar x $. vy $f setvar y $.
        cA $f class A $. cB $f class B $. cv $a class x $. wel $a wff A e. B $.",
    );
    assert_eq!(language.reads("wff", "x e. A").len(), 4);
    let back = refused("$c a b |- $. $v x y $. fx $f a x $. fy $f b y $. ab $a a y $. ba $a b x $.");
    assert!(back.contains("left recursion through other types"), "{back}");
    let own = refused("$c a |- $. $v x $. fx $f a x $. aa $a a x $.");
    assert!(own.starts_with("aa: "), "{own}");
}

#[test]
fn unsupported_syntax_axioms_are_named() {
    let cases = [
        ("$c wff |- $. $v p $. wp $f wff p $. bad $a wff $.", "empty"),
        ("$c wff |- $. $v p $. wp $f wff p $. bad $a wff p p $.", "repeats a variable"),
        ("$c wff |- $. $v p $. wp $f wff p $. ${ e $e |- p $. bad $a wff |- p $. $}", "$e hypothesis"),
    ];
    for (text, message) in cases {
        let error = refused(text);
        assert!(error.starts_with("bad: ") && error.contains(message), "{error}");
    }
}

#[test]
fn long_and_deep_formulas_are_rejected() {
    let language = Language::new(&format!("{WFF} m $a wff -. p $. i $a wff ( p -> q ) $."));
    let deep = |n: usize| format!("{} p", "-. ".repeat(n));
    language.reads("wff", &deep(MAX_DEPTH - 2));
    assert_eq!(language.parse_as("wff", &deep(MAX_DEPTH + 1)), Err(ParseError::TooDeep(MAX_DEPTH)));
    let length = MAX_FORMULA + 1;
    let long = "p ".repeat(length);
    assert_eq!(language.parse_as("wff", &long), Err(ParseError::TooLong { length, limit: MAX_FORMULA }));
    let postfix = Language::new(&format!("{WFF} n $a wff p ! $. i $a wff ( p -> q ) $."));
    let chain = format!("p {}", "! ".repeat(5_000));
    postfix.reads("wff", &chain);
    postfix.reads("wff", &format!("( {chain} -> {chain} )"));
}

#[test]
fn a_syntax_axiom_may_have_thousands_of_symbols() {
    let language = Language::new(&format!("{WFF} n $a wff {} p $.", "! ".repeat(10_000)));
    let text = format!("{} q", "! ".repeat(10_000));
    // Use a thread with the stack size of the pool's threads.
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let result = thread.spawn(move || language.parse_as("wff", &text)).unwrap().join().unwrap();
    assert_eq!(result.map(|tree| tree.len()), Ok(2));
}
