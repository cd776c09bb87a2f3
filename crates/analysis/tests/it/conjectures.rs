//! Statistics and text of a report on the Conjecturer and the Guide.

use sgs_analysis::figures::FigureOptions;
use sgs_analysis::report::fragment;
use sgs_analysis::run::{
    ConjectureClass, ConjecturedStatement, RunData, StatementDisplay, StatementIdentity, StatementOrigin,
    read_run,
};
use sgs_rundir::rounds::RoundTables;
use sgs_rundir::rows::{ConjectureRow, ConjectureRowStatus, ProblemKind, ProblemRow, ReviewRow, RolloutRow};
use sgs_rundir::{FrozenConfig, MetricValues, RunDir};
use sgs_selfplay::{FinishReason, ProblemId, Verdict};
use std::path::Path;

/// A display that compares statements without case; `THEOREM` is in its database.
struct Cases;

impl StatementDisplay for Cases {
    fn statement(&self, statement: &str) -> String {
        statement.to_owned()
    }

    fn proof(&self, _: &str, _: &str, proof: &str) -> String {
        proof.to_owned()
    }

    fn identity(&self, statement: &str, context: &str) -> StatementIdentity {
        assert_eq!(context, "context");
        let normal = statement.to_lowercase();
        let theorem = (normal == "theorem").then(|| "thm".to_owned());
        StatementIdentity { normal, theorem }
    }

    fn steps(&self, proof: &str) -> u32 {
        proof.split(' ').count() as u32
    }
}

/// A conjecture: its statement, status, reason, proof and R_guide.
struct Made(&'static str, ConjectureRowStatus, &'static str, Option<&'static str>, f64);

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
    let accepted = *status == ConjectureRowStatus::Accepted;
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
        if one.1 == ConjectureRowStatus::Accepted {
            tables.problems.push(problem(&id, ProblemKind::Conjecture, one.0)).unwrap();
            tables.reviews.push(review(&id, one.4)).unwrap();
            for (index, proof) in (0..).zip(one.3) {
                tables.rollouts.push(rollout(&id, index, proof)).unwrap();
            }
        }
    }
}

/// Writes two rounds with conjectures of every origin and with proofs of one and of three steps.
fn run(path: &Path) -> RunData {
    use ConjectureRowStatus::{Accepted, Duplicate, Malformed, Refused};
    let config =
        FrozenConfig { text: "method = \"sgs\"\n".into(), version: "1".into(), data: Default::default() };
    let dir = RunDir::create(path, &config, None).unwrap();
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
        dir.start_round(round).unwrap();
        dir.finish_sampling(round).unwrap();
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
    read_run(path, Some(&Cases)).unwrap()
}

#[test]
fn conjectures_are_classified_by_origin() {
    let dir = tempfile::tempdir().unwrap();
    let found = run(&dir.path().join("run")).conjecture_stats;
    let [first, second] = &found.rounds[..] else { panic!("two rounds") };
    let of = |origins: [u64; 5]| StatementOrigin::ALL.map(|origin| origins[origin as usize]);
    assert_eq!(
        (first.asked, first.unread, of(first.origins)),
        (6, 1, [2, 0, 1, 1, 1]),
        "new, seen, twice, theorem, target"
    );
    assert_eq!((second.asked, second.unread, of(second.origins)), (3, 0, [1, 1, 0, 1, 0]));
    assert_eq!((first.distinct, second.distinct), (4, 5));
    assert_eq!((first.accepted, second.accepted), (4, 6));
    assert_eq!((first.reviewed, first.rewarded), ([4, 1, 0], [3, 1]), "one has a score of 0");
    assert_eq!(first.scores, Some([1.5, 0.0, 1.0]));
    // R_guide is 6, 0, 2 and 4 for conjectures that are proved, proved, proved and not proved.
    assert!(
        (first.correlations[0].unwrap() + 1.0 / 15.0_f64.sqrt()).abs() < 1e-9,
        "{:?}",
        first.correlations
    );
}

#[test]
fn the_report_describes_the_conjectures_and_the_effect_of_the_guide() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = run(&dir.path().join("run"));
    let shares = run.conjecture_stats.rewards_by_kind().unwrap();
    // R_synth is 4.5 + 0 + 1.5, then 4.5 for a statement that an earlier round had; R_solve is 0.75 each.
    let expected = [
        (ConjectureClass::Trivial, (0.0, 0.25)),
        (ConjectureClass::Known, (6.0 / 10.5, 0.5)),
        (ConjectureClass::New, (4.5 / 10.5, 0.25)),
    ];
    for (kind, (with, without)) in expected {
        let found = shares[&kind];
        assert!((found.0 - with).abs() < 1e-12 && (found.1 - without).abs() < 1e-12, "{kind:?}: {found:?}");
    }
    let [frequent] = &run.conjecture_stats.frequent[..] else {
        panic!("{:?}", run.conjecture_stats.frequent)
    };
    let ConjecturedStatement { text, times, rounds, steps, .. } = frequent;
    assert_eq!((text.as_str(), *times, *rounds, *steps), ("fresh", 3, (0, 1), Some(2)), "its shortest proof");
    let [rejected] = &run.conjecture_stats.rejected[..] else {
        panic!("{:?}", run.conjecture_stats.rejected)
    };
    assert_eq!(rejected.text, "easy");
    let page_of = |run: &RunData| fragment(std::slice::from_ref(run), &FigureOptions::default());
    let fragment = page_of(&run);
    let ids: Vec<&str> = fragment.figures.iter().map(|f| f.id.as_str()).collect();
    assert!(ids.contains(&"novelty") && ids.contains(&"guide"), "{ids:?}");
    for name in ["conjecture-origins", "conjectures-most-often", "conjectures-rejected"] {
        assert!(fragment.tables.iter().any(|(n, t)| n == name && !t.rows.is_empty()), "{name}");
    }
    let page = sgs_analysis::report::page(&fragment, None);
    assert!(!page.contains("reviews were malformed"), "the run has no such metrics");
    let mut reviewed = run.clone();
    for (name, value) in [("reviews_sampled", 1233.0), ("reviews_malformed", 2.0)] {
        reviewed.rounds[0].set(name, value);
    }
    let expected = "2 of 1,233 reviews were malformed; every conjecture has a well-formed review.";
    assert!(sgs_analysis::report::page(&page_of(&reviewed), None).contains(expected));
    // Equal counts need no chart.
    reviewed.conjecture_stats.rounds.iter_mut().for_each(|round| round.distinct = round.accepted);
    let novelty = page_of(&reviewed).figures.into_iter().find(|f| f.id == "novelty").unwrap();
    assert!(novelty.panels.len() == 1 && novelty.caption.contains("All 6 accepted"), "{}", novelty.caption);
    assert!(page.contains("of distinct statements: 6 and 5."), "the caption counts");
    assert!(page.contains("The Guide scored 1 of 6 reviewed conjectures 0 (16.7%)."));
    assert!(page.contains("new 42.9% and 25.0%; known 57.1% and 50.0%; trivial 0.0% and 25.0%."));
    assert!(page.contains("Of the 4 conjectures with a solve rate that is rewarded, the Guide gave 1"));
    // A caption names only curves that are drawn.
    let caption = |with: [Option<f64>; 2]| {
        let mut run = run.clone();
        run.conjecture_stats.rounds.iter_mut().for_each(|round| round.correlations = with);
        page_of(&run).figures.into_iter().find(|f| f.id == "guide").unwrap().caption
    };
    let both = "rank correlation of R_guide with the solve rate and with the novelty of the conjectures";
    assert!(caption([Some(0.5); 2]).contains(both));
    assert!(caption([Some(0.5), None]).contains("R_guide with the solve rate of the conjectures"));
    assert!(!caption([None; 2]).contains("correlation"));
    // If the Guide does not change the shares, they are not shown.
    run.conjecture_stats.rounds.iter_mut().for_each(|r| r.rewards = [(0.0, 0.0), (0.0, 0.0), (2.0, 1.0)]);
    let page = sgs_analysis::report::page(&page_of(&run), None);
    assert!(page.contains("The Guide scored 1 of 6") && !page.contains("hares of the reward"));
}
