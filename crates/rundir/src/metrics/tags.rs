//! TensorBoard tags of metrics. TensorBoard groups tags by the part before the first `/`.

use std::borrow::Cow;

/// Prefixes of names and their replacements.
const GROUPS: [(&str, &str); 24] = [
    ("time_", "time/"),
    ("sampled_tokens_", "time/sampled_tokens_"),
    ("trained_tokens_", "time/trained_tokens_"),
    ("memory_", "memory/"),
    ("cumulative_", "targets/cumulative_"),
    ("targets_", "targets/"),
    ("target_", "targets/"),
    ("conjectures_", "conjectures/"),
    ("conjecture_", "conjectures/"),
    ("r_solve", "conjectures/r_solve"),
    ("r_synth", "conjectures/r_synth"),
    ("reward_", "conjectures/reward_"),
    ("normalised_rewards", "conjectures/rewards_normalised"),
    ("r_guide", "guide/r_guide"),
    ("reviews_", "guide/reviews_"),
    ("review_", "guide/"),
    ("guide_", "guide/"),
    ("solver_", "solver/"),
    ("proof_", "solver/proof_"),
    ("proofs_", "solver/proofs_"),
    ("rollouts_", "solver/rollouts_"),
    ("conjecturer_", "conjecturer/"),
    ("infra_", "run/infra_"),
    ("records_", "run/records_"),
];

/// Returns the tag of a metric. A name with a group keeps it.
pub(super) fn tag(name: &str) -> Cow<'_, str> {
    if name.contains('/') {
        return Cow::Borrowed(name);
    }
    let group = GROUPS.iter().find_map(|(begin, group)| Some((group, name.strip_prefix(begin)?)));
    Cow::Owned(group.map_or_else(|| format!("run/{name}"), |(group, rest)| format!("{group}{rest}")))
}

#[cfg(test)]
mod tests {
    use super::super::names::MEASURED;
    use super::*;
    use sgs_selfplay::RoundMetrics;
    use std::collections::BTreeSet;

    #[test]
    fn every_metric_has_a_distinct_tag_in_a_group() {
        let histograms =
            ["target_solve_rates", "conjecture_solve_rates", "guide_scores", "normalised_rewards"];
        let names: Vec<&str> = RoundMetrics::DESCRIPTIONS
            .iter()
            .chain(MEASURED)
            .map(|(name, _)| *name)
            .chain(histograms)
            .chain(["target_pass_at_8", "conjecture_pass_at_8"])
            .collect();
        let tags: BTreeSet<String> = names.iter().map(|name| tag(name).into_owned()).collect();
        assert_eq!(tags.len(), names.len(), "two numbers share a tag");
        let groups: BTreeSet<&str> = tags.iter().filter_map(|tag| tag.split('/').next()).collect();
        let expected =
            ["conjecturer", "conjectures", "guide", "memory", "run", "solver", "targets", "time"].into();
        assert_eq!(groups, expected);
        for (name, expected) in [
            ("solver_loss", "solver/loss"),
            ("conjectures_accepted", "conjectures/accepted"),
            ("time_round_s", "time/round_s"),
            ("held_out/pass@1", "held_out/pass@1"),
            ("generations", "run/generations"),
        ] {
            assert_eq!(tag(name), expected);
        }
    }
}
