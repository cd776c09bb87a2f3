//! Malformed databases are reported with line and column.

use sgs_metamath::database::Database;
use sgs_metamath::kernel::{Kernel, verify_theorem};
use sgs_metamath::theory::{Theory, TheoryError};

#[track_caller]
fn broken(text: &str, line: u32, column: u32, message: &str) {
    let error = Database::parse("broken.mm", text.as_bytes()).unwrap_err();
    assert!(error.message.contains(message), "{error}");
    assert!(error.to_string().starts_with(&format!("broken.mm:{line}:{column}: ")), "{error}");
}

const HEAD: &str = "$c wff |- ( ) $. $v ph ps $. wph $f wff ph $.\n";

/// Does the same as [`broken`], with two valid lines before `text`.
#[track_caller]
fn broken_after_head(text: &str, line: u32, column: u32, message: &str) {
    broken(&format!("{HEAD}\n{text}"), line + 2, column, message);
}

#[test]
fn malformed_comments_are_reported() {
    broken("$( never", 1, 1, "this comment is never closed");
    broken("$( a\n $( b $) $)", 2, 2, "a comment begins inside of a comment");
    broken("$c a $( x", 1, 6, "never closed");
}

#[test]
fn malformed_scopes_are_reported() {
    broken("${\n${ $}\n", 1, 1, "this ${ is never closed");
    broken("  $}", 1, 3, "$} without an open ${");
    broken("${ $c a $. $}", 1, 4, "$c inside of ${");
}

#[test]
fn malformed_declarations_are_reported() {
    broken("$c $.", 1, 1, "$c declares nothing");
    broken("$v $.", 1, 1, "$v declares nothing");
    broken("$c a\n  a $.", 2, 3, "symbol `a` is declared twice");
    broken("$v a $. $c a $.", 1, 12, "declared twice");
    broken("$c a $. $v a $.", 1, 12, "`a` is already declared as a constant");
    broken("$v a a $.", 1, 6, "declared twice in its scope");
    broken("$c a", 1, 1, "never closed by $.");
    broken("$c a $= $.", 1, 6, "`$=` where `$.` should end");
    broken("$c \u{e9} $.", 1, 4, "not a math symbol");
    broken("$c a$b $.", 1, 4, "not a math symbol");
}

#[test]
fn malformed_distinct_statements_are_reported() {
    broken_after_head("$d ph $.", 1, 1, "at least two variables");
    broken_after_head("$d ph ph $.", 1, 7, "occurs twice in one $d");
    broken_after_head("$d ph wff $.", 1, 7, "not an active variable");
    broken_after_head("$d ph no $.", 1, 7, "symbol `no` is not declared");
    broken_after_head("${ $v x $. $}\n$d ph x $.", 2, 7, "not an active variable");
}

#[test]
fn databases_that_swell_are_reported() {
    let variables: String = (0..12_000).map(|i| format!(" x{i}")).collect();
    broken_after_head(&format!("$v{variables} $.\n$d{variables} $."), 2, 1, "too many $d pairs");
    // The number of variables is checked before anything else about them.
    broken_after_head(&format!("$v{variables} $.\n$d{variables} x0 $."), 2, 1, "too many $d pairs");
    let hypotheses: String = (0..10_000).map(|i| format!("h{i} $e |- ph $.\n")).collect();
    let theorems: String = (0..10_000).map(|i| format!("t{i} $a |- ph $.\n")).collect();
    // The limit is 2^26 divided by the 10,000 hypotheses of two symbols each.
    broken_after_head(&format!("{hypotheses}{theorems}"), 13_356, 1, "too many $d pairs and hypotheses");
}

/// The unifier numbers the variables of a rule with 16 bits.
#[test]
fn a_rule_with_more_variables_than_the_unifier_can_number_is_refused() {
    let variables = 1 << 16;
    let declared: String = (0..variables).map(|i| format!("$v x{i} $. f{i} $f wff x{i} $.\n")).collect();
    let hypotheses: String = (0..variables).map(|i| format!("h{i} $e |- x{i} $.\n")).collect();
    let text = format!("{HEAD}{declared}{hypotheses}many $a |- ph $.\n");
    let database = Database::parse("many.mm", text.as_bytes()).unwrap();
    let error = Theory::new(database).unwrap_err().to_string();
    assert!(error.contains("`many` has 65537 variables; at most 65536 are supported"), "{error}");
    assert!(error.starts_with("many.mm:"), "{error}");
}

#[test]
fn malformed_labels_are_reported() {
    broken_after_head("l*l $a |- ph $.", 1, 1, "`l*l` is not a label");
    broken_after_head("wph $a |- ph $.", 1, 1, "label `wph` is used twice");
    broken_after_head("l", 1, 1, "the file ends after label `l`");
    broken_after_head("l\n  ph $.", 2, 3, "`ph` after label `l`");
    broken_after_head(" $= x", 1, 2, "unexpected `$=` between statements");
    broken_after_head("$.", 1, 1, "unexpected `$.`");
}

#[test]
fn malformed_floating_hypotheses_are_reported() {
    broken_after_head("f $f wff $.", 1, 1, "$f needs exactly a typecode and a variable");
    broken_after_head("f $f wff ps ps $.", 1, 1, "$f needs exactly");
    broken_after_head("f $f ps ps $.", 1, 6, "the typecode of $f must be a constant");
    broken_after_head("f $f wff ( $.", 1, 10, "must be an active variable");
    broken_after_head("f $f wff ph $.", 1, 10, "`ph` already has an active $f");
}

#[test]
fn malformed_formulas_are_reported() {
    broken_after_head("a $a $.", 1, 1, "the statement is empty");
    broken_after_head("a $a ph $.", 1, 1, "does not begin with a constant");
    broken_after_head("a $a |- ( ps ) $.", 1, 11, "variable `ps` has no active $f");
    broken_after_head("a $a |- nope $.", 1, 9, "symbol `nope` is not declared");
    broken_after_head("e $e |-\n no $.", 2, 2, "symbol `no` is not declared");
    broken_after_head("t $p |- ph $.", 1, 12, "`$.` where `$=` should end");
    broken_after_head("t $p |- ph $= a b", 1, 1, "this proof is never closed by $.");
    broken_after_head("t $p |- ph $= a $= b $.", 1, 17, "`$=` inside of a proof");
}

#[test]
fn malformed_inclusions_are_reported() {
    broken("$[", 1, 1, "$[ without a file name");
    broken("$[ a.mm", 1, 1, "not closed by $]");
    broken("\n $[ a.mm $]", 2, 2, "cannot be included: this text has no folder");
    let folder = tempfile::tempdir().unwrap();
    let main = folder.path().join("main.mm");
    let read = |text: &str| {
        std::fs::write(&main, text).unwrap();
        Database::read(&main).unwrap_err()
    };
    assert!(read("$[ ../x.mm $]").to_string().contains("is outside of the database's folder"));
    assert!(read("$[ /etc/passwd $]").to_string().contains("is outside"));
    let missing = read("$[ missing.mm $]");
    assert!(missing.message.contains("cannot read") && missing.place.contains("missing.mm"), "{missing}");
    std::fs::write(folder.path().join("part.mm"), "$c a $.\n$c\n  a $.").unwrap();
    let inside = read("$[ part.mm $]").to_string();
    assert!(inside.contains("part.mm:3:3: symbol `a` is declared twice"), "{inside}");
    let fifo = folder.path().join("fifo.mm");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let irregular = read("$[ fifo.mm $]").to_string();
    assert!(irregular.contains("fifo.mm") && irregular.contains("regular file"), "{irregular}");
    let none = Database::read(&folder.path().join("none.mm")).unwrap_err();
    assert!(none.message.contains("cannot read"), "{none}");
}

#[test]
fn formulas_that_do_not_parse_are_reported_with_location_and_label() {
    let text = format!("{HEAD} wn $a wff ( ph ) $.\n  good $a |- ( ph ) $.\n  bad $a |- ( ph $.");
    let database = Database::parse("broken.mm", text.as_bytes()).unwrap();
    let error = Theory::new(database).unwrap_err();
    let TheoryError::Formula { place, label, .. } = &error else { panic!("{error}") };
    assert_eq!((place.as_str(), label.as_str()), ("broken.mm:4:3", "bad"), "{error}");
    let none = Database::parse("none.mm", *b"$c a $.").unwrap();
    assert!(matches!(Theory::new(none), Err(TheoryError::NoProvable)));
}

#[test]
fn the_kernel_rejects_malformed_proofs() {
    let head = "$c wff |- ( -> ) $. $v ph ps $. wph $f wff ph $. wps $f wff ps $.
        wi $a wff ( ph -> ps ) $. ax-1 $a |- ( ph -> ( ps -> ph ) ) $.
        ${ mp.1 $e |- ph $. mp.2 $e |- ( ph -> ps ) $. mp $a |- ps $. $}";
    let verdict = |proof: &str| {
        let text =
            format!("{head} ${{ t.1 $e |- ph $. t $p |- ( ps -> ph ) $= {proof} $. $}} late $a |- ph $.");
        let database = Database::parse("broken.mm", text.into_bytes()).unwrap();
        let id = database.find("t").unwrap();
        verify_theorem(&mut Kernel::new(), &database, id)
    };
    assert_eq!(verdict("wph wps wph wi t.1 wph wps ax-1 mp"), Ok(()));
    assert_eq!(verdict("( wi ax-1 mp ) ABADCABEF"), Ok(()));
    assert_eq!(verdict("( wi ax-1 mp ) $( so $) ABA DC\n ABEF"), Ok(()));
    let cases = [
        ("", "the proof is empty"),
        ("?", "incomplete"),
        ("( ) ?", "incomplete"),
        ("( wi ax-1 mp ABADCABEF", "has no `)`"),
        ("( wi ax-1 mp ) ABADCABE", "4 expressions are left"),
        ("( wi ax-1 mp ) ABADCABEFU", "ends inside of a number"),
        ("( wi ax-1 mp ) ABADCABEG", "refers to nothing"),
        ("( wi ax-1 mp ) YYYYYYYYYYYYYYYYYYYYA", "too large"),
        ("( wi ax-1 mp ) ZABADCABEF", "does not follow a step"),
        ("( wi ax-1 mp ) AZZ", "does not follow a step"),
        ("( wi ax-1 mp ) abc", "`a` in a compressed proof"),
        ("( wi wph ax-1 mp ) A", "mandatory hypothesis `wph`"),
        ("( wi nope mp ) A", "label `nope` is unknown"),
        ("late", "does not precede the theorem"),
        ("t", "does not precede the theorem"),
        ("wph", "proves another statement"),
        ("wi", "the stack is too short for `wi`"),
        ("wph wph t.1 wph wps ax-1 mp", "hypothesis 2 does not match"),
        ("wph wps wph wi wph wph wps ax-1 mp", "hypothesis 1 does not match"),
        ("t.1 wps wi", "the wrong type for `ph`"),
        ("mp.1", "not a hypothesis of the goal"),
    ];
    for (proof, message) in cases {
        let found = verdict(proof).unwrap_err();
        assert!(found.contains(message), "{proof}: {found}");
    }
}
