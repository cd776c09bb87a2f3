//! A run's directory becomes plain data.
//!
//! Nearly everything comes from the rounds' metrics. Of the tables only the columns that a figure needs are read, and
//! texts only of a few rounds, so that a long run is read in seconds. What is damaged is left out and noted.

use super::{ConjectureExample, RunData, SolvedExample, TargetHistory, TargetRound, config_search};
use sgs_rundir::rows::{ConjectureStatus, ProblemKind};
use sgs_rundir::table::{RowReader, TableRow};
use sgs_rundir::{PublishedRound, RunView, table_row};
use sgs_selfplay::{Features, ProblemId, Verdict};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// Why a directory cannot be read as a run.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It holds no run, or its list of rounds cannot be read.
    #[error(transparent)]
    Run(#[from] sgs_rundir::Error),
}

/// How statements and proofs are shown to people.
pub trait Display {
    /// A statement.
    fn statement(&self, statement: &str) -> String;
    /// A proof in canonical text, given the problem's canonical statement and context.
    fn proof(&self, statement: &str, context: &str, proof: &str) -> String;
}

/// What to read.
#[derive(Clone, Copy)]
pub struct ReadOptions<'a> {
    /// How statements and proofs are shown; as they stand if absent.
    pub display: Option<&'a dyn Display>,
    /// At most this many rounds show examples of conjectures.
    pub example_rounds: usize,
    /// At most this many conjectures of each of these rounds.
    pub conjectures_per_round: usize,
    /// At most this many solved targets with proofs, the latest first.
    pub solved: usize,
    /// At most this many rows of rollouts are searched for proofs.
    pub rollouts_searched: usize,
}

impl Default for ReadOptions<'_> {
    fn default() -> Self {
        Self {
            display: None,
            example_rounds: 12,
            conjectures_per_round: 8,
            solved: 200,
            rollouts_searched: 200_000,
        }
    }
}

impl ReadOptions<'_> {
    fn statement(&self, statement: &str) -> String {
        self.display.map_or_else(|| statement.to_owned(), |d| d.statement(statement))
    }

    fn proof(&self, statement: &str, context: &str, proof: &str) -> String {
        self.display.map_or_else(|| proof.to_owned(), |d| d.proof(statement, context, proof))
    }
}

/// Reads a run, whether it is finished, interrupted or still going on. What cannot be read is noted in
/// [`RunData::notes`].
///
/// # Errors
/// The directory is no run, or its rounds cannot be listed.
pub fn read_run(path: &Path, options: &ReadOptions<'_>) -> Result<RunData, ReadError> {
    let view = RunView::open(path)?;
    let config = view.config_text()?;
    let mut run = RunData {
        name: name_of(path),
        method: config_search::method(&config),
        size: config_search::size(&config),
        seed: config_search::seed(&config),
        version: config_search::version(&config),
        config,
        ..RunData::default()
    };
    let published = view.rounds()?;
    for round in &published {
        match round.metrics() {
            Ok(metrics) => run.rounds.push(metrics),
            Err(error) => run.notes.push(format!("round {} is left out: {error}", round.round())),
        }
    }
    note_gaps(&published, &mut run.notes);
    let mut problems = Problems::default();
    read_targets(&published, &mut run, &mut problems, options);
    read_conjectures(&published, &mut run, &problems, options);
    read_solved(&published, &mut run, &problems, options);
    Ok(run)
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
            notes.push(format!("rounds {} to {} are missing", a.round() + 1, b.round() - 1));
        }
    }
}

table_row! {
    /// The columns of a problem that change from round to round.
    struct ProblemTally {
        /// Name.
        pub id: ProblemId,
        /// Target or conjecture.
        pub kind: ProblemKind,
        /// Rollouts with a verdict.
        pub judged: u32,
        /// Rollouts with a proof.
        pub proved: u32,
        /// The target of a conjecture.
        pub target: Option<ProblemId>,
        /// Whether the Solver is trained on it.
        pub selected: bool,
    }
}

table_row! {
    /// The columns of a problem that stay.
    struct ProblemText {
        /// Name.
        pub id: ProblemId,
        /// Target or conjecture.
        pub kind: ProblemKind,
        /// Canonical statement.
        pub statement: Arc<str>,
        /// What a proof may use.
        pub context: Arc<str>,
        /// Tokens of the statement.
        pub length: u32,
        /// Tokens of the conclusion.
        pub conclusion_length: u32,
        /// Disjunctions in the conclusion.
        pub disjunctions: u32,
        /// Conjunctions in the conclusion.
        pub conjunctions: u32,
        /// Implications in the conclusion.
        pub implications: u32,
        /// Depth of the conclusion.
        pub depth: u32,
        /// Number of hypotheses.
        pub hypotheses: u32,
    }
}

table_row! {
    /// For which target a conjecture was asked.
    struct Asked {
        /// The target.
        pub target: ProblemId,
    }
}

table_row! {
    /// A conjecture with what a reader wants to see.
    struct ConjectureText {
        /// Its name.
        pub id: ProblemId,
        /// Its target.
        pub target: ProblemId,
        /// Whether it became a problem.
        pub status: ConjectureStatus,
        /// Its statement.
        pub statement: Option<Arc<str>>,
        /// The completion.
        pub text: String,
        /// Its solve rate.
        pub solve_rate: Option<f64>,
        /// `R_solve`.
        pub r_solve: Option<f64>,
        /// `R_guide`.
        pub r_guide: Option<f64>,
        /// `R_synth`.
        pub r_synth: Option<f64>,
    }
}

table_row! {
    /// A review with what a reader wants to see.
    struct ReviewText {
        /// The conjecture.
        pub conjecture: ProblemId,
        /// Relevance.
        pub relevance: Option<f64>,
        /// Redundancy.
        pub redundancy: Option<f64>,
        /// Complexity.
        pub complexity: Option<f64>,
        /// The completion.
        pub text: String,
    }
}

table_row! {
    /// A rollout with its text.
    struct ProofText {
        /// The problem.
        pub problem: ProblemId,
        /// The proof as it was read.
        pub proof: Option<Arc<str>>,
        /// The decision.
        pub verdict: Verdict,
    }
}

/// Canonical statements and contexts of the targets.
#[derive(Default)]
struct Problems {
    of: HashMap<String, (Arc<str>, Arc<str>)>,
}

/// The rows of one table of a round, as far as they can be read; the first damage is noted.
fn rows<R: TableRow>(round: &PublishedRound, table: &str, notes: &mut Vec<String>) -> Vec<R> {
    let mut out = Vec::new();
    each_row(round, table, notes, |row| {
        out.push(row);
        true
    });
    out
}

/// Visits the rows of a table until `visit` returns false or the table is damaged, which is noted.
fn each_row<R: TableRow>(
    round: &PublishedRound,
    table: &str,
    notes: &mut Vec<String>,
    mut visit: impl FnMut(R) -> bool,
) {
    let path = round.directory().join(table);
    let mut note = |error: sgs_rundir::Error| {
        const MOST_NOTES: usize = 20;
        if notes.len() < MOST_NOTES {
            notes.push(format!("part of round {} is left out: {error}", round.round()));
        }
    };
    match RowReader::<R>::open(&path) {
        Err(error) => note(error),
        Ok(reader) => {
            for row in reader {
                match row {
                    Err(error) => return note(error),
                    Ok(row) => {
                        if !visit(row) {
                            return;
                        }
                    }
                }
            }
        }
    }
}

const PROBLEMS: &str = "problems.parquet";
const CONJECTURES: &str = "conjectures.parquet";
const REVIEWS: &str = "reviews.parquet";
const ROLLOUTS: &str = "rollouts.parquet";

fn read_targets(
    published: &[PublishedRound],
    run: &mut RunData,
    problems: &mut Problems,
    options: &ReadOptions<'_>,
) {
    let mut index: HashMap<ProblemId, usize> = HashMap::new();
    for round in published {
        let mut fits: HashMap<ProblemId, bool> = HashMap::new();
        each_row(round, CONJECTURES, &mut run.notes, |row: Asked| {
            fits.insert(row.target, false);
            true
        });
        let mut tallies: Vec<ProblemTally> = Vec::new();
        each_row(round, PROBLEMS, &mut run.notes, |row: ProblemTally| {
            match (row.kind, &row.target) {
                (ProblemKind::Target, _) => tallies.push(row),
                (ProblemKind::Conjecture, Some(target)) => {
                    *fits.entry(target.clone()).or_default() |= row.selected
                }
                (ProblemKind::Conjecture, None) => {}
            }
            true
        });
        let mut has_new = false;
        for row in tallies {
            let at = *index.entry(row.id.clone()).or_insert_with(|| {
                has_new = true;
                run.targets
                    .push(TargetHistory { id: row.id.as_str().to_owned(), ..TargetHistory::default() });
                run.targets.len() - 1
            });
            if let Some(target) = run.targets.get_mut(at) {
                target.enter(round.round(), &row, fits.get(&row.id).copied());
            }
        }
        if has_new {
            read_target_texts(round, run, &index, problems, options);
        }
    }
}

impl TargetHistory {
    fn enter(&mut self, round: u32, row: &ProblemTally, conjecture: Option<bool>) {
        if row.proved > 0 && self.solved_round.is_none() {
            self.solved_round = Some(round);
        }
        self.rounds.push(TargetRound { round, judged: row.judged, proved: row.proved, conjecture });
    }
}

/// Statements and features of the targets that a round brought in.
fn read_target_texts(
    round: &PublishedRound,
    run: &mut RunData,
    index: &HashMap<ProblemId, usize>,
    problems: &mut Problems,
    options: &ReadOptions<'_>,
) {
    let targets = &mut run.targets;
    each_row(round, PROBLEMS, &mut run.notes, |row: ProblemText| {
        let at = (row.kind == ProblemKind::Target).then(|| index.get(&row.id)).flatten();
        if let Some(target) = at.and_then(|&at| targets.get_mut(at))
            && target.statement.is_empty()
        {
            target.statement = options.statement(&row.statement);
            target.features = Features {
                length: row.length,
                conclusion_length: row.conclusion_length,
                disjunctions: row.disjunctions,
                conjunctions: row.conjunctions,
                implications: row.implications,
                depth: row.depth,
                hypotheses: row.hypotheses,
            };
            problems.of.insert(target.id.clone(), (row.statement, row.context));
        }
        true
    });
}

/// `count` indices spread evenly over `0..len`, first and last among them.
fn spread(len: usize, count: usize) -> Vec<usize> {
    if len <= count {
        return (0..len).collect();
    }
    let last = (len - 1) as f64;
    (0..count).map(|i| (i as f64 * last / (count.max(2) - 1) as f64).round() as usize).collect()
}

const TRACKED_TARGETS: usize = 3;

fn read_conjectures(
    published: &[PublishedRound],
    run: &mut RunData,
    problems: &Problems,
    options: &ReadOptions<'_>,
) {
    let chosen = spread(published.len(), options.example_rounds);
    let tracked: HashSet<String> = longest_unsolved(run).into_iter().collect();
    for round in chosen.into_iter().filter_map(|i| published.get(i)) {
        let mut all: Vec<ConjectureText> = rows(round, CONJECTURES, &mut run.notes);
        all.retain(|c| c.status == ConjectureStatus::Accepted || tracked.contains(c.target.as_str()));
        let keep = pick(&all, &tracked, options.conjectures_per_round);
        let picked: Vec<ConjectureText> =
            all.into_iter().enumerate().filter(|(i, _)| keep.contains(i)).map(|(_, c)| c).collect();
        let wanted: HashSet<ProblemId> = picked.iter().map(|c| c.id.clone()).collect();
        let mut reviews: HashMap<ProblemId, ReviewText> = HashMap::new();
        each_row(round, REVIEWS, &mut run.notes, |review: ReviewText| {
            let better = review.relevance.is_some() || !reviews.contains_key(&review.conjecture);
            if wanted.contains(&review.conjecture) && better {
                reviews.insert(review.conjecture.clone(), review);
            }
            true
        });
        for conjecture in picked {
            let review = reviews.remove(&conjecture.id);
            run.conjectures.push(example(round.round(), conjecture, review, problems, options));
        }
    }
}

/// The targets that stayed unsolved longest: their conjectures are followed over the rounds.
fn longest_unsolved(run: &RunData) -> Vec<String> {
    let mut order: Vec<&TargetHistory> = run.targets.iter().collect();
    // Never solved first, then the latest; targets with fit conjectures before those without.
    let fit = |t: &TargetHistory| t.rounds.iter().filter(|r| r.conjecture == Some(true)).count();
    order.sort_by_key(|t| std::cmp::Reverse((t.solved_round.map_or(u64::MAX, u64::from), fit(t))));
    order.into_iter().take(TRACKED_TARGETS).map(|t| t.id.clone()).collect()
}

/// Which conjectures of a round to show: those of tracked targets, then the best and the worst by R_synth in turn.
fn pick(all: &[ConjectureText], tracked: &HashSet<String>, count: usize) -> HashSet<usize> {
    let mut keep: HashSet<usize> =
        (0..all.len()).filter(|&i| all.get(i).is_some_and(|c| tracked.contains(c.target.as_str()))).collect();
    let score = |i: usize| all.get(i).and_then(|c| c.r_synth.or(c.r_guide).or(c.solve_rate)).unwrap_or(0.0);
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

fn example(
    round: u32,
    c: ConjectureText,
    review: Option<ReviewText>,
    problems: &Problems,
    options: &ReadOptions<'_>,
) -> ConjectureExample {
    let target_statement =
        problems.of.get(c.target.as_str()).map_or_else(String::new, |(s, _)| options.statement(s));
    let statement = c.statement.as_deref().map_or_else(|| c.text.clone(), |s| options.statement(s));
    let scores = review.as_ref().and_then(|r| Some([r.relevance?, r.redundancy?, r.complexity?]));
    ConjectureExample {
        round,
        target: c.target.as_str().to_owned(),
        target_statement,
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

fn read_solved(
    published: &[PublishedRound],
    run: &mut RunData,
    problems: &Problems,
    options: &ReadOptions<'_>,
) {
    let mut by_round: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, target) in run.targets.iter().enumerate() {
        if let Some(round) = target.solved_round {
            by_round.entry(round).or_default().push(i);
        }
    }
    let mut searched = 0;
    let mut found: Vec<SolvedExample> = Vec::new();
    for (number, solved) in by_round.iter().rev() {
        let Some(round) = published.iter().find(|r| r.round() == *number) else { continue };
        if found.len() >= options.solved || searched >= options.rollouts_searched {
            break;
        }
        let mut missing: HashMap<&str, &TargetHistory> =
            solved.iter().filter_map(|&i| run.targets.get(i)).map(|t| (t.id.as_str(), t)).collect();
        each_row(round, ROLLOUTS, &mut run.notes, |row: ProofText| {
            searched += 1;
            if row.verdict == Verdict::Proved
                && let Some(target) = missing.remove(row.problem.as_str())
            {
                let proof = row.proof.as_deref().unwrap_or_default();
                found.push(solved_example(*number, target, proof, problems, options));
            }
            !missing.is_empty() && found.len() < options.solved
        });
    }
    let all = run.targets.iter().filter(|t| t.solved_round.is_some()).count();
    if found.len() < all && all > 0 {
        run.notes.push(format!("proofs are shown for the last {} of {all} solved targets", found.len()));
    }
    found.sort_by(|a, b| (b.round, &a.id).cmp(&(a.round, &b.id)));
    run.solved = found;
}

fn solved_example(
    round: u32,
    target: &TargetHistory,
    proof: &str,
    problems: &Problems,
    options: &ReadOptions<'_>,
) -> SolvedExample {
    let proof = problems
        .of
        .get(&target.id)
        .map_or_else(|| proof.to_owned(), |(statement, context)| options.proof(statement, context, proof));
    let tally = target.rounds.iter().find(|r| r.round == round).map_or((0, 0), |r| (r.proved, r.judged));
    SolvedExample { round, id: target.id.clone(), statement: target.statement.clone(), proof, tally }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_holds_both_ends() {
        assert_eq!(spread(200, 3), [0, 100, 199]);
        assert_eq!(spread(2, 12), [0, 1]);
        assert_eq!(spread(0, 12), [] as [usize; 0]);
        assert_eq!(spread(9, 1), [0]);
    }
}
