//! Whether the Guide keeps to the form in which its reviews are read.

use crate::config::{RunConfig, SystemName};
use sgs_rundir::metrics::MetricValues;
use sgs_selfplay::Role;
use sgs_selfplay::config::GuideKind;

/// Share of malformed reviews of DeepSeek-Prover-V2-7B as it comes (paper, Section 4.1: 54.7 % are well-formed).
const UNTRAINED: f64 = 0.453;
/// From this share of malformed reviews on, a person is told; a Guide that has learnt the form stays below a hundredth.
const MANY: f64 = 0.05;
/// So few reviews say nothing.
const FEW: f64 = 20.0;
/// The Guide is not trained, so nothing changes: it is said once in so many rounds.
const EVERY: u32 = 10;

const REMEDY: &str = "teach it the form: `sgs data reviews --help`";

/// What to expect of a Guide that was never taught to write reviews; `None` where another one plays.
pub fn forecast(config: &RunConfig) -> Option<String> {
    let guide = &config.algorithm.guide;
    let is_base = config.model.guide == "base" && !config.sampling.endpoint.plays(Role::Guide);
    let asked = guide.on && guide.kind == GuideKind::Model && config.problems.system == SystemName::Lean;
    (asked && is_base).then(|| {
        let failed = UNTRAINED.powi(1 + i32::try_from(guide.resamples).unwrap_or(i32::MAX - 1));
        format!(
            "model.guide is the base model: as that comes, {:.0} % of its reviews are malformed (paper), and\n  {:.0} % of the \
             conjectures get no score; {REMEDY}",
            100.0 * UNTRAINED,
            100.0 * failed
        )
    })
}

/// What the reviews of a round say of its Guide, if too many were malformed.
pub fn warning(round: u32, metrics: &MetricValues) -> Option<String> {
    let value = |name: &str| metrics.scalars.get(name).copied().unwrap_or_default();
    let (share, sampled) = (value("review_share_malformed"), value("reviews_sampled"));
    (round.is_multiple_of(EVERY) && sampled >= FEW && share >= MANY).then(|| {
        format!(
            "{:.1} % of the Guide's {sampled} reviews in round {round} were malformed, and {} conjectures got no score from it; \
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
    fn many_malformed_reviews_are_told_now_and_then() {
        let told = warning(10, &metrics(300.0, 0.453)).unwrap_or_default();
        assert!(
            told.contains("45.3 % of the Guide's 300 reviews") && told.contains("7 conjectures"),
            "{told}"
        );
        assert_eq!(warning(10, &metrics(300.0, 0.01)), None);
        assert_eq!(warning(10, &metrics(10.0, 0.5)), None);
        assert_eq!(warning(11, &metrics(300.0, 0.5)), None);
    }

    #[test]
    fn an_untaught_guide_is_foreseen_and_no_other() {
        let mut config = RunConfig::default();
        assert_eq!(forecast(&config), None, "Metamath's model knows the form");
        config.problems.system = SystemName::Lean;
        config.algorithm.guide.on = true;
        let told = forecast(&config).unwrap_or_default();
        assert!(told.contains("45 % of its reviews") && told.contains("21 % of the"), "{told}");
        config.model.guide = "guide/model".into();
        assert_eq!(forecast(&config), None);
    }
}
