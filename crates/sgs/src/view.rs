//! Progress of a run: a live display on a terminal, one line per round elsewhere, or JSON.

use crate::evaluation_line;
use crate::output;
use crate::pace::Pace;
use crate::page::LivePage;
use crate::terminal::{self, LiveGuard, LiveLine, StyledText, Tone, paint};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState};
use sgs_analysis::plot::{grouped, percent};
use sgs_formal::FormalSystem;
use sgs_run::{RoundStage, RunEvent};
use sgs_rundir::metrics::MetricValues;
use sgs_selfplay::round::StageProgress;
use sgs_selfplay::{Problem, Progress, Review, Role, RoundOutcome, TaskKind};
use std::io::IsTerminal;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressFormat {
    /// A display that is updated in place.
    Live,
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
    // Completions without a proof that can be read are not checked.
    (TaskKind::Judgement, "proofs"),
    (TaskKind::Review, "reviews"),
];

/// Minimum width of a terminal for the long line of a round.
const WIDE: usize = 140;
/// Maximum numbers of lines about rounds and evaluations on a terminal. With notes and summary, a run stays below forty.
const ROUND_LINES: u32 = 14;
const EVALUATION_LINES: u32 = 5;
/// Number of completions from which their share of malformed ones is meaningful.
const MANY: f64 = 50.0;
/// Number of steps of the progress bar.
const BAR_STEPS: u64 = 1000;
/// Number of columns for the text after the progress bar.
const STAGE: usize = 52;

/// Returns the width of the progress bar on a terminal.
fn bar_width(columns: usize) -> usize {
    columns.saturating_sub(STAGE).clamp(8, 24)
}

/// A line of text in the live display.
struct TextBar {
    bar: ProgressBar,
    line: LiveLine,
}

impl TextBar {
    /// Adds a line. `template` places the text `{line}`; it uses `reserved` columns itself.
    fn add(all: &MultiProgress, template: &str, reserved: usize) -> Self {
        let added = Self { bar: all.add(ProgressBar::new(BAR_STEPS)), line: LiveLine::default() };
        added.set_template(template, reserved);
        added
    }

    /// Adds the bar of the whole run.
    fn add_head(all: &MultiProgress) -> Self {
        let added = Self::add(all, "{line}", 0);
        added.fit_bar();
        added
    }

    /// Adapts the width of the bar to that of the terminal.
    fn fit_bar(&self) {
        let width = bar_width(terminal::columns());
        self.set_template(&format!("{{bar:{width}.cyan/dim}} {{line}}"), width + 1);
    }

    fn set_template(&self, template: &str, reserved: usize) {
        let shown = self.line.clone();
        let text = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = out.write_str(&shown.shown(terminal::columns().saturating_sub(reserved)));
        };
        self.bar.set_style(terminal::bar_style(template).with_key("line", text));
    }

    fn set(&self, parts: Vec<StyledText>) {
        self.line.set(parts);
        // Draw immediately, because the line may not change again during this round.
        self.bar.force_draw();
    }
}

/// Spreads a limited number of lines evenly over a run.
struct LineBudget {
    most: u32,
    /// Fraction of the run that was done at the last line.
    last: Option<f64>,
}

impl LineBudget {
    fn new(most: u32) -> Self {
        Self { most, last: None }
    }

    /// Returns whether a line is due when this fraction of the run is done.
    fn is_due(&mut self, done: f64) -> bool {
        let is_due = self.last.is_none_or(|last| (done - last) * f64::from(self.most) >= 1.0);
        if is_due {
            self.last = Some(done);
        }
        is_due
    }
}

/// Shows the events of a run.
pub struct View {
    show: ProgressFormat,
    system: Arc<dyn FormalSystem>,
    pace: Pace,
    /// The bar of the whole run.
    head: TextBar,
    standing: TextBar,
    counts: TextBar,
    solved: [TextBar; 2],
    conjecture: [TextBar; 2],
    rates: Vec<f64>,
    /// pass@1 of the last round.
    last_rate: Option<f64>,
    round_lines: LineBudget,
    evaluation_lines: LineBudget,
    /// Targets that were newly solved since the last line on the terminal.
    newly_solved: usize,
    /// Roles whose malformed completions the user was warned of.
    warned: Vec<Role>,
    /// Whether a round or an evaluation has begun.
    has_worked: bool,
    /// The line of the last round, if it was not printed.
    unprinted: Option<String>,
    /// Held-out evaluation of the base model.
    base: Option<MetricValues>,
    page: Option<LivePage>,
    // This field keeps other output above the display.
    _live: Option<LiveGuard>,
    // This field owns the bars.
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
        pace: Pace,
        page: Option<LivePage>,
    ) -> Self {
        let target = if show == ProgressFormat::Live {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let all = MultiProgress::with_draw_target(target);
        let head = TextBar::add_head(&all);
        let text = || TextBar::add(&all, "{line}", 0);
        let (standing, counts) = (text(), text());
        let (solved, conjecture) = ([text(), text()], [text(), text()]);
        let live = (show == ProgressFormat::Live).then(|| terminal::live(&all));
        Self {
            show,
            system,
            pace,
            head,
            standing,
            counts,
            solved,
            conjecture,
            rates,
            base,
            last_rate: None,
            round_lines: LineBudget::new(ROUND_LINES),
            evaluation_lines: LineBudget::new(EVALUATION_LINES),
            newly_solved: 0,
            warned: Vec::new(),
            has_worked: false,
            unprinted: None,
            page,
            _live: live,
            all,
        }
    }

    pub fn on(&mut self, event: &RunEvent<'_>) {
        if let Some(page) = &mut self.page {
            page.on(event);
        }
        match event {
            RunEvent::Stage { round, stage: RoundStage::Evaluating, .. } => self.begin(match round {
                0 => "evaluating the base model".to_owned(),
                _ => format!("evaluating after {}", output::counted(*round as usize, "round")),
            }),
            RunEvent::Stage { round, rounds, stage } => {
                self.begin(format!("round {round} ({} of {rounds})  {}", round + 1, stage.as_str()));
            }
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

    /// Removes the live display. Returns whether the run had anything to do.
    pub fn end(mut self) -> bool {
        if self.show == ProgressFormat::Live {
            // The lines of finished rounds stay above.
            let _ = self.all.clear();
            self.print_last_round();
        }
        self.has_worked
    }

    /// Prints the line of the last round if it was not printed.
    fn print_last_round(&mut self) {
        if let Some(line) = self.unprinted.take() {
            self.newly_solved = 0;
            eprintln!("{line}");
        }
    }

    /// Shows that a stage of the run has started.
    fn begin(&mut self, stage: String) {
        self.has_worked = true;
        self.advance(0.0);
        let left = self.pace.left().map_or_else(String::new, |left| format!("   {left} left"));
        self.head.fit_bar();
        self.head.set(vec![(Some(Tone::Strong), stage), (None, left)]);
        self.counts.set(Vec::new());
        let Some(ever) = self.rates.last() else { return };
        let last = self.last_rate.map(|rate| format!("   last round {} of rollouts", percent(rate)));
        let ever = (Some(Tone::Good), format!("ever solved {}", percent(*ever)));
        self.standing
            .set(vec![ever, (None, format!("{}   {}", last.unwrap_or_default(), sparkline(&self.rates)))]);
    }

    /// Shows the counts of the current round.
    fn progress(&self, progress: &Progress) {
        if self.show != ProgressFormat::Live {
            return;
        }
        let stages = STAGES.iter().map(|(kind, name)| (*name, progress.of(*kind)));
        let stages: Vec<_> = stages.filter(|(_, stage)| stage.asked > 0).collect();
        let texts = stages.iter().map(|(name, stage)| format!("{name} {}/{}", stage.done, stage.asked));
        self.counts.set(vec![(None, format!("  {}", texts.collect::<Vec<_>>().join(", ")))]);
        let sum =
            |count: fn(&StageProgress) -> u64| stages.iter().map(|(_, stage)| count(stage)).sum::<u64>();
        let part = sum(|stage| stage.done) as f64 / sum(|stage| stage.asked).max(1) as f64;
        self.advance(part);
    }

    /// Advances the bar; `part` is the fraction of the round that is done. The bar never moves back, although later
    /// tasks of a round are not known at its start.
    fn advance(&self, part: f64) {
        let done = (self.pace.done(part) * BAR_STEPS as f64) as u64;
        self.head.bar.set_position(done.max(self.head.bar.position()));
    }

    /// Shows an evaluation of held-out problems.
    fn evaluated(&mut self, metrics: &MetricValues) {
        match self.show {
            ProgressFormat::Json => print_json(metrics),
            ProgressFormat::Lines => {
                drop(evaluation_line::line(metrics, self.base.as_ref()).map(output::line))
            }
            ProgressFormat::Live => {
                if self.evaluation_lines.is_due(self.pace.done(0.0))
                    && let Some(line) = evaluation_line::line(metrics, self.base.as_ref())
                {
                    self.print_last_round();
                    eprintln!("{}", paint(Tone::Strong, &line));
                }
            }
        }
        if metrics.round == 0 {
            self.base = Some(metrics.clone());
        }
    }

    fn end_round(&mut self, outcome: &RoundOutcome, metrics: &MetricValues) {
        let get = |name: &str| metrics.scalars.get(name).copied();
        let (before, now) = (self.rates.last().copied(), get("cumulative_solve_rate").unwrap_or(0.0));
        self.rates.push(now);
        self.last_rate = get("target_solve_rate");
        self.pace.record(get("time_round_s").unwrap_or(0.0), get("generations").unwrap_or(0.0));
        match self.show {
            ProgressFormat::Json => print_json(metrics),
            ProgressFormat::Lines => {
                let line = line(outcome, metrics, outcome.newly_solved.len());
                // No round follows the one that reaches a limit.
                let left = if self.pace.done(0.0) < 1.0 { self.pace.left() } else { None };
                let left = left.map_or_else(String::new, |left| format!(", {left} left"));
                let _ = output::line(line + &left);
            }
            ProgressFormat::Live => {
                self.print_round(outcome, metrics);
                if let Some((id, solved)) = outcome.newly_solved.last()
                    && let Some(p) = outcome.problems.iter().find(|p| p.problem.id == *id)
                {
                    self.show_solved(&p.problem, &solved.proof);
                }
                self.show_review(outcome);
            }
        }
        self.warn_of_malformed(outcome.round, metrics);
        if now >= 1.0 && before.is_none_or(|before| before < 1.0) {
            eprintln!("every target is solved: later rounds find no new ones (Ctrl-C stops the run)");
        }
    }

    /// Warns once of each role whose completions are almost all malformed.
    fn warn_of_malformed(&mut self, round: u32, metrics: &MetricValues) {
        for role in [Role::Conjecturer, Role::Solver] {
            if !self.warned.contains(&role)
                && let Some(text) = mostly_malformed(role, round, metrics)
            {
                self.warned.push(role);
                eprintln!("{} {text}", paint(Tone::Bad, "warning:"));
            }
        }
    }

    /// Prints the line of a round if targets were solved since the last line, within the budget of lines.
    fn print_round(&mut self, outcome: &RoundOutcome, metrics: &MetricValues) {
        self.newly_solved += outcome.newly_solved.len();
        let columns = terminal::columns();
        let line = match columns >= WIDE {
            true => line(outcome, metrics, self.newly_solved),
            false => short_line(outcome, metrics, self.newly_solved, columns),
        };
        let tone = if self.newly_solved == 0 { Tone::Quiet } else { Tone::Good };
        let line = paint(tone, &line);
        let is_first = self.round_lines.last.is_none();
        if is_first {
            eprintln!("selected rounds (+N: newly solved targets; conjectures: accepted/requested):");
        }
        if (is_first || self.newly_solved > 0) && self.round_lines.is_due(self.pace.done(0.0)) {
            eprintln!("{line}");
            (self.newly_solved, self.unprinted) = (0, None);
        } else {
            self.unprinted = Some(line);
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
            let scores = format!(
                "relevance {relevance} of 5, redundancy {redundancy} of 1, complexity {complexity} of 4"
            );
            second.set(vec![(Some(Tone::Quiet), format!("              {scores}"))]);
        }
    }
}

fn print_json(metrics: &MetricValues) {
    if let Ok(line) = serde_json::to_string(metrics) {
        // A closed pipe does not stop the run.
        let _ = output::line(line);
    }
}

/// Returns a message if almost no completion of a role has the form that the formal system reads.
fn mostly_malformed(role: Role, round: u32, metrics: &MetricValues) -> Option<String> {
    let get = |name: &str| metrics.scalars.get(name).copied().unwrap_or(0.0);
    let (what, table, defects, all, malformed) = match role {
        Role::Conjecturer => {
            let (all, malformed) = (get("conjectures_asked"), get("conjectures_malformed"));
            ("conjectures", "conjectures", "conjecture_defects/", all, malformed)
        }
        Role::Solver => {
            let malformed = get("target_rollouts_malformed") + get("conjecture_rollouts_malformed");
            ("proofs", "rollouts", "proof_defects/", get("generations_of_round"), malformed)
        }
        // A separate check concerns the Guide (`guide.min_readable`).
        Role::Guide => return None,
    };
    if all < MANY || malformed < 0.95 * all {
        return None;
    }
    let kinds = metrics.scalars.iter().filter_map(|(name, n)| Some((name.strip_prefix(defects)?, *n)));
    let most = kinds.max_by(|a, b| a.1.total_cmp(&b.1)).map_or("unknown", |(kind, _)| kind);
    Some(format!(
        "{malformed} of the {all} {what} of round {round} are malformed, most often `{most}`: the completions are in \
         rounds/{round:04}/{table}.parquet"
    ))
}

/// Formats a finished round in 80 columns, or without the conjectures in fewer. `newly` targets were solved since the
/// last line.
fn short_line(outcome: &RoundOutcome, metrics: &MetricValues, newly: usize, columns: usize) -> String {
    let get = |name: &str| metrics.scalars.get(name).copied().unwrap_or(0.0);
    let mut out = format!(
        "round {:>4}  ever solved {:4.1}% ({newly:+})  pass@1 {:4.1}%",
        outcome.round,
        100.0 * get("cumulative_solve_rate"),
        100.0 * get("target_solve_rate"),
    );
    let seconds = format!("  {:.1} s", get("time_round_s"));
    let conjectures = format!("  conjectures {}/{}", get("conjectures_accepted"), outcome.conjectures.len());
    if !outcome.conjectures.is_empty() && out.len() + conjectures.len() + seconds.len() <= columns {
        out.push_str(&conjectures);
    }
    out + &seconds
}

/// Formats a finished round as one line. `newly` targets were solved since the last line.
fn line(outcome: &RoundOutcome, metrics: &MetricValues, newly: usize) -> String {
    let get = |name: &str| metrics.scalars.get(name).copied();
    let rate = |name: &str| get(name).map_or_else(|| "    -".to_owned(), |x| format!("{:5.1}", 100.0 * x));
    let mut out = format!(
        "round {:>4}  generations {:>9}  ever solved {}% ({newly:+})  this round pass@1 {}%",
        outcome.round,
        grouped(get("generations").unwrap_or(0.0)),
        rate("cumulative_solve_rate"),
        rate("target_solve_rate"),
    );
    if !outcome.conjectures.is_empty() {
        out.push_str(&format!(
            "  conjectures {}/{} accepted, {} solved",
            get("conjectures_accepted").unwrap_or(0.0),
            outcome.conjectures.len(),
            get("conjectures_solved").unwrap_or(0.0),
        ));
    }
    if let Some(share) = get("conjecture_share_padded") {
        out.push_str(&format!(", {:.0}% padded", 100.0 * share));
    }
    // Not every method has a Guide, and not every round has a review.
    if let Some(score) = get("r_guide") {
        out.push_str(&format!("  Guide's score {score:.2} of 8"));
    }
    if let Some(entropy) = get("solver_entropy") {
        out.push_str(&format!("  entropy {entropy:.2}"));
    }
    out.push_str(&format!("  {:.1} s", get("time_round_s").unwrap_or(0.0)));
    out
}

/// Draws the latest rates as a sparkline.
fn sparkline(rates: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let tail = &rates[rates.len().saturating_sub(40)..];
    let (low, high) = tail.iter().fold((f64::MAX, f64::MIN), |(l, h), &r| (l.min(r), h.max(r)));
    let level = |r: f64| if high > low { ((r - low) / (high - low) * 7.0).round() as usize } else { 3 };
    tail.iter().map(|&r| BARS[level(r).min(7)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_that_almost_all_completions_of_a_role_are_malformed() {
        let mut metrics = MetricValues::new(0);
        metrics.set("conjectures_asked", 181.0);
        metrics.set("conjectures_malformed", 180.0);
        metrics.set("conjecture_defects/form", 179.0);
        metrics.set("conjecture_defects/length", 1.0);
        let told = mostly_malformed(Role::Conjecturer, 7, &metrics);
        let expected = "180 of the 181 conjectures of round 7 are malformed, most often `form`: the completions are in \
                        rounds/0007/conjectures.parquet";
        assert_eq!(told.as_deref(), Some(expected));
        assert_eq!(mostly_malformed(Role::Solver, 7, &metrics), None);
        metrics.set("conjectures_malformed", 150.0);
        assert_eq!(mostly_malformed(Role::Conjecturer, 7, &metrics), None);
    }

    #[test]
    fn lines_are_spread_over_a_run_of_any_length() {
        for rounds in [1u32, 3, 10, 40, 1000, 100_000] {
            let mut budget = LineBudget::new(ROUND_LINES);
            let done = |round: u32| f64::from(round + 1) / f64::from(rounds);
            let printed: Vec<u32> = (0..rounds).filter(|round| budget.is_due(done(*round))).collect();
            assert!(printed.len() <= 1 + ROUND_LINES as usize, "{rounds}: {printed:?}");
            assert!(printed.len() >= rounds.min(ROUND_LINES / 2) as usize, "{rounds}: {printed:?}");
        }
    }
}
