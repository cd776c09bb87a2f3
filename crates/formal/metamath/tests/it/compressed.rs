//! Compressed proofs survive a round trip.

use proptest::prelude::*;
use sgs_metamath::database::{Database, StatementId};
use sgs_metamath::proof::{ProofOp, read_proof, write_compressed};

const AXIOMS: usize = 700;

/// Returns a database with many axioms, and a theorem with two variables, a hypothesis and the given proof.
fn database(proof: &str) -> Database {
    let mut text = String::from("$c wff |- $. $v p q r $. fp $f wff p $. fq $f wff q $. fr $f wff r $.\n");
    for i in 0..AXIOMS {
        text.push_str(&format!("a{i} $a |- p $.\n"));
    }
    text.push_str(&format!("${{ t.1 $e |- p $. t $p |- q $= {proof} $. $}}"));
    Database::parse("t.mm", text.into_bytes()).unwrap()
}

/// Generates operations that the format can express: only a used statement may be saved, and only saved entries recalled.
fn operations() -> impl Strategy<Value = Vec<(u8, usize)>> {
    prop::collection::vec((0u8..10, 0usize..AXIOMS), 1..400)
}

fn build(database: &Database, choices: &[(u8, usize)]) -> Vec<ProofOp> {
    let find = |label: &str| database.find(label).unwrap();
    let (mut ops, mut saved) = (Vec::new(), 0u32);
    for &(kind, n) in choices {
        match kind {
            0 => ops.push(ProofOp::Use(find(["fp", "fq", "fr", "t.1"][n % 4]))),
            1..=2 if matches!(ops.last(), Some(ProofOp::Use(_))) => {
                ops.push(ProofOp::Save);
                saved += 1;
            }
            3..=4 if saved > 0 => ops.push(ProofOp::Recall(n as u32 % saved)),
            _ => ops.push(ProofOp::Use(find(&format!("a{n}")))),
        }
    }
    ops
}

/// Removes the saves of entries that are not recalled.
fn without_unused_saves(ops: &[ProofOp]) -> Vec<ProofOp> {
    let is_recalled = |n: u32| ops.contains(&ProofOp::Recall(n));
    let (mut saved, mut kept) = (0, Vec::new());
    for op in ops {
        match *op {
            ProofOp::Save => {
                if is_recalled(saved) {
                    kept.push(ProofOp::Save);
                }
                saved += 1;
            }
            ProofOp::Recall(n) => {
                kept.push(ProofOp::Recall((0..n).filter(|&m| is_recalled(m)).count() as u32));
            }
            other => kept.push(other),
        }
    }
    kept
}

/// Decodes the numbers of a compressed proof, from 1.
fn numbers(text: &str) -> Vec<usize> {
    let (mut numbers, mut high) = (Vec::new(), 0);
    for c in text.rsplit(')').next().unwrap().bytes() {
        match c {
            b'A'..=b'T' => {
                numbers.push(20 * std::mem::take(&mut high) + usize::from(c - b'A') + 1);
            }
            b'U'..=b'Y' => high = 5 * high + usize::from(c - b'U') + 1,
            _ => {}
        }
    }
    numbers
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn any_proof_survives_a_round_trip(choices in operations()) {
        let empty = database("?");
        let ops = build(&empty, &choices);
        let theorem = empty.assertion(empty.find("t").unwrap()).unwrap();
        let label_of = |id: StatementId| empty.statement(id).label.to_string();
        let text = write_compressed(&ops, &theorem.hypotheses, label_of);
        let full = database(&text);
        let id = full.find("t").unwrap();
        prop_assert_eq!(read_proof(&full, id, full.assertion(id).unwrap()).unwrap(), without_unused_saves(&ops));
        // The `metamath` program rejects some numbers if lower ones are unused.
        let used: std::collections::BTreeSet<usize> = numbers(&text).into_iter().collect();
        let last = used.last().copied().unwrap_or(0);
        let unused = (theorem.hypotheses.len() + 1..last).find(|n| !used.contains(n));
        prop_assert_eq!(unused, None);
    }

    #[test]
    fn any_letters_are_parsed_or_rejected(letters in "[A-Z? ]{0,60}", labels in "( a[0-9]{1,2}){0,5}") {
        let full = database(&format!("({labels} ) {letters}"));
        let id = full.find("t").unwrap();
        if let Ok(ops) = read_proof(&full, id, full.assertion(id).unwrap()) {
            prop_assert!(ops.len() <= letters.len());
        }
    }
}

#[test]
fn numbers_follow_the_metamath_book() {
    // Appendix B: A = 1, T = 20, UA = 21, YT = 120, UUA = 121, YYT = 620, UUUA = 621.
    let places = [(1, "A"), (20, "T"), (21, "UA"), (120, "YT"), (121, "UUA"), (620, "YYT"), (621, "UUUA")];
    let empty = database("?");
    let theorem = empty.assertion(empty.find("t").unwrap()).unwrap();
    let label_of = |id: StatementId| empty.statement(id).label.to_string();
    let axiom = |i: usize| ProofOp::Use(empty.find(&format!("a{i}")).unwrap());
    // Numbers 1 to 3 are the mandatory hypotheses, 4 is the first label.
    assert_eq!(theorem.hypotheses.len(), 3);
    let mut ops: Vec<ProofOp> = theorem.hypotheses.iter().map(|&h| ProofOp::Use(h)).collect();
    ops.extend((0..AXIOMS).map(axiom));
    let text = write_compressed(&ops, &theorem.hypotheses, label_of);
    let letters: String = text.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
    let mut words = Vec::new();
    let mut word = String::new();
    for c in letters.chars() {
        word.push(c);
        if c <= 'T' {
            words.push(std::mem::take(&mut word));
        }
    }
    for (number, expected) in places {
        assert_eq!(words[number - 1], expected);
    }
}
