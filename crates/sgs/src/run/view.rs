//! What a person sees while a run goes: a live view on a terminal, one line a round elsewhere, JSON for machines.

use crate::output;
use crate::page::Page;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use sgs_fleet::Fleet;
use sgs_formal::FormalSystem;
use sgs_rundir::metrics::MetricValues;
use sgs_selfplay::{Event, Problem, Review, Round, RoundOutcome, TaskKind, Verdict};
use std::io::IsTerminal;
use std::sync::Arc;

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Bars and lines that change in place.
    Live,
    /// One line a round.
    Lines,
    /// One JSON object a round.
    Json,
}

impl Show {
    /// Live on a terminal, lines elsewhere.
    pub fn choose(json: bool) -> Self {
        match (json, std::io::stderr().is_terminal()) {
            (true, _) => Self::Json,
            (false, true) => Self::Live,
            (false, false) => Self::Lines,
        }
    }
}

const STAGES: [(TaskKind, &str); 4] = [
    (TaskKind::Conjecture, "conjectures"),
    (TaskKind::Rollout, "rollouts"),
    (TaskKind::Judgement, "verdicts"),
    (TaskKind::Review, "reviews"),
];

/// The view of a run.
pub struct View {
    show: Show,
    system: Arc<dyn FormalSystem>,
    bars: Vec<ProgressBar>,
    head: ProgressBar,
    solved: ProgressBar,
    conjecture: ProgressBar,
    rates: Vec<f64>,
    proved: u64,
    judged: u64,
    page: Option<Page>,
    // Keeps the bars together.
    _all: MultiProgress,
}

impl View {
    /// A view; `rates` are the cumulative solve rates of the rounds that are over, `page` shows the run to browsers.
    pub fn new(show: Show, system: Arc<dyn FormalSystem>, rates: Vec<f64>, page: Option<Page>) -> Self {
        let target =
            if show == Show::Live { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let all = MultiProgress::with_draw_target(target);
        let text = || {
            let bar = all.add(ProgressBar::new(0));
            bar.set_style(style("{msg}"));
            bar
        };
        let head = text();
        let bars = STAGES
            .iter()
            .map(|(_, name)| {
                let bar = all.add(ProgressBar::new(0));
                bar.set_style(style("{prefix:>12} {bar:32} {pos:>6}/{len:<6} {rate:<8} {eta}"));
                bar.set_prefix(*name);
                bar
            })
            .collect();
        let (solved, conjecture) = (text(), text());
        Self { show, system, bars, head, solved, conjecture, rates, proved: 0, judged: 0, page, _all: all }
    }

    /// Whose workers and queue the page shows.
    pub fn set_fleet(&mut self, fleet: &Fleet) {
        if let Some(page) = &mut self.page {
            page.set_fleet(fleet);
        }
    }

    /// A round begins or goes on.
    pub fn begin_round(&mut self, round: u32, rounds: u32, what: &str) {
        (self.proved, self.judged) = (0, 0);
        if let Some(page) = &mut self.page {
            page.begin(round, what);
        }
        for bar in &self.bars {
            bar.reset();
        }
        let rate = self.rates.last().copied().unwrap_or(0.0);
        self.head.set_message(format!(
            "round {round} of {rounds}  {what}   solved {:.1} %  {}",
            100.0 * rate,
            sparkline(&self.rates)
        ));
    }

    /// The counts of the round so far.
    pub fn progress(&mut self, round: &Round) {
        let progress = round.progress();
        for (bar, (kind, _)) in self.bars.iter().zip(STAGES) {
            let stage = progress.of(kind);
            bar.set_length(stage.asked);
            bar.set_position(stage.done);
        }
        if let Some(page) = &mut self.page {
            page.progress(round);
        }
    }

    /// One result.
    pub fn event(&mut self, event: &Event) {
        if let Some(page) = &mut self.page {
            page.event(event);
        }
        match event {
            Event::Judgement { judgement, .. } => {
                self.judged += 1;
                self.proved += u64::from(judgement.verdict == Verdict::Proved);
            }
            Event::Conjecture { read: Ok(read), .. } if self.show == Show::Live => {
                let text = self.system.display_statement(&read.statement);
                self.conjecture.set_message(format!("  conjecture  {}", cut(&text, 100)));
            }
            _ => {}
        }
    }

    /// The weights are being updated.
    pub fn stage(&mut self, round: u32, rounds: u32, what: &str) {
        self.begin_round(round, rounds, what);
    }

    /// A round is over.
    pub fn end_round(&mut self, outcome: &RoundOutcome, metrics: &MetricValues) {
        let get = |name: &str| metrics.scalars.get(name).copied();
        let rate = get("cumulative_solve_rate").unwrap_or(0.0);
        self.rates.push(rate);
        match self.show {
            Show::Json => {
                if let Ok(line) = serde_json::to_string(metrics) {
                    // A reader that has gone away does not stop the run.
                    let _ = output::line(line);
                }
            }
            Show::Lines => {
                let _ = output::line(line(outcome, metrics));
            }
            Show::Live => {
                let _ = self._all.println(line(outcome, metrics));
                if let Some((id, solved)) = outcome.newly_solved.last()
                    && let Some(p) = outcome.problems.iter().find(|p| p.problem.id == *id)
                {
                    self.show_solved(&p.problem, &solved.proof);
                }
                self.show_review(outcome);
            }
        }
    }

    fn show_solved(&self, problem: &Problem, proof: &str) {
        let statement = self.system.display_statement(&problem.statement);
        self.solved.set_message(format!(
            "  solved      {}: {}\n              {}",
            problem.id,
            cut(&statement, 90),
            cut(proof, 100)
        ));
    }

    fn show_review(&self, outcome: &RoundOutcome) {
        let reviewed = outcome.conjectures.iter().rev().find_map(|c| match (&c.status, c.review) {
            (sgs_selfplay::outcome::ConjectureStatus::Accepted { statement }, Some(review)) => {
                Some((statement, review))
            }
            _ => None,
        });
        if let Some((statement, review)) = reviewed {
            let Review { relevance, redundancy, complexity } = review;
            let text = self.system.display_statement(statement);
            self.conjecture.set_message(format!(
                "  conjecture  {}\n              relevance {relevance}, redundancy {redundancy}, complexity {complexity}",
                cut(&text, 100)
            ));
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).with_key(
        "rate",
        |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = write!(out, "{:.0}/s", state.per_sec());
        },
    )
}

/// One line for a round that is over.
fn line(outcome: &RoundOutcome, metrics: &MetricValues) -> String {
    let get = |name: &str| metrics.scalars.get(name).copied();
    let percent = |name: &str| get(name).map_or_else(|| "    -".to_owned(), |x| format!("{:5.1}", 100.0 * x));
    let plain = |name: &str| get(name).map_or_else(|| "-".to_owned(), |x| format!("{x:.2}"));
    let mut out = format!(
        "round {:>4}  generations {:>8}  solved {} % (+{})  pass@1 {} %",
        outcome.round,
        get("generations").unwrap_or(0.0),
        percent("cumulative_solve_rate"),
        outcome.newly_solved.len(),
        percent("target_solve_rate"),
    );
    if !outcome.conjectures.is_empty() {
        out.push_str(&format!(
            "  conjectures {}/{} solved {}  R_guide {}",
            get("conjectures_accepted").unwrap_or(0.0),
            outcome.conjectures.len(),
            get("conjectures_solved").unwrap_or(0.0),
            plain("r_guide"),
        ));
    }
    out.push_str(&format!(
        "  entropy {}  {:.1} s",
        plain("solver_entropy"),
        get("time_round_s").unwrap_or(0.0)
    ));
    out
}

/// The last rates as small bars.
fn sparkline(rates: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let tail = &rates[rates.len().saturating_sub(40)..];
    let (low, high) = tail.iter().fold((f64::MAX, f64::MIN), |(l, h), &r| (l.min(r), h.max(r)));
    let level = |r: f64| if high > low { ((r - low) / (high - low) * 7.0).round() as usize } else { 0 };
    tail.iter().map(|&r| BARS[level(r).min(7)]).collect()
}

fn cut(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
