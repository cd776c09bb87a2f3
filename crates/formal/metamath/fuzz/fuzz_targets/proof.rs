//! Judges an arbitrary proof of an arbitrary problem in a small theory: unifier and kernel must agree.
//!
//! If the input is text, the first line is the problem (a theorem's number, or a statement) and the rest are the proof's
//! tokens. If it begins with the byte 0xff, the rest are the numbers of the problem and of the steps, two bytes each, so that
//! every such input is a well-formed proof.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sgs_metamath::database::{Database, StatementId};
use sgs_metamath::judge::Judge;
use sgs_metamath::proof_text::{read_steps, write_steps};
use sgs_metamath::statement::{Statement, StatementLimits};
use sgs_metamath::theory::{RuleId, Theory};
use sgs_metamath::unify::{Goal, ProofLimits, ProofStep};
use sgs_selfplay::Verdict;
use std::cell::RefCell;
use std::sync::LazyLock;

static THEORY: LazyLock<Theory> = LazyLock::new(|| {
    let database = Database::parse("mini.mm", *include_bytes!("../../tests/data/mini.mm")).unwrap();
    Theory::new(database).unwrap()
});

thread_local! {
    static JUDGE: RefCell<Judge> = RefCell::new(Judge::new());
}

const HYPOTHESES: usize = 4;

fn judge(goal: &Goal, steps: &[ProofStep]) {
    let theory = &*THEORY;
    JUDGE.with_borrow_mut(|judge| {
        let decision = judge.decide(theory, goal, steps, ProofLimits::default());
        assert_ne!(decision.verdict, Verdict::Infra, "{}", decision.reason);
    });
}

fn numbers(bytes: &[u8]) {
    let theory = &*THEORY;
    let rules = theory.rules().len();
    let mut numbers = bytes.chunks_exact(2).map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    let Some(problem) = numbers.next() else { return };
    let Ok(goal) = Goal::of_rule(theory, RuleId((problem % rules) as u32)) else { return };
    let steps: Vec<ProofStep> = numbers
        .map(|n| match (n % (HYPOTHESES + rules)).checked_sub(HYPOTHESES) {
            Some(rule) => ProofStep::Rule(RuleId(rule as u32)),
            None => ProofStep::Hypothesis((n % (HYPOTHESES + rules)) as u32),
        })
        .collect();
    judge(&goal, &steps);
}

fuzz_target!(|bytes: &[u8]| {
    let theory = &*THEORY;
    if let Some(rest) = bytes.strip_prefix(b"\xff") {
        return numbers(rest);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (problem, proof) = text.split_once('\n').unwrap_or((text, ""));
    let goal = match problem.parse::<usize>() {
        Ok(n) => Goal::of_rule(theory, RuleId((n % theory.rules().len()) as u32)),
        Err(_) => match Statement::parse(theory, problem, StatementLimits::default()) {
            Ok(s) => Goal::new(theory, &s, StatementId(theory.database().statements().len() as u32)),
            Err(_) => return,
        },
    };
    let Ok(goal) = goal else { return };
    let tokens: Vec<&str> = proof.split_ascii_whitespace().collect();
    let Ok(steps) = read_steps(theory, goal.hypothesis_count(), &tokens) else { return };
    assert_eq!(write_steps(theory, &steps), tokens.join(" "));
    judge(&goal, &steps);
});
