//! A stage of rollouts: attempts at every problem and, if wanted, at its negation.

use super::config::Rollouts;
use crate::sets::ledger::{Ledger, Subject};
use serde::{Deserialize, Serialize};
use sgs_formal::{FormalSystem, Prompt};
use sgs_lean::Lean;
use sgs_lm::model::Model;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::weights::HostWeights;
use sgs_lm_sampler::SamplerOptions;
use sgs_run::config::device::DeviceKind;
use sgs_run::error::{Context, Result, bail};
use sgs_run::round::evaluate::{self, ProblemResult};
use sgs_run::served::client::ServedRoles;
use sgs_run::with_device;
use sgs_run::workers::sampling::{self, Answer, Ask};
use sgs_selfplay::Problem;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// The results of the attempts at one statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Attempts that were proofs.
    pub proved: u64,
    /// Attempts that were judged.
    pub judged: u64,
    /// The first proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
}

impl From<&ProblemResult> for Tally {
    fn from(result: &ProblemResult) -> Self {
        Self { proved: result.proved, judged: result.judged, proof: result.proof.clone() }
    }
}

/// The results of the attempts at a problem and at its negation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The problem.
    pub problem: Tally,
    /// Its negation, if that was wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negation: Option<Tally>,
}

/// Attempts that are sampled together. They are verified while the next are sampled.
const STATEMENTS_AT_ONCE: usize = 1024;
/// The stage fails if a larger fraction of its last attempts is lost: this means that the server or the checker is broken.
const LOST: f64 = 0.05;

/// Attempts the problems that have no result in the ledger. `on_problem` is called with the number of finished problems.
///
/// # Errors
/// Returns an error if the model or the server cannot be used, if too many attempts are lost, or if the ledger cannot be
/// written.
pub(crate) fn attempt(
    stage: &Rollouts,
    seed: u64,
    device: DeviceKind,
    system: &Lean,
    problems: &[Problem],
    ledger: &mut Ledger<Tried>,
    on_problem: &(dyn Fn(usize) + Sync),
) -> Result<()> {
    let is_open = |problem: &&Problem| ledger.found(&Subject::problem(problem)).is_none();
    let open: Vec<&Problem> = problems.iter().filter(is_open).collect();
    on_problem(problems.len() - open.len());
    let Some(first) = open.first() else { return Ok(()) };
    let folder = Path::new(&stage.model);
    let tokenizer = Tokenizer::load(folder)?;
    let work = Attempter { stage, seed, system, tokenizer: &tokenizer, on_problem };
    if !stage.endpoint.url.is_empty() {
        let probe = sampling::encode(&tokenizer, &work.prompt(first))?;
        let served = ServedRoles::connect(
            &stage.endpoint,
            stage.context,
            Tokenizer::load(folder)?,
            &probe,
            stage.context,
        )?;
        return work.go(&open, ledger, |asks| served.answers(asks, stage.context, || ()));
    }
    let weights = HostWeights::load(folder)?;
    tokenizer.check_model(&weights.config)?;
    let options = SamplerOptions {
        max_batch: stage.batch,
        memory_budget_bytes: stage.memory_mib.saturating_mul(1 << 20),
        ..SamplerOptions::default()
    };
    with_device!(device, sgs_run::config::device::threads(), device => {
        let model = Model::new(Arc::clone(&device), weights, stage.context)?;
        work.go(&open, ledger, |asks| {
            sampling::answers(&model, &tokenizer, asks, stage.context, &options, || ())
        })
    })
}

struct Attempter<'a> {
    stage: &'a Rollouts,
    seed: u64,
    system: &'a Lean,
    tokenizer: &'a Tokenizer,
    on_problem: &'a (dyn Fn(usize) + Sync),
}

/// A problem, and its negation if that is wanted and there is one.
type Sides = (Problem, Option<Problem>);

/// Problems with the answers to their prompts, and to those of their negations.
type Sampled = (Vec<Sides>, Vec<Answer>);

impl Attempter<'_> {
    /// Samples the next statements while it verifies the last ones.
    fn go(
        &self,
        open: &[&Problem],
        ledger: &mut Ledger<Tried>,
        answers: impl Fn(&[Ask]) -> Result<Vec<Answer>>,
    ) -> Result<()> {
        let sides = 1 + usize::from(self.stage.negation);
        let at_once = (STATEMENTS_AT_ONCE / (self.stage.k as usize * sides)).max(1);
        std::thread::scope(|scope| {
            let (send, receive) = sync_channel::<Sampled>(1);
            let verifier = scope.spawn(move || self.verify(&receive, ledger));
            let sampled = open.chunks(at_once).try_for_each(|some| {
                let some = some.iter().map(|problem| self.sides(problem)).collect::<Vec<Sides>>();
                let asks = evaluate::proof_asks(
                    |problem| self.prompt(problem),
                    self.tokenizer,
                    &statements(&some),
                    self.stage.k,
                    self.seed,
                )?;
                // The verifier ends early only with an error, which takes precedence.
                send.send((some, answers(&asks)?)).ok().context("the verifier has stopped")
            });
            drop(send);
            let verified = verifier.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            verified.and(sampled)
        })
    }

    fn sides(&self, problem: &Problem) -> Sides {
        (problem.clone(), Some(problem).filter(|_| self.stage.negation).and_then(Lean::negated))
    }

    fn prompt(&self, problem: &Problem) -> Prompt {
        match self.stage.prompt.as_str() {
            "" => self.system.solver_prompt(problem),
            template => Prompt::Chat(sgs_lean::prompt::solver_in_words(problem, template)),
        }
    }

    fn verify(&self, sampled: &Receiver<Sampled>, ledger: &mut Ledger<Tried>) -> Result<()> {
        for (some, answers) in sampled {
            let asked = answers.len();
            let verified = evaluate::verify_all(self.system, &statements(&some), self.stage.k, answers)?;
            let results = verified.problems;
            let judged: u64 = results.iter().map(|r| r.judged).sum();
            let lost = asked.saturating_sub(usize::try_from(judged).unwrap_or(asked));
            if lost as f64 > LOST * asked as f64 {
                let first = results.iter().find(|r| r.judged < u64::from(self.stage.k));
                bail!(
                    "stage {}: {lost} of {asked} attempts were lost, the first at {}: the checker or the server is not \
                     well, or a prompt is longer than the context; what was found before is kept, and the same command \
                     goes on from there",
                    self.stage.name,
                    first.map_or("", |r| r.problem.id.as_str())
                );
            }
            let mut tallies = results.iter().map(Tally::from);
            let tried = some.iter().filter_map(|(problem, negation)| {
                let tally = tallies.next()?;
                let negation = negation.as_ref().and_then(|_| tallies.next());
                Some((Subject::problem(problem), Tried { problem: tally, negation }))
            });
            let tried: Vec<(Subject, Tried)> = tried.collect();
            let done = tried.len();
            ledger.add(tried)?;
            (self.on_problem)(done);
        }
        Ok(())
    }
}

/// Each problem, followed by its negation.
fn statements(some: &[Sides]) -> Vec<Problem> {
    some.iter()
        .flat_map(|(problem, negation)| [Some(problem), negation.as_ref()])
        .flatten()
        .cloned()
        .collect()
}
