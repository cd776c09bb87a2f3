//! Metamath as a `FormalSystem`: prompts, readers, features and the judge behind one object.

use crate::align::in_names_of;
use crate::corpus::splits::{NormalText, normal_text};
use crate::database::StatementId;
use crate::features::{Connectives, features};
use crate::judge::{Decision, Judge};
use crate::lemma;
use crate::library::Library;
use crate::printed;
use crate::proof::ProofOp;
use crate::proof_text::{read_steps, write_steps};
use crate::rubric::rubric;
use crate::slice::{self, SliceError};
use crate::statement::{Statement, StatementError, StatementLimits, StatementText, context_limit};
use crate::theory::{RuleId, Theory, TheoryError};
use crate::tokens::{self, CONJECTURE, CONJECTURER, GUIDE, PROOF, REVIEW, SOLVER};
use crate::unify::{Goal, ProofLimits, RuleBook, Step};
use rustc_hash::FxHashMap;
use sgs_formal::{Condition, FormalSystem, Malformed, Prompt};
use sgs_selfplay::{Features, Judgement, Lemma, Problem, ProblemId, ReadConjecture, Review, Verdict};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// The embedded formal system over one database.
pub struct Metamath {
    theory: Theory,
    book: RuleBook,
    connectives: Connectives,
    statement_limits: StatementLimits,
    proof_limits: ProofLimits,
    judges: Mutex<Vec<Judge>>,
    /// The first rule that says what a normal text stands for.
    first_of: OnceLock<FxHashMap<NormalText, RuleId>>,
    library: OnceLock<Library>,
}

/// Why the embedded system cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// The shipped slice is damaged.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// The database cannot be used.
    #[error(transparent)]
    Theory(#[from] TheoryError),
}

impl Metamath {
    /// The system over the slice of set.mm that ships with the program.
    ///
    /// # Errors
    /// Only if the program's own bytes are damaged.
    pub fn shipped() -> Result<Self, SystemError> {
        Ok(Self::new(Theory::new(slice::shipped()?)?))
    }

    /// The system over any theory.
    pub fn new(theory: Theory) -> Self {
        let book = RuleBook::new(&theory);
        let connectives = Connectives::of(&theory);
        Self {
            theory,
            book,
            connectives,
            statement_limits: StatementLimits { symbols: 200, hypotheses: tokens::HYPOTHESES, variables: 32 },
            proof_limits: ProofLimits::default(),
            judges: Mutex::new(Vec::new()),
            first_of: OnceLock::new(),
            library: OnceLock::new(),
        }
    }

    /// The theory.
    pub fn theory(&self) -> &Theory {
        &self.theory
    }

    /// Its rules, laid out for the checker.
    pub fn book(&self) -> &RuleBook {
        &self.book
    }

    /// Its connectives.
    pub fn connectives(&self) -> &Connectives {
        &self.connectives
    }

    /// A theorem of the database as a problem: its statement in normal form, to be proved from what stands before.
    pub fn problem(&self, label: &str) -> Option<Problem> {
        let rule = self.theory.find(label)?;
        let statement = normal_form_of_rule(&self.theory, rule)?;
        Some(Problem {
            id: ProblemId::new(label),
            statement: statement.text(&self.theory).into(),
            context: label.into(),
        })
    }

    /// A statement from a person as a problem: canonical text, as it is printed, or just a formula.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn problem_from_text(&self, id: &str, text: &str, context: &str) -> Result<Problem, StatementError> {
        context_limit(&self.theory, context)?;
        let statement = Statement::read(&self.theory, text, StatementLimits::default())?;
        let normal = statement.normal_form(&self.theory, |_| None).unwrap_or(statement);
        Ok(Problem {
            id: ProblemId::new(id),
            statement: normal.text(&self.theory).into(),
            context: context.into(),
        })
    }

    /// The token that tells how much of the database stands before a context.
    pub fn place_token(&self, context: &str) -> String {
        let rules = self.theory.rules().len();
        let before = context_limit(&self.theory, context)
            .map(|limit| self.theory.rules().partition_point(|r| r.statement < limit))
            .unwrap_or(rules);
        tokens::place_token(before, rules)
    }

    /// The Solver's completion for a proof in canonical text.
    pub fn proof_completion(&self, proof: &str) -> String {
        let mut out = String::new();
        for token in proof.split_ascii_whitespace() {
            if !out.is_empty() {
                out.push(' ');
            }
            if is_hypothesis_token(token) {
                out.push_str(token);
            } else {
                out.push_str(&tokens::label_token(token));
            }
        }
        out
    }

    /// The Guide's completion for a review (scores rounded to whole numbers).
    pub fn review_completion(review: &Review) -> String {
        format!(
            "relevance-{:.0} redundancy-{:.0} complexity-{:.0}",
            review.relevance, review.redundancy, review.complexity
        )
    }

    /// What the database has to say of statements; read on first use.
    pub fn library(&self) -> &Library {
        self.library.get_or_init(|| Library::new(&self.theory))
    }

    /// A statement's canonical text in the names of another; `None` if one of them is no statement.
    fn in_names_of(&self, statement: &str, other: &str) -> Option<String> {
        let read = |text: &str| Statement::parse(&self.theory, text, StatementLimits::default()).ok();
        Some(in_names_of(&self.theory, &read(statement)?, &read(other)?).text(&self.theory))
    }

    /// Runs `f` with a judge of the pool.
    pub fn with_judge<T>(&self, f: impl FnOnce(&mut Judge) -> T) -> T {
        let pool = || self.judges.lock().unwrap_or_else(PoisonError::into_inner);
        let mut judge = pool().pop().unwrap_or_default();
        let out = f(&mut judge);
        pool().push(judge);
        out
    }

    fn goal(&self, problem: &Problem) -> Result<Goal, String> {
        let before = context_limit(&self.theory, &problem.context).map_err(|e| e.to_string())?;
        let statement = Statement::parse(&self.theory, &problem.statement, StatementLimits::default())
            .map_err(|e| format!("the problem's statement: {e}"))?;
        Goal::new(&self.theory, &statement, before)
    }

    fn judge(&self, goal: &Result<Goal, String>, proof: &str) -> Decision {
        let goal = match goal {
            Ok(goal) => goal,
            Err(reason) => {
                return Decision { verdict: Verdict::Refused, reason: reason.clone(), step: None };
            }
        };
        let tokens = proof.split_ascii_whitespace();
        match read_steps(&self.theory, goal.hypothesis_count(), tokens) {
            Ok(steps) => {
                self.with_judge(|j| j.decide(&self.theory, &self.book, goal, &steps, self.proof_limits))
            }
            Err(e) => Decision { verdict: Verdict::Malformed, reason: e.to_string(), step: e.step },
        }
    }

    /// Judges what was begun at `start`, and begins the next.
    fn judge_timed(&self, goal: &Result<Goal, String>, proof: &str, start: &mut Instant) -> Judgement {
        let Decision { verdict, reason, step } = self.judge(goal, proof);
        let begun = std::mem::replace(start, Instant::now());
        let micros = u64::try_from(start.duration_since(begun).as_micros()).unwrap_or(u64::MAX);
        Judgement { verdict, reason, step, micros }
    }

    /// The first theorem before `limit` that says the same, whatever its variables are called.
    fn known(&self, statement: &Statement, limit: StatementId) -> Option<&str> {
        let first_of = self.first_of.get_or_init(|| {
            let mut first_of = FxHashMap::default();
            for id in (0..self.theory.rules().len()).map(|i| RuleId(i as u32)) {
                if let Some(normal) = normal_form_of_rule(&self.theory, id) {
                    first_of.entry(normal_text(&self.theory, &normal)).or_insert(id);
                }
            }
            first_of
        });
        let id = *first_of.get(&normal_text(&self.theory, statement))?;
        (self.theory.rule(id).statement < limit).then(|| self.theory.label(id))
    }

    /// A problem and a lemma of it as statements, and the lemma's proof; `None` if they are not what they should be.
    fn cited(&self, problem: &Problem, lemma: &Lemma) -> Option<(Statement, Statement, Vec<Step>)> {
        let parse = |text: &str| Statement::parse(&self.theory, text, StatementLimits::default()).ok();
        let (target, statement) = (parse(&problem.statement)?, parse(&lemma.statement)?);
        let tokens = lemma.proof.split_ascii_whitespace();
        let steps = read_steps(&self.theory, statement.hypotheses.len(), tokens).ok()?;
        lemma::is_citable(&target, &statement).then_some((target, statement, steps))
    }

    fn read_statement(
        &self,
        condition: Condition<'_>,
        completion: &str,
    ) -> Result<ReadConjecture, StatementError> {
        let text = StatementText::split(completion)?;
        let statement = Statement::from_text(&self.theory, &text, self.statement_limits)?;
        let normal = statement.normal_form(&self.theory, |_| None).ok_or(StatementError {
            kind: "too-many-variables",
            detail: "the database has too few variables to name them all".to_owned(),
        })?;
        let limit = context_limit(&self.theory, &condition.problem().context)?;
        let productions = self.theory.grammar().productions();
        let later = normal
            .trees()
            .flat_map(|t| t.iter().filter_map(|h| h.as_production()))
            .find(|&p| productions[p as usize].statement >= limit);
        if let Some(p) = later {
            let label = &self.theory.database().statement(productions[p as usize].statement).label;
            return Err(StatementError {
                kind: "later-symbol",
                detail: format!("`{label}` is defined only after `{}`", condition.problem().context),
            });
        }
        Goal::new(&self.theory, &normal, limit)
            .map_err(|detail| StatementError { kind: "undeclared-variable", detail })?;
        let target =
            Statement::parse(&self.theory, &condition.problem().statement, StatementLimits::default()).ok();
        // Under other conditioning the Conjecturer does not write in the problem's variables.
        let of_target = target.as_ref().filter(|_| matches!(condition, Condition::Target(_)));
        let citable = of_target.is_some_and(|target| lemma::is_citable(target, &statement));
        Ok(ReadConjecture {
            known: self.known(&normal, limit).map(Into::into),
            lemma: citable.then(|| statement.text(&self.theory).into()),
            rubric: target.map_or(0.0, |target| rubric(&target, &normal)),
            statement: normal.text(&self.theory).into(),
        })
    }
}

/// The statement of a rule with its variables renamed in order of appearance.
pub fn normal_form_of_rule(theory: &Theory, rule: RuleId) -> Option<Statement> {
    let r = theory.rule(rule);
    Statement::of_rule(r).normal_form(theory, |s| r.variables.iter().find(|(v, _)| *v == s).map(|(_, t)| *t))
}

fn is_hypothesis_token(token: &str) -> bool {
    token.strip_prefix('h').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

impl FormalSystem for Metamath {
    fn name(&self) -> &'static str {
        "metamath"
    }

    fn solver_prompt(&self, problem: &Problem) -> Prompt {
        Prompt::Raw(format!("{SOLVER} {} {} {PROOF}", self.place_token(&problem.context), problem.statement))
    }

    fn solver_prompt_citing(&self, problem: &Problem, lemma: &Lemma) -> Prompt {
        let Some((target, statement, _)) = self.cited(problem, lemma) else {
            return self.solver_prompt(problem);
        };
        let shown = lemma::with_lemma(&target, &statement).text(&self.theory);
        Prompt::Raw(format!("{SOLVER} {} {shown} {PROOF}", self.place_token(&problem.context)))
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
        let shown = self.in_names_of(&conjecture.statement, &target.statement);
        let shown = shown.as_deref().unwrap_or(&conjecture.statement);
        Prompt::Raw(format!("{GUIDE} {place} {} {CONJECTURE} {shown} {REVIEW}", target.statement))
    }

    fn read_proof(&self, problem: &Problem, completion: &str) -> Result<String, Malformed> {
        let hypotheses = problem.statement.split_ascii_whitespace().filter(|t| *t == "$e").count();
        Ok(write_steps(&self.theory, &self.completed_steps(hypotheses, completion)?))
    }

    fn read_proof_citing(
        &self,
        problem: &Problem,
        lemma: &Lemma,
        completion: &str,
    ) -> Result<String, Malformed> {
        let Some((target, statement, proof)) = self.cited(problem, lemma) else {
            return self.read_proof(problem, completion);
        };
        let steps = self.completed_steps(target.hypotheses.len() + 1, completion)?;
        match lemma::put_in_place(&target, &statement, &proof, &steps) {
            Some(Ok(steps)) => Ok(write_steps(&self.theory, &steps)),
            Some(Err(e)) => Err(Malformed::new(e.kind, e.detail)),
            None => self.read_proof(problem, completion),
        }
    }

    /// Assertions that the proof cites: hypotheses are no inferences.
    fn proof_steps(&self, proof: &str) -> u32 {
        let assertions = proof.split_ascii_whitespace().filter(|token| !is_hypothesis_token(token));
        u32::try_from(assertions.count()).unwrap_or(u32::MAX)
    }

    fn read_conjecture(
        &self,
        condition: Condition<'_>,
        completion: &str,
    ) -> Result<ReadConjecture, Malformed> {
        self.read_statement(condition, completion).map_err(|e| Malformed::new(e.kind, e.detail))
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
            Some(_) => Err(Malformed::new("trailing-text", "the review goes on after its three scores")),
        }
    }

    fn features(&self, statement: &str) -> Features {
        match Statement::parse(&self.theory, statement, StatementLimits::default()) {
            Ok(statement) => features(&self.theory, &self.connectives, &statement),
            Err(_) => Features::default(),
        }
    }

    fn is_penalised(&self, _proof: &str) -> bool {
        false
    }

    fn identity(&self) -> String {
        "the unifier and the kernel".to_owned()
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
        StatementText::split(statement).map_or_else(|_| statement.to_owned(), |text| printed::print(&text))
    }

    fn display_proof(&self, problem: &Problem, proof: &str) -> String {
        self.proof_table(problem, proof).unwrap_or_else(|| proof.to_owned())
    }
}

impl Metamath {
    /// A proof in canonical text as the kernel's operations, judged again.
    ///
    /// # Errors
    /// Why it does not hold.
    pub fn proof_operations(&self, problem: &Problem, proof: &str) -> Result<(Goal, Vec<ProofOp>), String> {
        let goal = self.goal(problem)?;
        let tokens = proof.split_ascii_whitespace();
        let steps = read_steps(&self.theory, goal.hypothesis_count(), tokens).map_err(|e| e.to_string())?;
        let prove =
            |judge: &mut Judge| judge.prove(&self.theory, &self.book, &goal, &steps, self.proof_limits);
        let ops = self.with_judge(prove).map_err(|decision| decision.reason)?;
        Ok((goal, ops))
    }

    /// The steps that a completion of the Solver names.
    fn completed_steps(&self, hypotheses: usize, completion: &str) -> Result<Vec<Step>, Malformed> {
        let mut labels = Vec::new();
        for (i, token) in completion.split_ascii_whitespace().enumerate() {
            match token.strip_prefix('~') {
                Some(label) => labels.push(label),
                None if is_hypothesis_token(token) => labels.push(token),
                None => {
                    let shown: String = token.chars().take(40).collect();
                    return Err(Malformed::new(
                        "no-label",
                        format!("token {}, `{shown}`, is no proof step", i + 1),
                    ));
                }
            }
        }
        read_steps(&self.theory, hypotheses, &labels).map_err(|e| Malformed::new(e.kind, e.detail))
    }

    /// The proof as a table: number, hypotheses, label, formula.
    fn proof_table(&self, problem: &Problem, proof: &str) -> Option<String> {
        let goal = self.goal(problem).ok()?;
        let steps = read_steps(&self.theory, goal.hypothesis_count(), proof.split_ascii_whitespace()).ok()?;
        let labels: Vec<&str> = proof.split_ascii_whitespace().collect();
        self.with_judge(|judge| {
            judge.prove(&self.theory, &self.book, &goal, &steps, self.proof_limits).ok()?;
            let checker = judge.checker();
            let formulas = checker.step_formulas(&self.theory, &self.book, &goal, 500).ok()?;
            let width = labels.iter().map(|l| l.len()).max().unwrap_or(0);
            let mut out = String::new();
            for (i, (formula, children)) in formulas.iter().zip(checker.step_children()).enumerate() {
                let from: Vec<String> = children.iter().map(|c| (c + 1).to_string()).collect();
                let formula =
                    formula.as_ref().map_or_else(|| "…".to_owned(), |f| self.theory.formula_text(f));
                let label = labels.get(i).copied().unwrap_or("");
                out.push_str(&format!("{:>4}  {:<9} {label:<width$}  {formula}\n", i + 1, from.join(",")));
            }
            Some(out)
        })
    }
}
