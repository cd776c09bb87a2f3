//! Metamath as a [`FormalSystem`]: prompts, parsers, features and the judge.

use crate::align::rename_to_match;
use crate::assertion_index::{AssertionIndex, Triviality};
use crate::composer::{Composer, general, inferences};
use crate::congruences::Congruences;
use crate::database::StatementId;
use crate::features::{Connectives, features};
use crate::judge::Judge;
use crate::notation;
use crate::proof::ProofOp;
use crate::proof_text::{ProofError, read_steps, write_steps};
use crate::rubric::{is_padded, review_of_score, rubric};
use crate::slice::{self, SliceError};
use crate::splits::{SplitRule, split};
use crate::statement::{
    Statement, StatementLimits, StatementText, context_limit, malformed, normal_form_of_rule,
};
use crate::sub_proof::{renumber, sub_proofs_by_size};
use crate::theorem_proofs::TheoremProof;
use crate::theory::{RuleId, Theory, TheoryError};
use crate::tokens::{self, CONJECTURE, CONJECTURER, GUIDE, HYPOTHESES, PROOF, REVIEW, SOLVER};
use crate::unify::{Goal, ProofLimits, ProofStep, Unifier, judgement, later_syntax};
use sgs_base::random::SeededRng;
use sgs_formal::{Condition, FormalSystem, Malformed, Prompt};
use sgs_selfplay::config::ComposedKind;
use sgs_selfplay::{FailedProof, Features, Judgement, ParsedConjecture, Problem, ProblemId, Review, Verdict};
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// The checkers of every database ([`FormalSystem::identity`]).
pub const IDENTITY: &str = "the unifier and the kernel";

const CONJECTURE_LIMITS: StatementLimits =
    StatementLimits { symbols: 200, hypotheses: HYPOTHESES, variables: 32 };

/// A review of a conjecture by the rubric.
#[derive(Clone, Debug, PartialEq)]
pub struct RubricReview {
    /// The review. Its score is the rubric's, rounded to an integer.
    pub review: Review,
    /// Whether the conjecture is padded ([`is_padded`]).
    pub is_padded: bool,
}

/// The embedded formal system, for one database.
pub struct Metamath {
    theory: Theory,
    connectives: Connectives,
    judges: Mutex<Vec<Judge>>,
    // These values are often created within a parallel iterator. Their creation must therefore not use Rayon, because a
    // worker that waits for a nested iterator runs other tasks meanwhile, and one of those would wait for the same
    // `OnceLock` forever.
    assertion_index: OnceLock<AssertionIndex>,
    composer: OnceLock<Composer>,
    congruences: OnceLock<Congruences>,
    targets: OnceLock<(Vec<RuleId>, usize)>,
}

impl Metamath {
    /// Creates the system for the slice of set.mm that ships with the program.
    pub fn shipped() -> Result<Self, SliceError> {
        let system = Self::new(Theory::new(slice::shipped()?)?);
        let targets = slice::shipped_targets(&system.theory)
            .ok_or_else(|| SliceError::Damaged("the list of its targets is not valid".to_owned()))?;
        Ok(Self { targets: targets.into(), ..system })
    }

    /// Creates the system for a database file and the files that it includes.
    pub fn read(path: &Path) -> Result<Self, TheoryError> {
        Ok(Self::new(Theory::read(path)?))
    }

    /// Creates the system for a theory.
    pub fn new(theory: Theory) -> Self {
        let connectives = Connectives::of(&theory);
        Self {
            theory,
            connectives,
            judges: Mutex::new(Vec::new()),
            assertion_index: OnceLock::new(),
            composer: OnceLock::new(),
            congruences: OnceLock::new(),
            targets: OnceLock::new(),
        }
    }

    /// Returns the theory.
    pub fn theory(&self) -> &Theory {
        &self.theory
    }

    /// Returns the theory's logical connectives.
    pub fn connectives(&self) -> &Connectives {
        &self.connectives
    }

    /// Returns a theorem of the database as a problem: its statement in normal form, to be proved from what precedes it.
    pub fn problem(&self, label: &str) -> Option<Problem> {
        let rule = self.theory.find(label)?;
        let statement = normal_form_of_rule(&self.theory, rule)?;
        let (id, statement) = (ProblemId::new(label), statement.text(&self.theory).into());
        Some(Problem { id, statement, context: label.into() })
    }

    /// Parses a user's statement as a problem. Accepts canonical text, human-readable notation, or a formula.
    pub fn problem_from_text(&self, id: &str, text: &str, context: &str) -> Result<Problem, Malformed> {
        context_limit(&self.theory, context)?;
        let statement = Statement::from_user_text(&self.theory, text, StatementLimits::default())?;
        let normal = self.normal_form(&statement)?;
        let statement = normal.text(&self.theory).into();
        Ok(Problem { id: ProblemId::new(id), statement, context: context.into() })
    }

    /// Returns the token of a context's position in the database. An unknown context counts as the end of the database.
    pub fn place_token(&self, context: &str) -> String {
        let rules = self.theory.rules().len();
        let before = context_limit(&self.theory, context)
            .map(|limit| self.theory.rules().partition_point(|r| r.statement < limit))
            .unwrap_or(rules);
        tokens::place_token(before, rules)
    }

    /// Converts a proof from canonical text to the form of the Solver's completions.
    pub fn proof_completion(&self, proof: &str) -> String {
        let token = |token: &str| match is_hypothesis_token(token) {
            true => token.to_owned(),
            false => tokens::label_token(token),
        };
        proof.split_ascii_whitespace().map(token).collect::<Vec<_>>().join(" ")
    }

    /// Reviews a conjecture by the rubric. Both statements are canonical texts.
    ///
    /// # Errors
    /// Returns an error if a text is not a statement of the database.
    pub fn rubric_review(&self, target: &str, conjecture: &str) -> Result<RubricReview, Malformed> {
        let (target, conjecture) = (self.statement(target)?, self.statement(conjecture)?);
        let review = review_of_score(rubric(&self.theory, &target, &conjecture));
        Ok(RubricReview { review, is_padded: is_padded(&target, &conjecture) })
    }

    /// Converts a review to the form of the Guide's completions, with scores rounded to integers.
    pub fn review_completion(review: &Review) -> String {
        format!(
            "relevance-{:.0} redundancy-{:.0} complexity-{:.0}",
            review.relevance, review.redundancy, review.complexity
        )
    }

    /// Returns the index of the database's assertions, which is created on first use.
    pub fn assertion_index(&self) -> &AssertionIndex {
        self.assertion_index.get_or_init(|| AssertionIndex::new(&self.theory))
    }

    /// Returns the composer of theorems, which is created on first use. It draws rules as the theorems of the database
    /// use them, except the targets.
    pub fn composer(&self) -> &Composer {
        self.composer.get_or_init(|| Composer::new(&self.theory, &self.lessons()))
    }

    /// Returns the generator of nested congruences, which is created on first use.
    fn congruences(&self) -> &Congruences {
        self.congruences.get_or_init(|| Congruences::new(&self.theory, &self.lessons()))
    }

    /// Returns the theorems of the database with their proofs, except the targets.
    fn lessons(&self) -> Vec<TheoremProof> {
        split(&self.theory, SplitRule::of(&self.theory)).lessons
    }

    /// Returns the targets of the database as [`split`] draws them, and the number of candidates. They are drawn on first
    /// use.
    pub fn targets(&self) -> &(Vec<RuleId>, usize) {
        self.targets.get_or_init(|| {
            let split = split(&self.theory, SplitRule::of(&self.theory));
            (split.targets, split.candidates)
        })
    }

    /// Renames the variables of a statement to match those of another. Returns `None` if one of the texts is malformed.
    fn rename_to_match(&self, statement: &str, other: &str) -> Option<String> {
        let (statement, other) = (self.statement(statement).ok()?, self.statement(other).ok()?);
        Some(rename_to_match(&self.theory, &statement, &other).text(&self.theory))
    }

    /// Calls `f` with a judge from the pool.
    fn with_judge<T>(&self, f: impl FnOnce(&mut Judge) -> T) -> T {
        let pool = || self.judges.lock().unwrap_or_else(PoisonError::into_inner);
        let mut judge = pool().pop().unwrap_or_default();
        let out = f(&mut judge);
        pool().push(judge);
        out
    }

    fn goal(&self, problem: &Problem) -> Result<Goal, String> {
        let before = context_limit(&self.theory, &problem.context).map_err(|e| e.to_string())?;
        let statement =
            self.statement(&problem.statement).map_err(|e| format!("the problem's statement: {e}"))?;
        Goal::new(&self.theory, &statement, before)
    }

    fn judge(&self, goal: &Result<Goal, String>, proof: &str) -> Judgement {
        let goal = match goal {
            Ok(goal) => goal,
            Err(reason) => return judgement(Verdict::Refused, None, reason.clone()),
        };
        match self.steps(goal.hypothesis_count(), proof) {
            Ok(steps) => self.with_judge(|j| j.decide(&self.theory, goal, &steps, ProofLimits::default())),
            Err(e) => {
                Judgement { verdict: Verdict::Malformed, reason: e.to_string(), step: e.step, micros: 0 }
            }
        }
    }

    /// Judges a proof. The time is measured from `start`, which is then set to the current time.
    fn judge_timed(&self, goal: &Result<Goal, String>, proof: &str, start: &mut Instant) -> Judgement {
        let judgement = self.judge(goal, proof);
        let begun = std::mem::replace(start, Instant::now());
        let micros = u64::try_from(start.duration_since(begun).as_micros()).unwrap_or(u64::MAX);
        Judgement { micros, ..judgement }
    }

    /// Returns the first theorem before `limit` that is equal up to the names of variables and the order of hypotheses.
    fn known(&self, statement: &Statement, limit: StatementId) -> Option<&str> {
        let id = self.assertion_index().find_equivalent(&self.theory, statement, limit)?;
        Some(self.theory.label(id))
    }

    fn normal_form(&self, statement: &Statement) -> Result<Statement, Malformed> {
        statement.normal_form(&self.theory, |_| None).ok_or_else(|| {
            Malformed::new("too-many-variables", "the database has too few variables to name them all")
        })
    }

    /// Returns a conjecture for `problem` from its statement in normal form. `limit` is the end of the problem's context.
    fn conjecture(&self, problem: &Problem, normal: &Statement, limit: StatementId) -> ParsedConjecture {
        let target = self.statement(&problem.statement).ok();
        ParsedConjecture {
            known: self.known(normal, limit).map(Into::into),
            lemma: None,
            rubric: target.as_ref().map_or(0.0, |target| rubric(&self.theory, target, normal)),
            padded: target.as_ref().map(|target| is_padded(target, normal)),
            statement: normal.text(&self.theory).into(),
        }
    }

    /// Returns the most general statement that steps prove from the rules before `limit`, in normal form.
    fn derive(
        &self,
        unifier: &mut Unifier,
        limit: StatementId,
        steps: &[ProofStep],
    ) -> Result<Statement, Malformed> {
        let theory = &self.theory;
        let (steps, used) = renumber(steps);
        let (normal, _) = general(theory, unifier, limit, &steps, used.len())
            .ok_or_else(|| Malformed::new("no-theorem", "the steps prove nothing, or nothing of use"))?;
        match self.assertion_index().triviality(theory, unifier, &normal, limit) {
            Some(Triviality::OneStep) => malformed("one-step", "the statement follows from one assertion"),
            Some(Triviality::Known) | None => Ok(normal),
        }
    }

    /// Parses a proof, in canonical text, of a problem with this number of hypotheses.
    fn steps(&self, hypotheses: usize, proof: &str) -> Result<Vec<ProofStep>, ProofError> {
        read_steps(&self.theory, hypotheses, proof.split_ascii_whitespace())
    }

    /// Parses a statement in canonical text.
    fn statement(&self, text: &str) -> Result<Statement, Malformed> {
        Statement::parse(&self.theory, text, StatementLimits::default())
    }
}

fn is_hypothesis_token(token: &str) -> bool {
    token.strip_prefix('h').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns the formulas of a rejection: `needs |- a, found |- b` gives `|- a |- b`.
fn formulas(error: &str) -> impl Iterator<Item = &str> {
    let formulas = error.find("|-").map_or("", |start| &error[start..]);
    let words = formulas.split_ascii_whitespace().filter(|word| *word != "found");
    // The comma is also a symbol.
    words.map(|word| word.strip_suffix(',').filter(|symbol| !symbol.is_empty()).unwrap_or(word))
}

/// Maximum number of attempts to compose a theorem of the requested length. Long proofs are rare.
const COMPOSE_ATTEMPTS: u64 = 10_000;

impl FormalSystem for Metamath {
    fn name(&self) -> &'static str {
        "metamath"
    }

    fn solver_prompt(&self, problem: &Problem) -> Prompt {
        Prompt::Raw(format!("{SOLVER} {} {} {PROOF}", self.place_token(&problem.context), problem.statement))
    }

    /// Returns the proof, with [`REVIEW`] before the step at fault, and the formulas that the error names. Words of the
    /// error have no tokens.
    fn repair_prompt(&self, problem: &Problem, failed: &FailedProof) -> Prompt {
        let Prompt::Raw(prompt) = self.solver_prompt(problem) else {
            unreachable!("invariant: Metamath prompts are raw")
        };
        let proof = self.proof_completion(&failed.proof);
        let mut steps: Vec<&str> = proof.split(' ').collect();
        if let Some(before) = failed.step.and_then(|step| step.checked_sub(1)) {
            steps.insert((before as usize).min(steps.len()), REVIEW);
        }
        let words = steps.into_iter().chain([REVIEW]).chain(formulas(&failed.error)).chain([PROOF]);
        Prompt::Raw(format!("{prompt} {}", words.collect::<Vec<_>>().join(" ")))
    }

    fn conjecturer_prompt(&self, condition: Condition<'_>) -> Prompt {
        let place = self.place_token(&condition.problem().context);
        Prompt::Raw(match condition {
            Condition::Target(target) => format!("{CONJECTURER} {place} {} {CONJECTURE}", target.statement),
            Condition::Solved { problem, proof } => {
                let proof = self.proof_completion(proof);
                format!("{CONJECTURER} {place} {} {PROOF} {proof} {CONJECTURE}", problem.statement)
            }
            Condition::Nothing(_) => format!("{CONJECTURER} {place} {CONJECTURE}"),
        })
    }

    fn guide_prompt(&self, target: &Problem, conjecture: &Problem) -> Prompt {
        let place = self.place_token(&target.context);
        let shown = self.rename_to_match(&conjecture.statement, &target.statement);
        let shown = shown.as_deref().unwrap_or(&conjecture.statement);
        Prompt::Raw(format!("{GUIDE} {place} {} {CONJECTURE} {shown} {REVIEW}", target.statement))
    }

    fn read_proof(&self, problem: &Problem, completion: &str) -> Result<String, Malformed> {
        let hypotheses = problem.statement.split_ascii_whitespace().filter(|t| *t == "$e").count();
        Ok(write_steps(&self.theory, &self.completed_steps(hypotheses, completion)?))
    }

    /// Returns the number of assertions that the proof cites. Hypotheses do not count.
    fn proof_steps(&self, proof: &str) -> u32 {
        let assertions = proof.split_ascii_whitespace().filter(|token| !is_hypothesis_token(token));
        u32::try_from(assertions.count()).unwrap_or(u32::MAX)
    }

    fn read_conjecture(
        &self,
        condition: Condition<'_>,
        completion: &str,
    ) -> Result<ParsedConjecture, Malformed> {
        let statement = Statement::parse(&self.theory, completion, CONJECTURE_LIMITS)?;
        let normal = self.normal_form(&statement)?;
        let context = &condition.problem().context;
        let limit = context_limit(&self.theory, context)?;
        if let Some(label) = later_syntax(&self.theory, &normal, limit) {
            let detail = format!("`{label}` is defined only after `{context}`");
            return malformed("later-symbol", detail);
        }
        Goal::new(&self.theory, &normal, limit)
            .map_err(|detail| Malformed::new("undeclared-variable", detail))?;
        Ok(self.conjecture(condition.problem(), &normal, limit))
    }

    fn derivation_prompt(&self, condition: Condition<'_>) -> Option<Prompt> {
        let Prompt::Raw(prompt) = self.conjecturer_prompt(condition) else { return None };
        Some(Prompt::Raw(format!("{prompt} {PROOF}")))
    }

    fn read_derivation(
        &self,
        condition: Condition<'_>,
        completion: &str,
    ) -> Result<ParsedConjecture, Malformed> {
        let (problem, steps) = (condition.problem(), self.completed_steps(HYPOTHESES, completion)?);
        let limit = context_limit(&self.theory, &problem.context)?;
        let normal = self.with_judge(|judge| self.derive(judge.unifier_mut(), limit, &steps))?;
        Ok(self.conjecture(problem, &normal, limit))
    }

    fn derive_from_part(
        &self,
        problem: &Problem,
        min_steps: u32,
        proof: &str,
    ) -> Result<ParsedConjecture, Malformed> {
        let steps = self.steps(HYPOTHESES, proof)?;
        let limit = context_limit(&self.theory, &problem.context)?;
        let is_long = |part: &Range<usize>| inferences(&steps[part.clone()]) >= min_steps as usize;
        self.with_judge(|judge| {
            let parts = sub_proofs_by_size(&self.theory, &steps).into_iter().filter(is_long);
            let derived = parts.map(|part| self.derive(judge.unifier_mut(), limit, &steps[part]));
            derived.flatten().next()
        })
        .map(|normal| self.conjecture(problem, &normal, limit))
        .ok_or_else(|| Malformed::new("no-theorem", "no part of the proof proves anything of use"))
    }

    fn compose(
        &self,
        problem: &Problem,
        kind: ComposedKind,
        steps: RangeInclusive<u32>,
        seed: u64,
    ) -> Option<ParsedConjecture> {
        let limit = context_limit(&self.theory, &problem.context).ok()?;
        let context = self.theory.find(&problem.context);
        let theory = &self.theory;
        let found = self.with_judge(|judge| {
            (0..COMPOSE_ATTEMPTS).find_map(|attempt| {
                let mut draw = SeededRng::numbered(seed, "conjecture", attempt);
                let unifier = judge.unifier_mut();
                let (found, _) = match kind {
                    ComposedKind::Random => self.composer().compose(theory, unifier, &mut draw, context),
                    ComposedKind::Congruence => {
                        let lengths = *steps.start() as usize..=*steps.end() as usize;
                        self.congruences().compose(theory, unifier, &mut draw, lengths, context)
                    }
                }?;
                steps.contains(&(inferences(&found.steps) as u32)).then_some(found)
            })
        })?;
        Some(self.conjecture(problem, &found.statement, limit))
    }

    fn read_review(&self, completion: &str) -> Result<Review, Malformed> {
        let mut tokens = completion.split_ascii_whitespace();
        let mut score = |name: &'static str, most: u32| {
            let token = tokens.next().unwrap_or("");
            token
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('-'))
                .and_then(|n| n.parse::<u32>().ok())
                .filter(|n| *n <= most)
                .map(f64::from)
                .ok_or_else(|| {
                    let shown: String = token.chars().take(40).collect();
                    Malformed::new(
                        format!("no-{name}"),
                        format!("`{shown}` where {name}-0 … {name}-{most} should be"),
                    )
                })
        };
        let review = Review {
            relevance: score("relevance", 5)?,
            redundancy: score("redundancy", 1)?,
            complexity: score("complexity", 4)?,
        };
        match tokens.next() {
            None => Ok(review),
            Some(_) => malformed("trailing-text", "text follows the three scores of the review"),
        }
    }

    fn features(&self, statement: &str) -> Features {
        match self.statement(statement) {
            Ok(statement) => features(&self.theory, &self.connectives, &statement),
            Err(_) => Features::default(),
        }
    }

    fn is_penalised(&self, _proof: &str) -> bool {
        false
    }

    fn identity(&self) -> String {
        IDENTITY.to_owned()
    }

    fn is_quick(&self) -> bool {
        true
    }

    fn verify(&self, problem: &Problem, proof: &str) -> Judgement {
        let mut start = Instant::now();
        self.judge_timed(&self.goal(problem), proof, &mut start)
    }

    fn verify_all(&self, problem: &Problem, proofs: &[&str]) -> Vec<Judgement> {
        let mut start = Instant::now();
        let goal = self.goal(problem);
        proofs.iter().map(|proof| self.judge_timed(&goal, proof, &mut start)).collect()
    }

    fn display_statement(&self, statement: &str) -> String {
        StatementText::split(statement).map_or_else(|_| statement.to_owned(), |text| notation::print(&text))
    }

    fn display_proof(&self, problem: &Problem, proof: &str) -> String {
        self.proof_table(problem, proof).unwrap_or_else(|| proof.to_owned())
    }
}

impl Metamath {
    /// Judges a proof in canonical text and returns the problem's goal and the full proof.
    pub fn proof_operations(&self, problem: &Problem, proof: &str) -> Result<(Goal, Vec<ProofOp>), String> {
        let goal = self.goal(problem)?;
        let steps = self.steps(goal.hypothesis_count(), proof).map_err(|e| e.to_string())?;
        let prove = |judge: &mut Judge| judge.prove(&self.theory, &goal, &steps, ProofLimits::default());
        let ops = self.with_judge(prove).map_err(|judgement| judgement.reason)?;
        Ok((goal, ops))
    }

    /// Parses a completion of the Solver as a proof.
    fn completed_steps(&self, hypotheses: usize, completion: &str) -> Result<Vec<ProofStep>, Malformed> {
        let mut labels = Vec::new();
        for (i, token) in completion.split_ascii_whitespace().enumerate() {
            match token.strip_prefix('~') {
                Some(label) => labels.push(label),
                None if is_hypothesis_token(token) => labels.push(token),
                None => {
                    let shown: String = token.chars().take(40).collect();
                    return malformed("no-label", format!("token {}, `{shown}`, is not a proof step", i + 1));
                }
            }
        }
        Ok(read_steps(&self.theory, hypotheses, &labels)?)
    }

    /// Formats a proof as a table with the columns number, hypotheses, label and formula.
    fn proof_table(&self, problem: &Problem, proof: &str) -> Option<String> {
        let goal = self.goal(problem).ok()?;
        let steps = self.steps(goal.hypothesis_count(), proof).ok()?;
        let labels: Vec<&str> = proof.split_ascii_whitespace().collect();
        self.with_judge(|judge| {
            judge.prove(&self.theory, &goal, &steps, ProofLimits::default()).ok()?;
            let unifier = judge.unifier();
            let formulas = unifier.step_formulas(&self.theory, &goal, 500).ok()?;
            let width = labels.iter().map(|l| l.len()).max().unwrap_or(0);
            let mut out = String::new();
            let steps = formulas.iter().zip(unifier.step_children()).zip(labels);
            for (i, ((formula, children), label)) in steps.enumerate() {
                let from: Vec<String> = children.iter().map(|c| (c + 1).to_string()).collect();
                let formula =
                    formula.as_ref().map_or_else(|| "…".to_owned(), |f| self.theory.formula_text(f));

                out.push_str(&format!("{:>4}  {:<9} {label:<width$}  {formula}\n", i + 1, from.join(",")));
            }
            Some(out)
        })
    }
}
