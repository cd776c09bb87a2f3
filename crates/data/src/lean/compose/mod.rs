//! Composes theorems of core Lean with proofs, from which a small model learns.
//!
//! A theorem is determined by a seed and a number. `sgs data compose` has Lean check each proof.

mod arithmetic;
mod draw;
mod equations;
mod formula;
mod logic;
mod prover;

use draw::{Draw, happens};
use prover::bullet;
use sgs_lean::text::{TokenKind, lex};
use sgs_selfplay::seed::shuffle_seed;

/// A theorem and its proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Theorem {
    /// The part of the generator that composed it.
    pub kind: &'static str,
    /// Variables and hypotheses: `(p q : Prop) (h1 : p ∧ q)`.
    pub binders: String,
    /// The conclusion.
    pub conclusion: String,
    /// The proof's lines, without their common indentation.
    pub lines: Vec<String>,
}

/// Groups of interchangeable names of variables. None of them is a name in Lean's library.
const SORTS: [&[&str]; 6] = [
    &["p", "q", "r", "s"],
    &["P", "Q", "R"],
    &["a", "b", "c", "d"],
    &["x", "y", "z"],
    &["u", "v", "w"],
    &["xs", "ys", "zs", "ws"],
];

/// Composes the theorem with a number, followed by simpler theorems from its proof. Returns an empty list if the draw
/// gives no theorem.
pub fn compose(seed: u64, number: u64, level: u64) -> Vec<Theorem> {
    let mut draw = Draw::new(shuffle_seed(seed, "lean theorem", number));
    if happens(&mut draw, 12 + 4 * level) {
        return both(&mut draw, level.saturating_sub(1)).unwrap_or_default();
    }
    single(&mut draw, level).unwrap_or_default()
}

type Production = fn(&mut Draw, u64) -> Option<Vec<Theorem>>;

/// The productions, each with its weight.
const PRODUCTIONS: [(u64, Production); 13] = [
    (24, logic::propositional),
    (14, logic::predicates),
    (9, logic::rules),
    (6, logic::relations),
    (14, arithmetic::forms),
    (6, arithmetic::witnesses),
    (3, arithmetic::inequalities),
    (8, arithmetic::instances),
    (9, arithmetic::induction),
    (11, equations::rewriting),
    (5, equations::booleans),
    (6, equations::membership),
    (7, equations::lengths),
];

fn single(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let all: u64 = PRODUCTIONS.iter().map(|(share, _)| share).sum();
    let mut at = draw.below(all);
    for (share, production) in PRODUCTIONS {
        if at < share {
            return production(draw, level);
        }
        at -= share;
    }
    None
}

fn owned<const N: usize>(lines: [&str; N]) -> Vec<String> {
    lines.map(str::to_owned).into()
}

/// Composes the conjunction of two unrelated theorems.
fn both(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let logical = logic::propositional(draw, level.min(3))?;
    let of_numbers: [Production; 3] = [arithmetic::forms, arithmetic::witnesses, arithmetic::inequalities];
    let other = of_numbers[draw.below(3) as usize](draw, level)?;
    let (mut a, mut b) = (logical.into_iter().next()?, other.into_iter().next()?);
    if happens(draw, 50) {
        std::mem::swap(&mut a, &mut b);
    }
    let shift = |text: &str| {
        renamed(text, |word| Some(format!("h{}", 500 + word.strip_prefix('h')?.parse::<u32>().ok()?)))
    };
    let mut lines = vec!["constructor".to_owned()];
    lines.extend(bullet(a.lines.clone()));
    lines.extend(bullet(b.lines.iter().map(|line| shift(line)).collect()));
    let binders = format!("{} {}", a.binders, shift(&b.binders));
    let whole = Theorem::new("both", &binders, &format!("({}) ∧ ({})", a.conclusion, b.conclusion), lines);
    Some(vec![whole, a, b])
}

impl Theorem {
    fn new(kind: &'static str, binders: &str, conclusion: &str, lines: Vec<String>) -> Self {
        // Hypotheses are renumbered in the order of their appearance.
        let mut names: Vec<String> = Vec::new();
        let mut number = |text: &str| {
            renamed(text, |word| {
                word.strip_prefix('h')?.parse::<u32>().ok()?;
                Some(format!("h{}", index_of(&mut names, word) + 1))
            })
        };
        let (binders, conclusion) = (number(binders), number(conclusion));
        let lines = lines.iter().map(|line| number(line)).collect();
        Self { kind, binders, conclusion, lines }
    }

    /// Returns the same theorem with the variables of each group permuted at random. The names are bound, so the proof
    /// stays valid.
    pub fn with_other_names(&self, draw: &mut Draw) -> Self {
        let mut names: Vec<(&str, &str)> = Vec::new();
        for sort in SORTS {
            let mut shuffled = sort.to_vec();
            draw.shuffle(&mut shuffled);
            names.extend(sort.iter().copied().zip(shuffled));
        }
        let of = |text: &str| {
            renamed(text, |word| names.iter().find(|(old, _)| *old == word).map(|(_, new)| (*new).to_owned()))
        };
        Self {
            kind: self.kind,
            binders: of(&self.binders),
            conclusion: of(&self.conclusion),
            lines: self.lines.iter().map(|line| of(line)).collect(),
        }
    }

    /// Returns the statement without the name.
    pub fn signature(&self) -> String {
        format!("{} : {}", self.binders, self.conclusion)
    }

    /// Returns the statement under a name, in canonical text.
    pub fn statement(&self, name: &str) -> String {
        format!("theorem {name} {} := by", self.signature())
    }

    /// Returns the proof in canonical text, after `:= by`.
    pub fn proof(&self) -> String {
        self.lines.iter().map(|line| format!("\n  {line}")).collect()
    }
}

/// Returns a text with some of its words replaced.
fn renamed(text: &str, mut name: impl FnMut(&str) -> Option<String>) -> String {
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for token in lex(text).iter().filter(|t| t.kind == TokenKind::Word) {
        // The lexer returns `h1.elim` as one word.
        let word = token.text(text);
        let (first, rest) =
            word.split_once('.').map_or((word, ""), |(first, _)| (first, &word[first.len()..]));
        if let Some(new) = name(first) {
            out.push_str(&text[at..token.start]);
            out.push_str(&new);
            out.push_str(rest);
            at = token.end;
        }
    }
    out.push_str(&text[at..]);
    out
}

/// Returns a normal form of a statement, which is equal for statements that differ only in the names of variables and
/// hypotheses.
pub fn shape(signature: &str) -> String {
    let mut names: Vec<String> = Vec::new();
    // All other names in a statement are longer.
    let is_name = |word: &str| {
        let digits = word.strip_prefix('h').unwrap_or("-");
        word.chars().count() <= 2 || digits.bytes().all(|b| b.is_ascii_digit())
    };
    let text = renamed(signature, |word| is_name(word).then(|| format!("v{}", index_of(&mut names, word))));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the index of a name in a list, to which it is added if it is new.
fn index_of(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}
