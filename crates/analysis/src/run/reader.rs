//! Reads a run's directory into plain data.
//!
//! Most data come from the rounds' metrics. Only the columns that figures need are read from tables, and texts are read
//! only from a few rounds, so that reading a long run takes seconds. Damaged files are left out and noted.

use super::columns::{ConjectureScores, ConjectureText, ProblemTally, ProblemText, ProofText, ReviewText};
use super::table_rows::TableRows;
use super::{
    EvaluationData, RunData, ShownConjecture, SolvedExample, StatementDisplay, TargetHistory, TargetRound,
};
use crate::baseline::Baseline;
use sgs_rundir::rows::{ConjectureRowStatus, ProblemKind};
use sgs_rundir::{PublishedRound, RunView};
use sgs_selfplay::{ProblemId, Verdict};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// Maximum number of rounds with examples of conjectures, and of conjectures from each of them.
const EXAMPLES: (usize, usize) = (12, 8);

/// Maximum number of solved targets with proofs, latest first.
const SOLVED: usize = 200;

/// Maximum number of rollouts that are searched for proofs.
const SEARCHED: usize = 200_000;

/// Formatter of statements and proofs. Without one, they are shown unchanged.
pub type Display<'a> = Option<&'a dyn StatementDisplay>;

fn shown(display: Display<'_>, statement: &str) -> String {
    display.map_or_else(|| statement.to_owned(), |d| d.statement(statement))
}

/// Reads a run that is finished, interrupted or in progress. Files that cannot be read are noted in [`RunData::notes`].
pub fn read_run(path: &Path, display: Display<'_>) -> Result<RunData, sgs_rundir::Error> {
    let mut reader = RunReader::open(path, display)?;
    reader.update()?;
    Ok(reader.run)
}

/// Reads only the configuration, the metrics and the evaluations of a run, which takes milliseconds. Data that cannot be
/// read are noted in [`RunData::notes`].
pub fn read_metrics(path: &Path) -> Result<RunData, sgs_rundir::Error> {
    let mut reader = RunReader::open(path, None)?;
    for round in reader.view.rounds()? {
        reader.read_round_metrics(&round);
    }
    reader.with_evaluations()
}

/// Reads the metrics of a run, its targets with the rounds that solved them, and its evaluations, without texts. Data
/// that cannot be read are noted in [`RunData::notes`].
pub fn read_results(path: &Path) -> Result<RunData, sgs_rundir::Error> {
    let mut reader = RunReader::open(path, None)?;
    for round in reader.view.rounds()? {
        if reader.read_round_metrics(&round) {
            reader.read_targets(&round);
        }
    }
    reader.with_evaluations()
}

/// Reads a run repeatedly while it grows. The tables of each round are read only once.
pub struct RunReader<'a> {
    view: RunView,
    display: Display<'a>,
    run: RunData,
    seen: BTreeSet<u32>,
    index: HashMap<ProblemId, usize>,
    problems: Problems,
    /// Solved targets with a proof, by name.
    proofs: HashMap<String, SolvedExample>,
    tables: TableRows,
}

impl<'a> RunReader<'a> {
    /// Opens a run and reads its configuration. [`RunReader::update`] reads the rounds.
    pub fn open(path: &Path, display: Display<'a>) -> Result<Self, sgs_rundir::Error> {
        let view = RunView::open(path)?;
        let table = view.config();
        let mut tables = TableRows::default();
        if let Err(error) = &table {
            tables.note(format!("the configuration is left out: {error}"));
        }
        if let Err(error) = view.check_config() {
            tables.note(error.to_string());
        }
        let table = table.unwrap_or_default();
        let text = |key: &str| table.get(key)?.as_str();
        let method = text("method").and_then(|name| name.parse().ok());
        let config = view.config_text()?;
        let run = RunData {
            name: name_of(path),
            method,
            label: text("label").map(str::to_owned).filter(|label| !label.is_empty()),
            baseline: Baseline::of(&config, method),
            size: text("size").map(str::to_owned),
            seed: table.get("seed").and_then(|seed| seed.as_integer()?.try_into().ok()),
            version: table.get("frozen").and_then(|f| Some(f.get("version")?.as_str()?.to_owned())),
            config,
            ..RunData::default()
        };
        Ok(Self {
            view,
            display,
            run,
            seen: BTreeSet::new(),
            index: HashMap::new(),
            problems: Problems::new(),
            proofs: HashMap::new(),
            tables,
        })
    }

    /// Reads the metrics of a round. Returns `false` if they cannot be read, which is noted.
    fn read_round_metrics(&mut self, round: &PublishedRound) -> bool {
        match round.metrics() {
            Ok(metrics) => self.run.rounds.push(metrics),
            Err(error) => {
                self.tables.note(format!("round {} is left out: {error}", round.round()));
                return false;
            }
        }
        true
    }

    /// Reads the evaluations, and returns the run with all notes.
    fn with_evaluations(mut self) -> Result<RunData, sgs_rundir::Error> {
        self.read_evaluations()?;
        self.run.notes = self.tables.notes().to_vec();
        Ok(self.run)
    }

    /// Returns the data read so far.
    pub fn run(&self) -> &RunData {
        &self.run
    }

    /// Reads the rounds and evaluations that were published since the last call, and whether the run has ended. Returns
    /// whether anything changed.
    pub fn update(&mut self) -> Result<bool, sgs_rundir::Error> {
        let published = self.view.rounds()?;
        let new: Vec<&PublishedRound> =
            published.iter().filter(|r| !self.seen.contains(&r.round())).collect();
        let evaluated = self.read_evaluations()?;
        let before = std::mem::replace(&mut self.run.ended, self.view.why_ended());
        if new.is_empty() && !evaluated && before == self.run.ended {
            return Ok(false);
        }
        for round in new {
            self.seen.insert(round.round());
            // Without its metrics, the tables may be those of another round.
            if self.read_round_metrics(round) {
                self.read_targets(round);
                self.count_reviews(round);
            }
        }
        let is_read = |round: &&PublishedRound| self.run.rounds.iter().any(|m| m.round == round.round());
        let read: Vec<PublishedRound> = published.iter().filter(is_read).cloned().collect();
        self.run.shown_conjectures = self.read_conjectures(&read);
        self.run.solved = self.read_solved(&read);
        self.run.damages = self.tables.notes().to_vec();
        self.run.notes.clone_from(&self.run.damages);
        note_gaps(&published, &mut self.run.notes);
        note_unrated(&mut self.run);
        let all = self.run.targets.iter().filter(|t| t.solved_round.is_some()).count();
        let shown = self.run.solved.len();
        if shown < all {
            self.run.notes.push(format!("proofs are shown for the last {shown} of {all} solved targets"));
        }
        Ok(true)
    }

    /// Reads the evaluations that were published since the last call. Returns whether there were any.
    fn read_evaluations(&mut self) -> Result<bool, sgs_rundir::Error> {
        let known = self.run.evaluations.iter().map(|e| e.after).collect::<BTreeSet<_>>();
        let mut is_new = false;
        for evaluation in self.view.evaluations()?.iter().filter(|e| !known.contains(&e.after)) {
            match EvaluationData::read(evaluation) {
                Ok(data) => {
                    self.run.evaluations.push(data);
                    is_new = true;
                }
                Err(error) => {
                    let note =
                        format!("the evaluation after {} rounds is left out: {error}", evaluation.after);
                    self.tables.note(note);
                }
            }
        }
        self.run.evaluations.sort_by_key(|e| e.after);
        Ok(is_new)
    }
}

fn name_of(path: &Path) -> String {
    let full = path.canonicalize();
    let name = full.as_deref().unwrap_or(path).file_name();
    name.map_or_else(|| "run".to_owned(), |n| n.to_string_lossy().into_owned())
}

fn note_gaps(published: &[PublishedRound], notes: &mut Vec<String>) {
    for pair in published.windows(2) {
        if let [a, b] = pair
            && b.round() > a.round() + 1
        {
            let (first, last) = (a.round() + 1, b.round() - 1);
            notes.push(match first == last {
                true => format!("round {first} is missing"),
                false => format!("rounds {first} to {last} are missing"),
            });
        }
    }
}

/// Notes the rounds that are missing from the curve of the cumulative solve rate.
fn note_unrated(run: &mut RunData) {
    let unrated = run.rounds.len() - run.curve().len();
    if unrated > 0 {
        let all = run.rounds.len();
        run.notes.push(format!(
            "{unrated} of {all} rounds have no cumulative solve rate: they are missing from curves and fits"
        ));
    }
}

/// Canonical statements and contexts of the targets.
type Problems = HashMap<String, (Arc<str>, Arc<str>)>;

const PROBLEMS: &str = "problems.parquet";
const CONJECTURES: &str = "conjectures.parquet";
const REVIEWS: &str = "reviews.parquet";
const ROLLOUTS: &str = "rollouts.parquet";

impl RunReader<'_> {
    fn read_targets(&mut self, round: &PublishedRound) {
        let mut tallies: Vec<ProblemTally> = Vec::new();
        self.tables.each(round, PROBLEMS, |row: ProblemTally| {
            if row.kind == ProblemKind::Target {
                tallies.push(row);
            }
            true
        });
        let targets = &mut self.run.targets;
        let before = targets.len();
        for row in tallies {
            let at = *self.index.entry(row.id.clone()).or_insert_with(|| {
                targets.push(TargetHistory { id: row.id.as_str().to_owned(), ..TargetHistory::default() });
                targets.len() - 1
            });
            targets[at].enter(round.round(), &row);
        }
        if targets.len() > before {
            self.read_target_texts(round);
        }
    }

    fn count_reviews(&mut self, round: &PublishedRound) {
        let reviews = &mut self.run.reviews;
        self.tables.each(round, CONJECTURES, |row: ConjectureScores| {
            if let Some(score) = row.r_guide {
                let is_rewarded = row.r_solve.is_some_and(|reward| reward > 0.0);
                reviews.reviewed += 1;
                reviews.rewarded += u64::from(is_rewarded);
                reviews.removed += u64::from(is_rewarded && score == 0.0 && !row.review_failed);
            }
            true
        });
    }

    /// Reads statements of the targets that are new in a round.
    fn read_target_texts(&mut self, round: &PublishedRound) {
        let (targets, index, problems) = (&mut self.run.targets, &self.index, &mut self.problems);
        let display = self.display;
        self.tables.each(round, PROBLEMS, |row: ProblemText| {
            let at = (row.kind == ProblemKind::Target).then(|| index.get(&row.id)).flatten();
            if let Some(target) = at.and_then(|&at| targets.get_mut(at))
                && target.statement.is_empty()
            {
                target.statement = shown(display, &row.statement);
                problems.insert(target.id.clone(), (row.statement, row.context));
            }
            true
        });
    }
}

impl TargetHistory {
    fn enter(&mut self, round: u32, row: &ProblemTally) {
        if row.proved > 0 && self.solved_round.is_none() {
            self.solved_round = Some(round);
        }
        self.rounds.push(TargetRound { round, judged: row.judged, proved: row.proved });
    }
}

/// Returns `count` indices spread evenly over `0..len`, including the first and the last.
fn spread(len: usize, count: usize) -> Vec<usize> {
    if len <= count {
        return (0..len).collect();
    }
    let last = (len - 1) as f64;
    (0..count).map(|i| (i as f64 * last / (count.max(2) - 1) as f64).round() as usize).collect()
}

const TRACKED_TARGETS: usize = 3;

impl RunReader<'_> {
    /// Reads examples of conjectures from some rounds, spread evenly.
    fn read_conjectures(&mut self, published: &[PublishedRound]) -> Vec<ShownConjecture> {
        let chosen = spread(published.len(), EXAMPLES.0);
        let tracked: HashSet<String> = longest_unsolved(&self.run).into_iter().collect();
        let mut examples = Vec::new();
        for round in chosen.into_iter().filter_map(|i| published.get(i)) {
            let mut all: Vec<ConjectureText> = self.tables.all(round, CONJECTURES);
            all.retain(|c| c.status == ConjectureRowStatus::Accepted || tracked.contains(c.target.as_str()));
            let keep = pick(&all, &tracked, EXAMPLES.1);
            let mut number = 0..;
            all.retain(|_| number.next().is_some_and(|i| keep.contains(&i)));
            let wanted: HashSet<ProblemId> = all.iter().map(|c| c.id.clone()).collect();
            let mut reviews: HashMap<ProblemId, ReviewText> = HashMap::new();
            self.tables.each(round, REVIEWS, |review: ReviewText| {
                let better = review.relevance.is_some() || !reviews.contains_key(&review.conjecture);
                if wanted.contains(&review.conjecture) && better {
                    reviews.insert(review.conjecture.clone(), review);
                }
                true
            });
            examples.extend(all.into_iter().map(|conjecture| {
                let review = reviews.remove(&conjecture.id);
                self.example(round.round(), conjecture, review)
            }));
        }
        examples
    }

    fn example(&self, round: u32, c: ConjectureText, review: Option<ReviewText>) -> ShownConjecture {
        let target = self.problems.get(c.target.as_str());
        let statement = c.statement.as_deref().map_or_else(|| c.text.clone(), |s| shown(self.display, s));
        let scores = review.as_ref().and_then(|r| Some([r.relevance?, r.redundancy?, r.complexity?]));
        ShownConjecture {
            round,
            target: c.target.as_str().to_owned(),
            target_statement: target.map_or_else(String::new, |(s, _)| shown(self.display, s)),
            statement,
            status: c.status.name().to_owned(),
            solve_rate: c.solve_rate,
            review: scores,
            review_text: review.map_or_else(String::new, |r| r.text),
            r_solve: c.r_solve,
            r_guide: c.r_guide,
            r_synth: c.r_synth,
        }
    }
}

/// Returns the targets that remained unsolved longest. Their conjectures are shown for all rounds.
fn longest_unsolved(run: &RunData) -> Vec<String> {
    let mut order: Vec<&TargetHistory> = run.targets.iter().collect();
    // Unsolved targets first, then those solved last.
    order.sort_by_key(|t| std::cmp::Reverse(t.solved_round.map_or(u64::MAX, u64::from)));
    order.into_iter().take(TRACKED_TARGETS).map(|t| t.id.clone()).collect()
}

/// Selects conjectures of a round: those for tracked targets, then alternately the best and the worst by R_synth.
fn pick(all: &[ConjectureText], tracked: &HashSet<String>, count: usize) -> HashSet<usize> {
    let mut keep: HashSet<usize> =
        (0..all.len()).filter(|&i| tracked.contains(all[i].target.as_str())).collect();
    let score = |i: usize| all[i].r_synth.or(all[i].r_guide).or(all[i].solve_rate).unwrap_or(0.0);
    let mut order: Vec<usize> = (0..all.len()).filter(|i| !keep.contains(i)).collect();
    order.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
    let mut order: std::collections::VecDeque<usize> = order.into();
    while keep.len() < count {
        let (best, worst) = (order.pop_front(), order.pop_back());
        if best.is_none() && worst.is_none() {
            break;
        }
        keep.extend(best);
        if keep.len() < count {
            keep.extend(worst);
        }
    }
    keep
}

impl RunReader<'_> {
    /// Reads the last solved targets with their proofs, latest first.
    fn read_solved(&mut self, published: &[PublishedRound]) -> Vec<SolvedExample> {
        let mut by_round: BTreeMap<u32, Vec<&TargetHistory>> = BTreeMap::new();
        for target in &self.run.targets {
            if let Some(round) = target.solved_round {
                by_round.entry(round).or_default().push(target);
            }
        }
        let (mut searched, mut shown) = (0, 0);
        for (number, solved) in by_round.iter().rev() {
            if shown >= SOLVED || searched >= SEARCHED {
                break;
            }
            let mut missing: HashMap<&str, &TargetHistory> = solved
                .iter()
                .filter(|t| !self.proofs.contains_key(&t.id))
                .map(|t| (t.id.as_str(), *t))
                .collect();
            shown += solved.len() - missing.len();
            let Some(round) = published.iter().find(|r| r.round() == *number) else { continue };
            if missing.is_empty() {
                continue;
            }
            let (proofs, problems, display) = (&mut self.proofs, &self.problems, self.display);
            self.tables.each(round, ROLLOUTS, |row: ProofText| {
                searched += 1;
                if row.verdict == Verdict::Proved
                    && let Some(target) = missing.remove(row.problem.as_str())
                {
                    let proof = row.proof.as_deref().unwrap_or_default();
                    let example = solved_example(*number, target, proof, problems, display);
                    proofs.insert(target.id.clone(), example);
                    shown += 1;
                }
                !missing.is_empty() && shown < SOLVED
            });
        }
        let mut found: Vec<SolvedExample> = self.proofs.values().cloned().collect();
        found.sort_by(|a, b| (b.round, &a.id).cmp(&(a.round, &b.id)));
        found.truncate(SOLVED);
        found
    }
}

fn solved_example(
    round: u32,
    target: &TargetHistory,
    proof: &str,
    problems: &Problems,
    display: Display<'_>,
) -> SolvedExample {
    let proof = match (display, problems.get(&target.id)) {
        (Some(display), Some((statement, context))) => display.proof(statement, context, proof),
        _ => proof.to_owned(),
    };
    let tally = target.rounds.iter().find(|r| r.round == round).map_or((0, 0), |r| (r.proved, r.judged));
    SolvedExample { round, id: target.id.clone(), statement: target.statement.clone(), proof, tally }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_indices_include_both_ends() {
        assert_eq!(spread(200, 3), [0, 100, 199]);
        assert_eq!(spread(2, 12), [0, 1]);
        assert_eq!(spread(0, 12), [] as [usize; 0]);
        assert_eq!(spread(9, 1), [0]);
    }
}
