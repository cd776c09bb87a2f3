//! A run's directory becomes plain data.
//!
//! Nearly everything comes from the rounds' metrics. Of the tables only the columns that a figure needs are read, and
//! texts only of a few rounds, so that a long run is read in seconds. What is damaged is left out and noted.

use super::columns::{Asked, ConjectureText, ProblemTally, ProblemText, ProofText, ReviewText};
use super::inventions::Inventor;
use super::{
    ConjectureExample, EvaluationData, RunData, SolvedExample, TargetHistory, TargetRound, config_search,
};
use sgs_rundir::rows::{ConjectureStatus, ProblemKind};
use sgs_rundir::table::{RowReader, TableRow};
use sgs_rundir::{PublishedRound, RunView};
use sgs_selfplay::{ProblemId, Verdict};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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
    /// What a statement is, whatever its variables are called; by default its text is all that is known of it.
    fn identity(&self, statement: &str, _context: &str) -> Identity {
        Identity { normal: statement.to_owned(), theorem: None }
    }
    /// Inferences of a proof in canonical text; by default its words.
    fn steps(&self, proof: &str) -> u32 {
        u32::try_from(proof.split_whitespace().count()).unwrap_or(u32::MAX)
    }
}

/// What a statement is, whatever its variables are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Equal for statements that differ in names alone.
    pub normal: String,
    /// The theorem before the statement's context that says the same.
    pub theorem: Option<String>,
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
    let mut reader = RunReader::open(path, options)?;
    reader.update()?;
    Ok(reader.run)
}

/// A run that is read again and again while it grows: the tables of each round are read once, so that following a
/// long run costs little.
pub struct RunReader<'a> {
    view: RunView,
    options: ReadOptions<'a>,
    run: RunData,
    seen: BTreeSet<u32>,
    index: HashMap<ProblemId, usize>,
    problems: Problems,
    /// What was invented so far.
    inventor: Inventor,
    /// Solved targets whose proofs were found, by name.
    proofs: HashMap<String, SolvedExample>,
    damage: Vec<String>,
}

impl<'a> RunReader<'a> {
    /// Reads the configuration; rounds are read by [`RunReader::update`].
    ///
    /// # Errors
    /// The directory is no run.
    pub fn open(path: &Path, options: &ReadOptions<'a>) -> Result<Self, ReadError> {
        let view = RunView::open(path)?;
        let config = view.config_text()?;
        let run = RunData {
            name: name_of(path),
            method: config_search::method(&config),
            size: config_search::size(&config),
            seed: config_search::seed(&config),
            version: config_search::version(&config),
            config,
            ..RunData::default()
        };
        Ok(Self {
            view,
            options: *options,
            run,
            seen: BTreeSet::new(),
            index: HashMap::new(),
            problems: Problems::default(),
            inventor: Inventor::default(),
            proofs: HashMap::new(),
            damage: Vec::new(),
        })
    }

    /// What was read so far.
    pub fn run(&self) -> &RunData {
        &self.run
    }

    /// Reads the rounds that were published since the last call; says whether there were any.
    ///
    /// # Errors
    /// The run is gone, or its rounds cannot be listed.
    pub fn update(&mut self) -> Result<bool, ReadError> {
        let published = self.view.rounds()?;
        let new: Vec<&PublishedRound> =
            published.iter().filter(|r| !self.seen.contains(&r.round())).collect();
        let evaluated = self.read_evaluations()?;
        if new.is_empty() && !evaluated {
            return Ok(false);
        }
        for round in new {
            match round.metrics() {
                Ok(metrics) => self.run.rounds.push(metrics),
                Err(error) => self.damage.push(format!("round {} is left out: {error}", round.round())),
            }
            self.read_targets(round);
            self.read_inventions(round);
            self.seen.insert(round.round());
        }
        self.run.inventions = self.inventor.inventions();
        self.run.conjectures = self.read_conjectures(&published);
        self.run.solved = self.read_solved(&published);
        self.run.notes.clone_from(&self.damage);
        note_gaps(&published, &mut self.run.notes);
        note_unrated(&mut self.run);
        let all = self.run.targets.iter().filter(|t| t.solved_round.is_some()).count();
        let shown = self.run.solved.len();
        if shown < all {
            self.run.notes.push(format!("proofs are shown for the last {shown} of {all} solved targets"));
        }
        Ok(true)
    }
}

impl RunReader<'_> {
    /// Reads the evaluations that were published since the last call; says whether there were any.
    fn read_evaluations(&mut self) -> Result<bool, ReadError> {
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
                    self.note_once(vec![note]);
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
            notes.push(format!("rounds {} to {} are missing", a.round() + 1, b.round() - 1));
        }
    }
}

/// Rounds that the curve of the cumulative solve rate passes over.
fn note_unrated(run: &mut RunData) {
    let unrated = run.rounds.len() - run.curve().len();
    if unrated > 0 {
        let all = run.rounds.len();
        run.notes.push(format!(
            "{unrated} of {all} rounds have no cumulative solve rate: curves and fits pass over them"
        ));
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
pub(super) fn each_row<R: TableRow>(
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

impl RunReader<'_> {
    fn read_targets(&mut self, round: &PublishedRound) {
        let mut fits: HashMap<ProblemId, bool> = HashMap::new();
        each_row(round, CONJECTURES, &mut self.damage, |row: Asked| {
            fits.insert(row.target, false);
            true
        });
        let mut tallies: Vec<ProblemTally> = Vec::new();
        each_row(round, PROBLEMS, &mut self.damage, |row: ProblemTally| {
            match (row.kind, &row.target) {
                (ProblemKind::Target, _) => tallies.push(row),
                (ProblemKind::Conjecture, Some(target)) => {
                    *fits.entry(target.clone()).or_default() |= row.selected
                }
                (ProblemKind::Conjecture, None) => {}
            }
            true
        });
        let targets = &mut self.run.targets;
        let mut has_new = false;
        for row in tallies {
            let at = *self.index.entry(row.id.clone()).or_insert_with(|| {
                has_new = true;
                targets.push(TargetHistory { id: row.id.as_str().to_owned(), ..TargetHistory::default() });
                targets.len() - 1
            });
            if let Some(target) = targets.get_mut(at) {
                target.enter(round.round(), &row, fits.get(&row.id).copied());
            }
        }
        if has_new {
            self.read_target_texts(round);
        }
    }

    fn read_inventions(&mut self, round: &PublishedRound) {
        let problems = &self.problems;
        let context =
            |target: &str| problems.of.get(target).map_or_else(|| "".into(), |(_, c)| Arc::clone(c));
        let (display, rollouts) = (self.options.display, self.options.rollouts_searched);
        self.inventor.read(round, display, rollouts, context, &mut self.damage);
    }

    /// Statements and features of the targets that a round brought in.
    fn read_target_texts(&mut self, round: &PublishedRound) {
        let (targets, index, problems) = (&mut self.run.targets, &self.index, &mut self.problems);
        let inventor = &mut self.inventor;
        let options = &self.options;
        each_row(round, PROBLEMS, &mut self.damage, |row: ProblemText| {
            let at = (row.kind == ProblemKind::Target).then(|| index.get(&row.id)).flatten();
            if let Some(target) = at.and_then(|&at| targets.get_mut(at))
                && target.statement.is_empty()
            {
                target.statement = options.statement(&row.statement);
                target.features = row.features;
                inventor.target(&row.statement, &row.context, options.display);
                problems.of.insert(target.id.clone(), (row.statement, row.context));
            }
            true
        });
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

/// `count` indices spread evenly over `0..len`, first and last among them.
fn spread(len: usize, count: usize) -> Vec<usize> {
    if len <= count {
        return (0..len).collect();
    }
    let last = (len - 1) as f64;
    (0..count).map(|i| (i as f64 * last / (count.max(2) - 1) as f64).round() as usize).collect()
}

const TRACKED_TARGETS: usize = 3;

impl RunReader<'_> {
    /// Examples of the conjectures of some rounds, spread evenly.
    fn read_conjectures(&mut self, published: &[PublishedRound]) -> Vec<ConjectureExample> {
        let chosen = spread(published.len(), self.options.example_rounds);
        let tracked: HashSet<String> = longest_unsolved(&self.run).into_iter().collect();
        let mut examples = Vec::new();
        // Damage of these tables was noted when the rounds were new, or is noted here once.
        let mut damage = Vec::new();
        for round in chosen.into_iter().filter_map(|i| published.get(i)) {
            let mut all: Vec<ConjectureText> = rows(round, CONJECTURES, &mut damage);
            all.retain(|c| c.status == ConjectureStatus::Accepted || tracked.contains(c.target.as_str()));
            let keep = pick(&all, &tracked, self.options.conjectures_per_round);
            let picked: Vec<ConjectureText> =
                all.into_iter().enumerate().filter(|(i, _)| keep.contains(i)).map(|(_, c)| c).collect();
            let wanted: HashSet<ProblemId> = picked.iter().map(|c| c.id.clone()).collect();
            let mut reviews: HashMap<ProblemId, ReviewText> = HashMap::new();
            each_row(round, REVIEWS, &mut damage, |review: ReviewText| {
                let better = review.relevance.is_some() || !reviews.contains_key(&review.conjecture);
                if wanted.contains(&review.conjecture) && better {
                    reviews.insert(review.conjecture.clone(), review);
                }
                true
            });
            for conjecture in picked {
                let review = reviews.remove(&conjecture.id);
                examples.push(example(round.round(), conjecture, review, &self.problems, &self.options));
            }
        }
        self.note_once(damage);
        examples
    }

    fn note_once(&mut self, damage: Vec<String>) {
        for note in damage {
            if !self.damage.contains(&note) {
                self.damage.push(note);
            }
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

impl RunReader<'_> {
    /// The latest solved targets with their proofs, newest first.
    fn read_solved(&mut self, published: &[PublishedRound]) -> Vec<SolvedExample> {
        let mut by_round: BTreeMap<u32, Vec<&TargetHistory>> = BTreeMap::new();
        for target in &self.run.targets {
            if let Some(round) = target.solved_round {
                by_round.entry(round).or_default().push(target);
            }
        }
        let (mut searched, mut shown, mut damage) = (0, 0, Vec::new());
        for (number, solved) in by_round.iter().rev() {
            if shown >= self.options.solved || searched >= self.options.rollouts_searched {
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
            let (proofs, problems, options) = (&mut self.proofs, &self.problems, &self.options);
            each_row(round, ROLLOUTS, &mut damage, |row: ProofText| {
                searched += 1;
                if row.verdict == Verdict::Proved
                    && let Some(target) = missing.remove(row.problem.as_str())
                {
                    let proof = row.proof.as_deref().unwrap_or_default();
                    let example = solved_example(*number, target, proof, problems, options);
                    proofs.insert(target.id.clone(), example);
                    shown += 1;
                }
                !missing.is_empty() && shown < options.solved
            });
        }
        self.note_once(damage);
        let mut found: Vec<SolvedExample> = self.proofs.values().cloned().collect();
        found.sort_by(|a, b| (b.round, &a.id).cmp(&(a.round, &b.id)));
        found.truncate(self.options.solved);
        found
    }
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
