//! Warnings about a Guide whose reviews do not follow the required format.

use crate::config::{RunConfig, SystemName};
use sgs_rundir::metrics::MetricValues;
use sgs_selfplay::Role;
use sgs_selfplay::config::GuideKind;

/// Fraction of malformed reviews of the untrained DeepSeek-Prover-V2-7B (paper, Section 4.1: 54.7% are well-formed).
const UNTRAINED: f64 = 0.453;
/// Smallest fraction of malformed reviews that triggers a warning. A Guide trained on the format stays below 0.01.
const WARNING_THRESHOLD: f64 = 0.05;
/// Smallest number of reviews that is enough for a warning.
const MIN_REVIEWS: f64 = 20.0;
/// Rounds between two warnings. The Guide is not trained, so the fraction hardly changes from round to round.
const WARNING_INTERVAL: u32 = 10;

const REMEDY: &str = "fine-tune it on the format: see `sgs data reviews --help`";

/// Returns the expected failure rate of a Guide that was never trained to write reviews, or `None` if the run does not
/// use such a Guide.
pub fn forecast(config: &RunConfig) -> Option<String> {
    let guide = &config.algorithm.guide;
    let is_base = config.model.guide == "base" && !config.sampling.endpoint.plays(Role::Guide);
    let asked = guide.on && guide.kind == GuideKind::Model && config.problems.system == SystemName::Lean;
    (asked && is_base).then(|| {
        let failed = UNTRAINED.powi(1 + i32::try_from(guide.resamples).unwrap_or(i32::MAX - 1));
        format!(
            "model.guide is the base model: {:.0}% of its reviews are malformed (paper), and\n  {:.0}% of the \
             conjectures get no score; {REMEDY}",
            100.0 * UNTRAINED,
            100.0 * failed
        )
    })
}

/// Returns a warning if too many of a round's reviews were malformed.
pub fn warning(round: u32, metrics: &MetricValues) -> Option<String> {
    let value = |name: &str| metrics.scalars.get(name).copied().unwrap_or_default();
    let (share, sampled) = (value("review_share_malformed"), value("reviews_sampled"));
    (round.is_multiple_of(WARNING_INTERVAL) && sampled >= MIN_REVIEWS && share >= WARNING_THRESHOLD).then(|| {
        format!(
            "{:.1}% of the Guide's {sampled} reviews in round {round} were malformed, and {} conjectures got no score from it; \
             {REMEDY}",
            100.0 * share,
            value("reviews_failed")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(sampled: f64, share: f64) -> MetricValues {
        let mut metrics = MetricValues::default();
        metrics.set("reviews_sampled", sampled);
        metrics.set("review_share_malformed", share);
        metrics.set("reviews_failed", 7.0);
        metrics
    }

    #[test]
    fn many_malformed_reviews_cause_a_warning_every_ten_rounds() {
        let told = warning(10, &metrics(300.0, 0.453)).unwrap_or_default();
        assert!(
            told.contains("45.3% of the Guide's 300 reviews") && told.contains("7 conjectures"),
            "{told}"
        );
        assert_eq!(warning(10, &metrics(300.0, 0.01)), None);
        assert_eq!(warning(10, &metrics(10.0, 0.5)), None);
        assert_eq!(warning(11, &metrics(300.0, 0.5)), None);
    }

    #[test]
    fn only_an_untrained_guide_is_warned_about() {
        let mut config = RunConfig::default();
        assert_eq!(forecast(&config), None, "the Metamath model is trained on the format");
        config.problems.system = SystemName::Lean;
        config.algorithm.guide.on = true;
        let told = forecast(&config).unwrap_or_default();
        assert!(told.contains("45% of its reviews") && told.contains("21% of the"), "{told}");
        config.model.guide = "guide/model".into();
        assert_eq!(forecast(&config), None);
    }
}
