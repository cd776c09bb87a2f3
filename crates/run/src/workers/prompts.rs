//! Checks that the Solver's prompts fit into the context window, and that the tokenizer knows their words.

use crate::Usage;
use crate::config::RunConfig;
use crate::error::Result;
use crate::workers::sampling::encode;
use sgs_formal::FormalSystem;
use sgs_lm::ModelConfig;
use sgs_lm::tokenizer::Tokenizer;
use sgs_selfplay::{Problem, Role, Weights};
use std::borrow::Borrow;

/// Checks that the prompts of a run's targets fit into the context window of its model, which must also hold at least
/// one token of the completion. Returns a warning if some of them do not, or if some contain words that the tokenizer does
/// not know. Prompts for an external server are not checked.
///
/// # Errors
/// Returns an error if no prompt fits, or if one cannot be encoded.
pub fn check<P: Borrow<Problem>>(
    config: &RunConfig,
    model: &ModelConfig,
    tokenizer: &Tokenizer,
    system: &dyn FormalSystem,
    targets: &[P],
) -> Result<Option<String>> {
    if config.weights_of(Role::Solver) == Weights::Served {
        return Ok(None);
    }
    let window = config.window(model);
    let unknown = tokenizer.special_tokens().unk.as_deref().and_then(|token| tokenizer.id_of(token));
    let (mut lengths, mut with_unknown) = (Vec::with_capacity(targets.len()), Vec::new());
    for target in targets {
        let prompt = encode(tokenizer, &system.solver_prompt(target.borrow()))?;
        lengths.push(prompt.len());
        if prompt.iter().any(|token| Some(*token) == unknown) {
            with_unknown.push(&target.borrow().id);
        }
    }
    let warn_of_unknown = || {
        let first = with_unknown.first()?;
        Some(format!(
            "the prompts of {} of {} targets, such as `{first}`, contain words that the tokenizer does not know: check \
             the statements, or train a model whose texts contain these words",
            with_unknown.len(),
            targets.len()
        ))
    };
    let long = lengths.iter().filter(|length| **length >= window).count();
    let (Some(shortest), Some(longest)) = (lengths.iter().min(), lengths.iter().max()) else {
        return Ok(None);
    };
    if long == 0 {
        return Ok(warn_of_unknown());
    }
    let (all, least) = (lengths.len(), longest + 1);
    let remedy = match config.model.context {
        0 => format!("choose a model with at least {least} positions"),
        _ => format!("set model.context to {least} or more, or to 0 for the model's maximum"),
    };
    if long == all {
        return Err(Usage(format!(
            "the context window is {window} tokens, and no prompt fits: those of the {all} targets have {shortest} to \
             {longest} tokens; {remedy}"
        ))
        .into());
    }
    Ok(Some(format!(
        "the prompts of {long} of {all} targets do not fit into the context window of {window} tokens and are never \
         sampled; {remedy}"
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use sgs_metamath::system::Metamath;
    use sgs_selfplay::ProblemId;
    use std::path::Path;

    #[test]
    fn words_that_the_tokenizer_does_not_know_are_reported() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/small-model");
        let (model, tokenizer) = (ModelConfig::load(&folder).unwrap(), Tokenizer::load(&folder).unwrap());
        let system = Metamath::shipped().unwrap();
        let target = |id: &str, statement: &str| Problem {
            id: ProblemId::new(id),
            statement: statement.into(),
            context: "".into(),
        };
        let (known, odd) = (target("known", "( ph -> ph )"), target("odd", "( ph -> frobnicate )"));
        let told = |targets: &[&Problem]| {
            check(&RunConfig::default(), &model, &tokenizer, &system, targets).unwrap()
        };
        assert_eq!(told(&[&known]), None);
        let warning = told(&[&known, &odd]).unwrap();
        assert!(warning.contains("1 of 2 targets, such as `odd`"), "{warning}");
    }
}
