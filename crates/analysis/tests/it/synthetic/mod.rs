//! Synthetic runs for tests and examples.
#![allow(dead_code)]

use sgs_analysis::run::{RunData, ShownConjecture, SolvedExample, TargetHistory, TargetRound};
use sgs_rundir::metrics::names;
use sgs_rundir::{Histogram, MetricValues};
use sgs_selfplay::Method;

/// Size of a synthetic run.
#[derive(Clone, Copy)]
pub struct Size {
    pub rounds: u32,
    pub targets: usize,
}

const STATEMENTS: [&str; 6] = [
    "|- ( ( ph -> ps ) -> ( ( ps -> ch ) -> ( ph -> ch ) ) )",
    "|- ( A e. CC -> ( A + 0 ) = A )",
    "|- ( ( A e. RR /\\ B e. RR ) -> ( A < B <-> -u B < -u A ) )",
    "|- ( F : A --> B -> dom F = A )",
    "|- ( A C_ B -> ( A u. C ) C_ ( B u. C ) )",
    "|- ( ( K e. ZZ /\\ M e. ZZ /\\ N e. ZZ ) -> ( ( K || M /\\ K || N ) -> K || ( M + N ) ) )",
];

struct PanelShape {
    /// Highest difficulty that the method reaches.
    reach: f64,
    speed: f64,
    entropy_floor: f64,
    disjunctive: f64,
    has_conjectures: bool,
}

fn shape(method: Method) -> PanelShape {
    let base =
        PanelShape { reach: 0.62, speed: 1.0, entropy_floor: 0.28, disjunctive: 0.08, has_conjectures: true };
    match method {
        Method::Sgs => base,
        Method::SgsNoGuide => PanelShape { reach: 0.60, disjunctive: 0.85, ..base },
        Method::SgsFrozenConjecturer => PanelShape { reach: 0.58, ..base },
        Method::SgsNoConditioning => PanelShape { reach: 0.55, disjunctive: 0.35, ..base },
        Method::SgsCispo => PanelShape { reach: 0.47, speed: 1.5, entropy_floor: 0.03, ..base },
        Method::SgsProofs => PanelShape { reach: 0.6, speed: 0.9, ..base },
        Method::SgsAttempts => PanelShape { reach: 0.62, speed: 0.95, ..base },
        Method::Composer => PanelShape { reach: 0.58, speed: 0.8, ..base },
        Method::Oracle => PanelShape { reach: 0.66, speed: 0.85, ..base },
        Method::Stp => PanelShape { reach: 0.52, speed: 1.4, ..base },
        Method::Cispo => {
            PanelShape { reach: 0.46, speed: 1.6, entropy_floor: 0.02, has_conjectures: false, ..base }
        }
        Method::ExpertIteration => {
            PanelShape { reach: 0.53, entropy_floor: 0.12, has_conjectures: false, ..base }
        }
        Method::SamplingOnly => {
            PanelShape { reach: 0.42, speed: 0.8, entropy_floor: 0.4, has_conjectures: false, ..base }
        }
        Method::Reinforce | Method::ReinforceHalf => {
            PanelShape { reach: 0.55, entropy_floor: 0.2, has_conjectures: false, ..base }
        }
    }
}

/// Creates a synthetic run of a method.
pub fn run(method: Method, seed: u64, size: Size) -> RunData {
    let shape = shape(method);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut targets = make_targets(size.targets);
    let difficulty: Vec<f64> = (0..size.targets).map(|_| rng.f64()).collect();
    let mut data = RunData {
        name: method.label().to_owned(),
        method: Some(method),
        seed: Some(seed),
        version: Some("0.1.0".into()),
        config: format!(
            "method = \"{}\"\nseed = {seed}\n\n[solver]\nrollouts = 8\ntemperature = 1.0\n",
            method.as_str()
        ),
        ..RunData::default()
    };
    let mut generations = 0.0;
    for round in 0..size.rounds {
        let progress = f64::from(round) / f64::from(size.rounds);
        let tau = f64::from(round + 1) * shape.speed;
        let skill = 0.22 + (shape.reach - 0.22) * tau / (tau + 0.22 * f64::from(size.rounds.max(20)));
        let mut tally = RunningMean::default();
        for (target, d) in targets.iter_mut().zip(&difficulty) {
            tally.judge(target, round, rate_of(skill, *d), &shape, &mut rng);
        }
        generations += tally.rollouts;
        let ever = targets.iter().filter(|t| t.solved_round.is_some()).count() as f64;
        let m = metrics(
            round,
            progress,
            generations,
            ever / size.targets.max(1) as f64,
            &tally,
            &shape,
            &mut rng,
        );
        data.rounds.push(m);
    }
    data.shown_conjectures =
        if shape.has_conjectures { conjectures(&targets, size.rounds, &mut rng) } else { Vec::new() };
    data.solved = solved(&targets);
    data.targets = targets;
    data
}

fn rate_of(skill: f64, difficulty: f64) -> f64 {
    1.0 / (1.0 + ((difficulty - skill + 0.03) / 0.018).exp()) * 0.9
}

fn make_targets(n: usize) -> Vec<TargetHistory> {
    (0..n)
        .map(|i| TargetHistory {
            id: format!("target{i:04}"),
            statement: STATEMENTS[i % STATEMENTS.len()].to_owned(),
            ..TargetHistory::default()
        })
        .collect()
}

#[derive(Default)]
struct RunningMean {
    rollouts: f64,
    target_rates: Vec<f64>,
    conjecture_rates: Vec<f64>,
    trained: f64,
}

impl RunningMean {
    fn judge(
        &mut self,
        target: &mut TargetHistory,
        round: u32,
        rate: f64,
        shape: &PanelShape,
        rng: &mut fastrand::Rng,
    ) {
        let proved = (0..8).filter(|_| rng.f64() < rate).count() as u32;
        self.rollouts += 8.0;
        self.target_rates.push(f64::from(proved) / 8.0);
        let unsolved = target.solved_round.is_none();
        if unsolved && shape.has_conjectures {
            // Easier variants of the target, which are solved more often as the target's solution approaches.
            let easier = (rate * 60.0).min(0.75)
                * if shape.entropy_floor < 0.05 { f64::from(rng.bool()) } else { 1.0 };
            let solved = (0..8).filter(|_| rng.f64() < easier).count();
            let s = solved as f64 / 8.0;
            self.rollouts += 8.0;
            self.conjecture_rates.push(s);
            self.trained += f64::from(u8::from(s > 0.0 && s <= 0.5));
        }
        if proved > 0 && unsolved {
            target.solved_round = Some(round);
        }
        target.rounds.push(TargetRound { round, judged: 8, proved });
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn metrics(
    round: u32,
    progress: f64,
    generations: f64,
    cumulative: f64,
    tally: &RunningMean,
    shape: &PanelShape,
    rng: &mut fastrand::Rng,
) -> MetricValues {
    let mut m = MetricValues { round, unix_time: 1.7e9 + 95.0 * f64::from(round), ..MetricValues::default() };
    let mut noisy = |value: f64, spread: f64| value + spread * (rng.f64() - 0.5);
    m.set("generations", generations);
    m.set("cumulative_solve_rate", cumulative);
    m.set("targets", tally.target_rates.len() as f64);
    m.set("targets_solved_ever", (cumulative * tally.target_rates.len() as f64).round());
    m.set("target_solve_rate", mean(&tally.target_rates));
    let share = |rates: &[f64]| rates.iter().filter(|r| **r > 0.0).count() as f64 / rates.len() as f64;
    m.set("target_share_solved", share(&tally.target_rates));
    m.set_histogram("target_solve_rates", eighths(&tally.target_rates));
    let floor = shape.entropy_floor;
    m.set("solver_entropy", noisy(floor + (0.42 - floor) * (-4.0 * progress).exp(), 0.01));
    m.set("solver_tokens_mean", noisy(180.0 + 90.0 * progress, 6.0));
    m.set("proof_share_malformed", noisy(0.12 * (-3.0 * progress).exp() + 0.02, 0.005));
    m.set("infra_share", 0.0);
    m.set(names::SOLVER_LOG_PROB_GAP, noisy(0.0004, 0.0003));
    for (name, share) in
        [("proved", 0.3), ("refused", 0.55), ("malformed", 0.1), ("resource", 0.045), ("infra", 0.005)]
    {
        m.set(format!("target_rollouts_{name}"), noisy(share * 1000.0, 8.0));
        m.set(format!("conjecture_rollouts_{name}"), noisy(share * 800.0, 8.0));
    }
    for (name, seconds) in [
        (names::TIME_CONJECTURES, 4.0),
        (names::TIME_ROLLOUTS, 38.0),
        (names::TIME_REVIEWS, 6.0),
        (names::TIME_SAMPLING, 52.0),
        (names::TIME_CHECKS, 7.0),
        (names::TIME_UPDATE_SOLVER, 22.0),
        (names::TIME_UPDATE_CONJECTURER, 8.0),
        (names::TIME_PUBLISH, 1.2),
        (names::TIME_ROUND, 88.0),
    ] {
        m.set(name, noisy(seconds, seconds * 0.1));
    }
    m.set(names::SAMPLED_TOKENS_PER_S, noisy(9000.0, 300.0));
    m.set(names::TRAINED_TOKENS_PER_S, noisy(14000.0, 300.0));
    if shape.has_conjectures && !tally.conjecture_rates.is_empty() {
        m.set("conjecture_solve_rate", mean(&tally.conjecture_rates));
        m.set_histogram("conjecture_solve_rates", eighths(&tally.conjecture_rates));
        m.set("conjectures_trained_by_solver", tally.trained);
        m.set("r_solve", noisy(0.25 + 0.3 * progress, 0.02));
        m.set("r_guide", noisy(6.1, 0.15));
        m.set("r_synth", noisy(1.5 + 1.9 * progress, 0.1));
        m.set(
            "conjecture_share_disjunctive",
            noisy(0.07 + (shape.disjunctive - 0.07) * progress.powi(2), 0.015),
        );
        m.set("target_share_disjunctive", 0.073);
        m.set(
            "conjecture_conclusion_length",
            noisy(24.0 + 160.0 * (shape.disjunctive - 0.08) * progress.powi(2), 1.5),
        );
        m.set("target_conclusion_length", 27.5);
        m.set("conjecturer_entropy", noisy(0.6 - 0.15 * progress, 0.02));
        m.set("conjecture_share_malformed", noisy(0.45 * (-5.0 * progress).exp() + 0.03, 0.01));
        m.set("review_share_malformed", noisy(0.01, 0.004));
        m.set("conjecturer_tokens_mean", noisy(48.0 + 6.0 * progress, 2.0));
    }
    m
}

fn conjectures(targets: &[TargetHistory], rounds: u32, rng: &mut fastrand::Rng) -> Vec<ShownConjecture> {
    let mut out = Vec::new();
    for step in 0..12_u32.min(rounds) {
        let round = step * rounds.saturating_sub(1) / 11;
        for (i, target) in targets.iter().rev().take(8).enumerate() {
            let s = f64::from(rng.u32(0..=8)) / 8.0;
            let malformed = rng.f64() < 0.08;
            let review = [f64::from(rng.u32(1..=5)), f64::from(rng.u32(0..=1)), f64::from(rng.u32(0..=3))];
            let guide = if review[2] >= 3.0 { 0.0 } else { review[0] + 2.0 - review[2] + 1.0 - review[1] };
            out.push(ShownConjecture {
                round,
                target: target.id.clone(),
                target_statement: target.statement.clone(),
                statement: if malformed {
                    "|- ( ph -> (".into()
                } else {
                    STATEMENTS[(i + step as usize) % 6].replace("A ", "( A + B ) ")
                },
                status: if malformed { "malformed" } else { "accepted" }.into(),
                solve_rate: (!malformed).then_some(s),
                review: (!malformed).then_some(review),
                review_text: "relevance 4\nredundancy 0\ncomplexity 1".into(),
                r_solve: (!malformed).then_some(if s > 0.0 { 1.0 - s } else { 0.0 }),
                r_guide: (!malformed).then_some(guide),
                r_synth: (!malformed).then_some(guide * if s > 0.0 { 1.0 - s } else { 0.0 }),
            });
        }
    }
    out
}

fn solved(targets: &[TargetHistory]) -> Vec<SolvedExample> {
    let mut out: Vec<SolvedExample> = targets
        .iter()
        .filter_map(|t| {
            Some(SolvedExample {
                round: t.solved_round?,
                id: t.id.clone(),
                statement: t.statement.clone(),
                proof: " 1  hyp: 1      |- ( ph -> ps )\n 2  a1i   1      |- ( ch -> ( ph -> ps ) )\n 3  syl   1,2    |- ( ( ps -> ch ) -> ( ph -> ch ) )\n 4  qed   3      |- ( ( ph -> ps ) -> ( ( ps -> ch ) -> ( ph -> ch ) ) )".into(),
                tally: (1, 8),
            })
        })
        .collect();
    out.sort_by_key(|s| std::cmp::Reverse(s.round));
    out.truncate(60);
    out
}

/// Counts rates that are multiples of 1/8.
fn eighths(rates: &[f64]) -> Histogram {
    let mut counts = vec![0; 9];
    rates.iter().for_each(|rate| counts[(rate * 8.0).round() as usize] += 1);
    Histogram::equal_width(-1.0 / 16.0, 1.0 / 8.0, counts)
}
