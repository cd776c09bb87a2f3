//! What a report says of Conjecturer and Guide, from a run's tables.
#![allow(clippy::unwrap_used)]

use sgs_analysis::report::{ReportOptions, fragment};
use sgs_analysis::run::{Display, Identity, Kind, Origin, ReadOptions, RunData, Statement, read_run};
use sgs_rundir::rounds::RoundTables;
use sgs_rundir::rows::{ConjectureRow, ConjectureStatus, ProblemKind, ProblemRow, ReviewRow, RolloutRow};
use sgs_rundir::{FrozenConfig, MetricValues, RunDir, RunOptions};
use sgs_selfplay::{FinishReason, ProblemId, Verdict};
use std::path::Path;

/// Statements that differ in the case of their letters are the same; `THEOREM` stands in the database.
struct Cases;

impl Display for Cases {
    fn statement(&self, statement: &str) -> String {
        statement.to_owned()
    }

    fn proof(&self, _: &str, _: &str, proof: &str) -> String {
        proof.to_owned()
    }

    fn identity(&self, statement: &str, context: &str) -> Identity {
        assert_eq!(context, "context");
        let normal = statement.to_lowercase();
        let theorem = (normal == "theorem").then(|| "thm".to_owned());
        Identity { normal, theorem }
    }

    fn steps(&self, proof: &str) -> u32 {
        proof.split(' ').count() as u32
    }
}

/// A conjecture of the round: what it says, its status and reason, its proof if it has one, and R_guide.
struct Made(&'static str, ConjectureStatus, &'static str, Option<&'static str>, f64);

fn problem(id: &str, kind: ProblemKind, statement: &str) -> ProblemRow {
    ProblemRow {
        id: ProblemId::new(id),
        kind,
        target: (kind == ProblemKind::Conjecture).then(|| ProblemId::new("t")),
        statement: statement.into(),
        context: "context".into(),
        rollouts: 4,
        judged: 4,
        proved: 0,
        solve_rate: Some(0.0),
        solved_before: false,
        newly_solved: false,
        selected: false,
        features: sgs_selfplay::Features {
            length: 1,
            conclusion_length: 1,
            disjunctions: 0,
            conjunctions: 0,
            implications: 0,
            depth: 1,
            hypotheses: 0,
        },
    }
}

fn conjecture(id: &str, index: u32, made: &Made) -> ConjectureRow {
    let Made(statement, status, reason, proof, guide) = made;
    let accepted = *status == ConjectureStatus::Accepted;
    // One of four rollouts proves it.
    let rate = if proof.is_some() { 0.25 } else { 0.0 };
    let solve = if proof.is_some() { 0.75 } else { 0.0 };
    ConjectureRow {
        id: ProblemId::new(id),
        target: ProblemId::new("t"),
        index,
        status: *status,
        reason: (*reason).to_owned(),
        duplicate_of: None,
        statement: (!statement.is_empty()).then(|| (*statement).into()),
        text: String::new(),
        prompt_tokens: Vec::new().into(),
        tokens: Vec::new(),
        log_probs: Vec::new(),
        entropy: None,
        finish: Some(FinishReason::Stop),
        policy_version: Some(0),
        seed: 0,
        solve_rate: accepted.then_some(rate),
        r_solve: accepted.then_some(solve),
        r_guide: accepted.then_some(*guide),
        review_failed: false,
        r_synth: accepted.then_some(solve * guide),
        reward: None,
        weight: None,
    }
}

fn rollout(problem: &str, index: u32, proof: &str) -> RolloutRow {
    RolloutRow {
        problem: ProblemId::new(problem),
        index,
        text: String::new(),
        proof: Some(proof.into()),
        prompt_tokens: Vec::new().into(),
        tokens: Vec::new(),
        log_probs: Vec::new(),
        entropy: None,
        finish: Some(FinishReason::Stop),
        policy_version: Some(0),
        seed: 0,
        verdict: Verdict::Proved,
        reason: String::new(),
        step: None,
        micros: 0,
        penalised: false,
        reward: None,
        weight: None,
    }
}

fn review(id: &str, guide: f64) -> ReviewRow {
    ReviewRow {
        conjecture: ProblemId::new(id),
        index: 0,
        reason: String::new(),
        relevance: Some(guide / 2.0),
        redundancy: Some(0.0),
        complexity: Some(1.0),
        r_guide: Some(guide),
        text: String::new(),
        prompt_tokens: Vec::new().into(),
        tokens: Vec::new(),
        log_probs: Vec::new(),
        entropy: None,
        finish: Some(FinishReason::Stop),
        policy_version: Some(0),
        seed: 0,
    }
}

fn fill(round: u32, made: &[Made], tables: &mut RoundTables) {
    tables.problems.push(problem("t", ProblemKind::Target, "Target")).unwrap();
    for (index, one) in (0..).zip(made) {
        let id = format!("c{round}-{index}");
        tables.conjectures.push(conjecture(&id, index, one)).unwrap();
        if one.1 == ConjectureStatus::Accepted {
            tables.problems.push(problem(&id, ProblemKind::Conjecture, one.0)).unwrap();
            tables.reviews.push(review(&id, one.4)).unwrap();
            for (index, proof) in (0..).zip(one.3) {
                tables.rollouts.push(rollout(&id, index, proof)).unwrap();
            }
        }
    }
}

/// Two rounds: everything that a conjecture can be, and proofs of one and of three inferences.
fn run(path: &Path) -> RunData {
    use ConjectureStatus::{Accepted, Duplicate, Malformed, Refused};
    let config =
        FrozenConfig { text: "method = \"sgs\"\n".into(), version: "1".into(), data: Default::default() };
    let dir = RunDir::create(path, &config, RunOptions::default()).unwrap();
    let first = [
        Made("fresh", Accepted, "", Some("a b c"), 6.0),
        Made("easy", Accepted, "", Some("a"), 0.0),
        Made("fresh", Duplicate, "", None, 0.0),
        Made("", Malformed, "no-end", None, 0.0),
        Made("THEOREM", Accepted, "", Some("a b"), 2.0),
        Made("TARGET", Accepted, "", None, 4.0),
    ];
    let second = [
        Made("fresh", Accepted, "", Some("a b"), 6.0),
        Made("other", Accepted, "", None, 1.0),
        Made("old", Refused, "known", None, 0.0),
    ];
    for (round, made) in (0..).zip([&first[..], &second[..]]) {
        dir.start_round(round, "").unwrap();
        dir.finish_sampling(round, "").unwrap();
        dir.skip_update(round, "").unwrap();
        let mut metrics = MetricValues::new(round);
        metrics.set("generations", 100.0 * f64::from(round + 1));
        metrics.set("cumulative_solve_rate", 0.0);
        let fill = |tables: &mut RoundTables| {
            fill(round, made, tables);
            Ok(())
        };
        dir.publish_round(&metrics, fill).unwrap();
    }
    drop(dir);
    let read = ReadOptions { display: Some(&Cases), ..ReadOptions::default() };
    read_run(path, &read).unwrap()
}

#[test]
fn every_conjecture_is_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let found = run(&dir.path().join("run")).inventions;
    let [first, second] = &found.rounds[..] else { panic!("two rounds") };
    let of = |origins: [u64; 5]| Origin::ALL.map(|origin| origins[origin as usize]);
    assert_eq!(
        (first.asked, first.unread, of(first.origins)),
        (6, 1, [2, 0, 1, 1, 1]),
        "new, seen, twice, theorem, target"
    );
    assert_eq!((second.asked, second.unread, of(second.origins)), (3, 0, [1, 1, 0, 1, 0]));
    assert_eq!((first.distinct, second.distinct), (4, 5));
    assert_eq!((first.accepted, second.accepted), (4, 6));
    assert_eq!(first.reviewed, [4, 1, 0], "one has a score of 0");
    assert_eq!(first.scores, Some([1.5, 0.0, 1.0]));
    // R_guide 6, 0, 2, 4 against proved, proved, proved, not.
    assert!(
        (first.correlations[0].unwrap() + 1.0 / 15.0_f64.sqrt()).abs() < 1e-9,
        "{:?}",
        first.correlations
    );
}

#[test]
fn the_report_says_what_is_invented_and_whether_the_guide_helps() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(&dir.path().join("run"));
    let shares = run.inventions.rewards_by_kind().unwrap();
    // R_synth: 4.5 + 0 + 1.5, then 4.5 for a statement that an earlier round had; R_solve: 0.75 each.
    let expected =
        [(Kind::Trivial, (0.0, 0.25)), (Kind::Known, (6.0 / 10.5, 0.5)), (Kind::New, (4.5 / 10.5, 0.25))];
    for (kind, (with, without)) in expected {
        let found = shares[&kind];
        assert!((found.0 - with).abs() < 1e-12 && (found.1 - without).abs() < 1e-12, "{kind:?}: {found:?}");
    }
    let [frequent] = &run.inventions.frequent[..] else { panic!("{:?}", run.inventions.frequent) };
    let Statement { text, times, rounds, steps, .. } = frequent;
    assert_eq!((text.as_str(), *times, *rounds, *steps), ("fresh", 3, (0, 1), Some(2)), "its shortest proof");
    let [rejected] = &run.inventions.rejected[..] else { panic!("{:?}", run.inventions.rejected) };
    assert_eq!(rejected.text, "easy");
    let fragment = fragment(&[run], &ReportOptions::default());
    let ids: Vec<&str> = fragment.figures.iter().map(|f| f.id.as_str()).collect();
    assert!(ids.contains(&"novelty") && ids.contains(&"guide"), "{ids:?}");
    for name in ["conjecture-origins", "conjectures-most-often", "conjectures-rejected"] {
        assert!(fragment.tables.iter().any(|(n, t)| n == name && !t.rows.is_empty()), "{name}");
    }
    let page = sgs_analysis::report::page(&fragment, None);
    assert!(page.contains("6 accepted conjectures, 5 different statements"), "the caption counts");
    assert!(page.contains("Of 6 reviewed conjectures the Guide scored 1 with 0 (16.7 %)"));
    assert!(page.contains("New conjectures got 42.9 % of the reward; without the Guide the same conjectures would have got 25.0 %"));
    assert!(page.contains("moves reward to what is new"));
}
