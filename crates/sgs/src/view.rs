//! Progress of a run: a live display on a terminal, one line per round elsewhere, or JSON.

use crate::eta::EtaEstimator;
use crate::evaluation_line;
use crate::output;
use crate::page::LivePage;
use crate::terminal::{self, LiveGuard, LiveLine, StyledText, Tone, paint};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use sgs_formal::FormalSystem;
use sgs_run::RunEvent;
use sgs_rundir::metrics::MetricValues;
use sgs_selfplay::{Problem, Progress, Review, RoundOutcome, TaskKind};
use std::io::IsTerminal;
use std::sync::Arc;

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressFormat {
    /// A display that is updated in place.
    Live,
    /// One line per round.
    Lines,
    /// One JSON object per round.
    Json,
}

impl ProgressFormat {
    /// Selects the live display on a terminal, and lines elsewhere.
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

/// Narrower terminals get the short line of a round.
const WIDE: usize = 140;

/// A line of text in the live display.
struct TextBar {
    bar: ProgressBar,
    line: LiveLine,
}

impl TextBar {
    fn below(all: &MultiProgress) -> Self {
        let (bar, line) = (all.add(ProgressBar::new(0)), LiveLine::default());
        let shown = line.clone();
        let text = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = out.write_str(&shown.shown(terminal::columns()));
        };
        bar.set_style(style("{line}").with_key("line", text));
        Self { bar, line }
    }

    fn set(&self, parts: Vec<StyledText>) {
        self.line.set(parts);
        // Draw immediately: the line may not change again during this round.
        self.bar.force_draw();
    }
}

/// Shows the events of a run.
pub struct View {
    show: ProgressFormat,
    system: Arc<dyn FormalSystem>,
    eta: EtaEstimator,
    bars: Vec<ProgressBar>,
    head: TextBar,
    standing: TextBar,
    solved: [TextBar; 2],
    conjecture: [TextBar; 2],
    rates: Vec<f64>,
    /// pass@1 of the last round.
    last_rate: Option<f64>,
    /// Held-out evaluation of the base model.
    base: Option<MetricValues>,
    page: Option<LivePage>,
    // Keeps other output above the display.
    _live: Option<LiveGuard>,
    // Owns the bars.
    all: MultiProgress,
}

impl View {
    /// Creates a view. `rates` are the cumulative solve rates of the finished rounds, `base` is the evaluation of the base
    /// model, `page` serves the run to browsers.
    pub fn new(
        show: ProgressFormat,
        system: Arc<dyn FormalSystem>,
        rates: Vec<f64>,
        base: Option<MetricValues>,
        eta: EtaEstimator,
        page: Option<LivePage>,
    ) -> Self {
        let target = if show == ProgressFormat::Live {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let all = MultiProgress::with_draw_target(target);
        let text = || TextBar::below(&all);
        let (head, standing) = (text(), text());
        let bars = STAGES
            .iter()
            .map(|(_, name)| {
                let bar = all.add(ProgressBar::new(0));
                bar.set_style(style("{prefix:>12} {bar:24.cyan/dim} {pos:>6}/{len:<6} {rate:<8} {eta}"));
                bar.set_prefix(*name);
                bar
            })
            .collect();
        let (solved, conjecture) = ([text(), text()], [text(), text()]);
        let live = (show == ProgressFormat::Live).then(|| terminal::live(&all));
        Self {
            show,
            system,
            eta,
            bars,
            head,
            standing,
            solved,
            conjecture,
            rates,
            base,
            last_rate: None,
            page,
            _live: live,
            all,
        }
    }

    /// Handles one event of the run.
    pub fn on(&mut self, event: &RunEvent<'_>) {
        if let Some(page) = &mut self.page {
            page.on(event);
        }
        match event {
            RunEvent::Stage { round, rounds, stage } => self.begin(*round, *rounds, stage.as_str()),
            RunEvent::Progress(progress) => self.progress(progress),
            RunEvent::Conjecture { statement, .. } if self.show == ProgressFormat::Live => {
                let text = self.system.display_statement(statement);
                self.conjecture[0].set(vec![(None, format!("  conjecture  {text}"))]);
            }
            RunEvent::RoundFinished { outcome, metrics } => self.end_round(outcome, metrics),
            RunEvent::Evaluated { metrics } => self.evaluated(metrics),
            RunEvent::Note(text) => eprintln!("{text}"),
            RunEvent::Warning(text) => eprintln!("{} {text}", paint(Tone::Bad, "warning:")),
            _ => {}
        }
    }

    /// Removes the live display.
    pub fn end(self) {
        if self.show == ProgressFormat::Live {
            // The lines of finished rounds stay above.
            let _ = self.all.clear();
        }
    }

    /// Shows that a round has started or entered another stage.
    fn begin(&mut self, round: u32, rounds: u32, what: &str) {
        for bar in &self.bars {
            bar.reset();
        }
        let left = self.eta.left(round, rounds);
        let left = left.map_or_else(String::new, |left| format!("   at most {left} left"));
        let round = (Some(Tone::Strong), format!("round {round}"));
        self.head.set(vec![round, (None, format!(" of {rounds}  {what}{left}"))]);
        let ever = self.rates.last().copied().unwrap_or(0.0);
        let last = self.last_rate.map(|rate| format!("   last round {:.1}% of attempts", 100.0 * rate));
        let ever = (Some(Tone::Good), format!("ever solved {:.1}%", 100.0 * ever));
        self.standing
            .set(vec![ever, (None, format!("{}   {}", last.unwrap_or_default(), sparkline(&self.rates)))]);
    }

    /// Updates the counts of the current round.
    fn progress(&self, progress: &Progress) {
        for (bar, (kind, _)) in self.bars.iter().zip(STAGES) {
            let stage = progress.of(kind);
            bar.set_length(stage.asked);
            bar.set_position(stage.done);
        }
    }

    /// Shows an evaluation of held-out problems.
    fn evaluated(&mut self, metrics: &MetricValues) {
        match self.show {
            ProgressFormat::Json => {
                if let Ok(line) = serde_json::to_string(metrics) {
                    let _ = output::line(line);
                }
            }
            ProgressFormat::Lines => {
                drop(evaluation_line::line(metrics, self.base.as_ref()).map(output::line))
            }
            ProgressFormat::Live => {
                if let Some(line) = evaluation_line::line(metrics, self.base.as_ref()) {
                    eprintln!("{}", paint(Tone::Strong, &line));
                }
            }
        }
        if metrics.round == 0 {
            self.base = Some(metrics.clone());
        }
    }

    /// Shows a finished round.
    fn end_round(&mut self, outcome: &RoundOutcome, metrics: &MetricValues) {
        let get = |name: &str| metrics.scalars.get(name).copied();
        self.rates.push(get("cumulative_solve_rate").unwrap_or(0.0));
        self.last_rate = get("target_solve_rate");
        self.eta.record(get("time_round_s").unwrap_or(0.0));
        match self.show {
            ProgressFormat::Json => {
                if let Ok(line) = serde_json::to_string(metrics) {
                    // A closed pipe does not stop the run.
                    let _ = output::line(line);
                }
            }
            ProgressFormat::Lines => {
                let _ = output::line(line(outcome, metrics));
            }
            ProgressFormat::Live => {
                let is_wide = terminal::columns() >= WIDE;
                let line = if is_wide { line(outcome, metrics) } else { short_line(outcome, metrics) };
                let tone = if outcome.newly_solved.is_empty() { Tone::Quiet } else { Tone::Good };
                eprintln!("{}", paint(tone, &line));
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
        let [first, second] = &self.solved;
        let name = (Some(Tone::Good), "  solved      ".to_owned());
        first.set(vec![name, (None, format!("{}: {statement}", problem.id))]);
        second.set(vec![(Some(Tone::Quiet), format!("              {}", proof.replace('\n', " ")))]);
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
            let [first, second] = &self.conjecture;
            first.set(vec![(None, format!("  conjecture  {}", self.system.display_statement(statement)))]);
            let scores = format!("relevance {relevance}, redundancy {redundancy}, complexity {complexity}");
            second.set(vec![(Some(Tone::Quiet), format!("              {scores}"))]);
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

/// Formats a finished round in 80 columns.
fn short_line(outcome: &RoundOutcome, metrics: &MetricValues) -> String {
    let get = |name: &str| metrics.scalars.get(name).copied().unwrap_or(0.0);
    let mut out = format!(
        "round {:>4}  ever solved {:4.1}% ({:+})  this round {:4.1}%",
        outcome.round,
        100.0 * get("cumulative_solve_rate"),
        outcome.newly_solved.len(),
        100.0 * get("target_solve_rate"),
    );
    if !outcome.conjectures.is_empty() {
        out.push_str(&format!("  conj. {}/{}", get("conjectures_accepted"), outcome.conjectures.len()));
    }
    out.push_str(&format!("  {:.1} s", get("time_round_s")));
    out
}

/// Formats a finished round as one line.
fn line(outcome: &RoundOutcome, metrics: &MetricValues) -> String {
    let get = |name: &str| metrics.scalars.get(name).copied();
    let percent = |name: &str| get(name).map_or_else(|| "    -".to_owned(), |x| format!("{:5.1}", 100.0 * x));
    let plain = |name: &str| get(name).map_or_else(|| "-".to_owned(), |x| format!("{x:.2}"));
    let mut out = format!(
        "round {:>4}  generations {:>8}  ever solved {}% (+{})  this round pass@1 {}%",
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

/// Draws the latest rates as a sparkline.
fn sparkline(rates: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let tail = &rates[rates.len().saturating_sub(40)..];
    let (low, high) = tail.iter().fold((f64::MAX, f64::MIN), |(l, h), &r| (l.min(r), h.max(r)));
    let level = |r: f64| if high > low { ((r - low) / (high - low) * 7.0).round() as usize } else { 0 };
    tail.iter().map(|&r| BARS[level(r).min(7)]).collect()
}
