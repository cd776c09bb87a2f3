//! Embeddings of statements for STP's re-weighting, computed with the weights that sampled the round.

use crate::config::RunConfig;
use crate::error::{Context, Result, ensure};
use sgs_lm::Device;
use sgs_lm::model::Model;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::Trainer;
use sgs_selfplay::outcome::ConjectureStatus;
use sgs_selfplay::stp::{Matching, UnitEmbedding, match_to_targets};
use sgs_selfplay::{Problem, RoundOutcome};
use std::sync::Arc;

/// Maximum number of tokens of a statement to embed (STP's code).
const LONGEST: usize = 512;

pub(crate) struct Embedder<'a, D: Device> {
    /// The model whose hidden states are used.
    pub model: &'a Model<D>,
    pub tokenizer: &'a Tokenizer,
    /// Runs the model on this rank alone; the other ranks wait for their next command.
    pub trainer: &'a mut Trainer<D>,
}

impl<D: Device> Embedder<'_, D> {
    /// Computes the weights of the chosen conjectures of a round; `None` if none is chosen.
    pub(crate) fn matching(
        &mut self,
        config: &RunConfig,
        outcome: &RoundOutcome,
        unsolved: &[&Arc<Problem>],
    ) -> Result<Option<Matching>> {
        let chosen: Vec<(&str, &str)> = outcome
            .chosen_conjectures()
            .filter_map(|conjecture| match &conjecture.status {
                ConjectureStatus::Accepted { statement } => Some((conjecture.id.as_str(), &**statement)),
                _ => None,
            })
            .collect();
        if chosen.is_empty() {
            return Ok(None);
        }
        let targets: Vec<_> =
            unsolved.iter().map(|target| (target.id.as_str(), &*target.statement)).collect();
        let (chosen, targets) = (self.directions(&chosen)?, self.directions(&targets)?);
        Ok(Some(match_to_targets(&chosen, &targets, config.algorithm.conjecturer.stp.max_weight)))
    }

    /// Embeds named statements and returns the directions.
    fn directions(&mut self, statements: &[(&str, &str)]) -> Result<Vec<UnitEmbedding>> {
        let room = LONGEST.min(self.trainer.plan().tokens).min(self.model.max_positions);
        let tokens = |&(name, statement): &(&str, &str)| -> Result<Vec<u32>> {
            let spelled = self.tokenizer.encode_untrusted(statement);
            let spelled = spelled.with_context(|| format!("cannot embed the statement of {name}"))?;
            let tokens: Vec<u32> = self.tokenizer.bos().into_iter().chain(spelled).take(room).collect();
            ensure!(!tokens.is_empty(), "cannot embed the statement of {name}: it is empty");
            Ok(tokens)
        };
        let tokens: Vec<Vec<u32>> = statements.iter().map(tokens).collect::<Result<_>>()?;
        let embeddings = self.trainer.embeddings(self.model, tokens.iter().map(Vec::as_slice))?;
        let direction = |(embedding, (name, _)): (&Vec<f32>, &(&str, &str))| {
            UnitEmbedding::of(embedding).with_context(|| {
                format!(
                    "the Conjecturer's hidden states of the statement of {name} are zero or not finite: its weights are \
                     broken, most likely by an update with too high a learning rate"
                )
            })
        };
        embeddings.iter().zip(statements).map(direction).collect()
    }
}
