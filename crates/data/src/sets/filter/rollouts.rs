//! A stage of rollouts: proofs of every problem and, if wanted, of its negation.

use super::config::Rollouts;
use crate::sets::ledger::{Ledger, Subject};
use serde::{Deserialize, Serialize};
use sgs_formal::{FormalSystem, Prompt};
use sgs_lean::Lean;
use sgs_lm::model::Model;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::weights::HostWeights;
use sgs_run::config::device::DeviceKind;
use sgs_run::error::{Context, Result, bail};
use sgs_run::served::client::ServedRoles;
use sgs_run::with_device;
use sgs_run::workers::attempts::{self, AttemptSummary};
use sgs_run::workers::sampling::{self, Answer, Ask, TextSampler};
use sgs_selfplay::Problem;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// The results of the rollouts for a problem and for its negation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The problem.
    pub problem: AttemptSummary,
    /// Its negation, if that was wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negation: Option<AttemptSummary>,
}

/// Number of rollouts that are sampled together. They are verified while the next ones are sampled.
const STATEMENTS_AT_ONCE: usize = 1024;
/// Maximum fraction of the last rollouts that may be lost. If more are lost, the server or the checker is broken, and
/// the stage fails.
const LOST: f64 = 0.05;

/// Attempts the problems that have no result in the ledger. `on_problem` is called with the number of finished problems.
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
    with_device!(device, sgs_run::config::device::threads(), device => {
        let model = Model::new(Arc::clone(&device), weights, stage.context)?;
        let options = sampling::options(stage.batch, stage.memory_mib);
        let (max_new_tokens, tokenizer) = (stage.context, &tokenizer);
        let sampler = TextSampler { model: &model, tokenizer, max_new_tokens, temperature: 1.0, options };
        work.go(&open, ledger, |asks| sampler.answers(asks, || ()))
    })
}

struct Attempter<'a> {
    stage: &'a Rollouts,
    seed: u64,
    system: &'a Lean,
    tokenizer: &'a Tokenizer,
    on_problem: &'a (dyn Fn(usize) + Sync),
}

/// Returns a problem, and its negation if it is wanted and exists.
type Sides = (Arc<Problem>, Option<Arc<Problem>>);

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
                let asks = attempts::proof_asks(
                    |problem| self.prompt(problem),
                    self.tokenizer,
                    &statements(&some),
                    self.stage.k,
                    self.seed,
                )?;
                // If the verifier ends early, it has failed, and its error takes precedence.
                send.send((some, answers(&asks)?)).ok().context("the verifier has stopped")
            });
            drop(send);
            let verified = verifier.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            verified.and(sampled)
        })
    }

    fn sides(&self, problem: &Problem) -> Sides {
        let negation = Some(problem).filter(|_| self.stage.negation).and_then(Lean::negated);
        (Arc::new(problem.clone()), negation.map(Arc::new))
    }

    fn prompt(&self, problem: &Problem) -> Prompt {
        match self.stage.prompt.as_str() {
            "" => self.system.solver_prompt(problem),
            template => Prompt::Chat(sgs_lean::prompt::solver_in_words(problem, template)),
        }
    }

    #[allow(clippy::expect_used, reason = "every statement is counted")]
    fn verify(&self, sampled: &Receiver<Sampled>, ledger: &mut Ledger<Tried>) -> Result<()> {
        for (some, answers) in sampled {
            let (asked, k, statements) = (answers.len(), self.stage.k, statements(&some));
            let judged = attempts::judge_all(self.system, &statements, k, &answers);
            let results = attempts::count(&statements, k, &judged);
            let lost = asked - results.iter().map(|result| result.summary.judged as usize).sum::<usize>();
            if lost as f64 > LOST * asked as f64 {
                let first = results.iter().find(|result| result.summary.judged < k);
                bail!(
                    "stage {}: {lost} of {asked} rollouts were lost, the first at {}: the checker or the server fails, \
                     or a prompt is longer than the context. Earlier results are kept: the same command continues \
                     after them",
                    self.stage.name,
                    first.map_or("", |r| r.problem.id.as_str())
                );
            }
            let mut summaries = results.into_iter().map(|result| result.summary);
            let mut next = || summaries.next().expect("invariant: one summary for each statement");
            let tried = some.iter().map(|(problem, negation)| {
                let tried = Tried { problem: next(), negation: negation.as_ref().map(|_| next()) };
                (Subject::problem(problem), tried)
            });
            let tried: Vec<(Subject, Tried)> = tried.collect();
            let done = tried.len();
            ledger.add(tried)?;
            (self.on_problem)(done);
        }
        Ok(())
    }
}

/// Returns each problem, followed by its negation.
fn statements(some: &[Sides]) -> Vec<Arc<Problem>> {
    some.iter()
        .flat_map(|(problem, negation)| [Some(problem), negation.as_ref()])
        .flatten()
        .cloned()
        .collect()
}
