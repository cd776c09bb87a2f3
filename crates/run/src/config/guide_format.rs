//! Warnings about a Guide whose reviews do not follow the required format.

use crate::config::{BaseSource, RunConfig, SystemName};
use crate::error::{Result, RunError};
use sgs_rundir::metrics::MetricValues;
use sgs_selfplay::Role;

/// Fraction of malformed reviews of the untrained DeepSeek-Prover-V2-7B (paper, Section 4.1: 54.7% are well-formed).
const UNTRAINED: f64 = 0.453;
/// Smallest fraction of malformed reviews that triggers a warning. A Guide trained on the format stays below 0.01.
const WARNING_THRESHOLD: f64 = 0.05;
/// Smallest number of reviews that is enough for a warning.
const MIN_REVIEWS: f64 = 20.0;
/// Rounds between two warnings. The Guide is not trained, so the fraction hardly changes from round to round.
const WARNING_INTERVAL: u32 = 10;

/// Fraction of readable reviews from which a model has learned the format, if not well enough.
const LEARNED: f64 = 0.3;

/// Returns a cause of malformed reviews or a remedy. The model for Lean is the one that the paper's authors fine-tuned.
fn remedy(system: SystemName) -> &'static str {
    match system {
        SystemName::Metamath => {
            "the model does not know the prompts of Metamath (docs/guides.md), or model.context is too short; \
             algorithm.guide.kind=rubric needs no model"
        }
        SystemName::Lean => {
            "use the authors' Guide, LukeBailey181Pub/dspv2_guide, or fine-tune one (`sgs data reviews --help`)"
        }
        SystemName::External => "the model does not know the prompts of this system (docs/external.md)",
    }
}

/// Checks the fraction of readable reviews before a run.
///
/// # Errors
/// Returns [`RunError::CannotBegin`] if it is less than `algorithm.guide.min_readable`.
pub fn check(config: &RunConfig, readable: u32, sampled: u32) -> Result<()> {
    let (share, least) =
        (f64::from(readable) / f64::from(sampled.max(1)), config.algorithm.guide.min_readable);
    if sampled == 0 || share >= least {
        return Ok(());
    }
    Err(RunError::CannotBegin(format!(
        "{readable} of the Guide's {sampled} reviews can be read ({:.0}%), and algorithm.guide.min_readable is {least}; \
         {}. To run with this Guide, set algorithm.guide.min_readable=0",
        100.0 * share,
        match is_untrained(config) || share < LEARNED {
            true => remedy(config.problems.system),
            false => "the model knows the format, but needs more training on reviews",
        }
    )))
}

/// The Guide of the paper's authors, on Hugging Face.
pub const AUTHORS_GUIDE: &str = "LukeBailey181Pub/dspv2_guide";

/// Returns whether the Guide is a model for Lean that was never trained to write reviews.
pub fn is_untrained(config: &RunConfig) -> bool {
    // The shipped models and those of recipes are trained on the format.
    let is_own = matches!(config.model.base_source(), BaseSource::Folder(_));
    let is_base = is_own && config.model.guide == "base" && !config.sampling.endpoint.plays(Role::Guide);
    is_base && config.algorithm.has_model_reviews() && config.problems.system == SystemName::Lean
}

/// Returns the expected failure rate of an untrained Guide, or `None` if the run does not use one.
pub fn forecast(config: &RunConfig) -> Option<String> {
    let guide = &config.algorithm.guide;
    is_untrained(config).then(|| {
        let failed = UNTRAINED.powi(1 + i32::try_from(guide.resamples).unwrap_or(i32::MAX - 1));
        let stops = if guide.min_readable > 1.0 - UNTRAINED { ", so the run stops" } else { "" };
        format!(
            "model.guide is the base model: {:.0}% of its reviews are malformed and {:.0}% of the conjectures \
             unscored{stops}; {}",
            100.0 * UNTRAINED,
            100.0 * failed,
            remedy(config.problems.system)
        )
    })
}

/// Returns a warning if too many of a round's reviews were malformed.
pub fn warning(system: SystemName, round: u32, metrics: &MetricValues) -> Option<String> {
    let value = |name: &str| metrics.scalars.get(name).copied().unwrap_or_default();
    let (share, sampled) = (value("review_share_malformed"), value("reviews_sampled"));
    (round.is_multiple_of(WARNING_INTERVAL) && sampled >= MIN_REVIEWS && share >= WARNING_THRESHOLD).then(|| {
        format!(
            "{:.1}% of the Guide's {sampled} reviews in round {round} were malformed, and {} conjectures got no score from it; \
             {}",
            100.0 * share,
            value("reviews_failed"),
            remedy(system)
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use sgs_selfplay::config::GuideKind;

    fn metrics(sampled: f64, share: f64) -> MetricValues {
        let mut metrics = MetricValues::default();
        metrics.set("reviews_sampled", sampled);
        metrics.set("review_share_malformed", share);
        metrics.set("reviews_failed", 7.0);
        metrics
    }

    #[test]
    fn many_malformed_reviews_cause_a_warning_every_ten_rounds() {
        let told = warning(SystemName::Lean, 10, &metrics(300.0, 0.453)).unwrap_or_default();
        assert!(
            told.contains("45.3% of the Guide's 300 reviews") && told.contains("7 conjectures"),
            "{told}"
        );
        assert_eq!(warning(SystemName::Lean, 10, &metrics(300.0, 0.01)), None);
        assert_eq!(warning(SystemName::Lean, 10, &metrics(10.0, 0.5)), None);
        assert_eq!(warning(SystemName::Lean, 11, &metrics(300.0, 0.5)), None);
    }

    #[test]
    fn the_check_names_the_authors_guide_and_the_key() {
        let mut config = RunConfig::default();
        check(&config, 52, 64).unwrap();
        check(&config, 0, 0).unwrap();
        let error = check(&config, 5, 64).unwrap_err().to_string();
        assert!(error.contains("prompts of Metamath (docs/guides.md), or model.context"), "{error}");
        let error = check(&config, 51, 64).unwrap_err().to_string();
        assert!(error.contains("(80%)") && error.contains("needs more training on reviews"), "{error}");
        config.problems.system = SystemName::Lean;
        config.model.base = "deepseek-ai/DeepSeek-Prover-V2-7B".into();
        let error = check(&config, 35, 64).unwrap_err().to_string();
        assert!(error.contains(AUTHORS_GUIDE), "a base model that no one trained: {error}");
        let error = check(&config, 15, 64).unwrap_err().to_string();
        for part in [
            "15 of the Guide's 64 reviews can be read (23%)",
            "LukeBailey181Pub/dspv2_guide",
            "algorithm.guide.min_readable=0",
        ] {
            assert!(error.contains(part), "{error}");
        }
        config.algorithm.guide.min_readable = 0.0;
        check(&config, 0, 64).unwrap();
    }

    #[test]
    fn only_an_untrained_guide_is_warned_about() {
        let mut config = RunConfig::default();
        assert_eq!(forecast(&config), None, "the Metamath model is trained on the format");
        config.problems.system = SystemName::Lean;
        config.algorithm.guide.on = true;
        assert_eq!(forecast(&config), None, "so is the shipped Lean model");
        config.model.base = "deepseek-ai/DeepSeek-Prover-V2-7B".into();
        let told = forecast(&config).unwrap_or_default();
        assert!(told.contains("45% of its reviews") && told.contains("21% of the"), "{told}");
        config.algorithm.guide.kind = GuideKind::Rubric;
        assert_eq!(forecast(&config), None);
        config.algorithm.guide.kind = GuideKind::Model;
        config.model.guide = "guide/model".into();
        assert_eq!(forecast(&config), None);
    }
}
