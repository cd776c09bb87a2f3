//! Suggestions for unknown names.

use std::cmp::Reverse;

/// Similarity below which nothing is suggested, in 0..=1.
const SIMILAR: f64 = 0.8;

/// Returns `; did you mean `NAME`?` with the known name that resembles `name` most, or nothing if none does.
///
/// Dotted names are compared from the end: `learning_rate` and `solver.learning_rat` both resemble
/// `algorithm.solver.learning_rate`. The shortest of equally similar names is suggested.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let nearest =
        known.into_iter().map(|known| (similarity(name, known), known)).filter(|(s, _)| *s > SIMILAR);
    let nearest =
        nearest.max_by(|a, b| a.0.total_cmp(&b.0).then(Reverse(a.1.len()).cmp(&Reverse(b.1.len()))));
    nearest.map(|(_, known)| format!("; did you mean `{known}`?")).unwrap_or_default()
}

/// Compares as many trailing components as `name` has. The last component alone counts slightly less, so that the right
/// table decides between equal keys.
fn similarity(name: &str, known: &str) -> f64 {
    let name_parts: Vec<&str> = name.split('.').collect();
    let parts: Vec<&str> = known.split('.').collect();
    let end = parts[parts.len().saturating_sub(name_parts.len())..].join(".");
    let last = |parts: &[&str]| parts.last().copied().unwrap_or_default().to_owned();
    alike(name, &end).max(0.98 * alike(&last(&name_parts), &last(&parts)))
}

/// Compares two names. A single mistake in a short name counts little.
fn alike(name: &str, known: &str) -> f64 {
    let is_typing_error = name.len() > 2 && strsim::osa_distance(name, known) == 1;
    strsim::jaro_winkler(name, known).max(if is_typing_error { 0.97 } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_of_all_tables_is_suggested() {
        let keys = [
            "rounds",
            "algorithm.conjecturer.learning_rate",
            "algorithm.solver.learning_rate",
            "algorithm.rollouts_per_problem",
            "sampling.endpoint.url",
        ];
        for (name, meant) in [
            ("learning_rate", "algorithm.solver.learning_rate"),
            ("conjecturer.learning_rate", "algorithm.conjecturer.learning_rate"),
            ("algorithm.conjecturer.learning_rat", "algorithm.conjecturer.learning_rate"),
            ("training.learning_rate", "algorithm.solver.learning_rate"),
            ("algorithm.learning_rate", "algorithm.solver.learning_rate"),
            ("rollouts", "algorithm.rollouts_per_problem"),
            ("round", "rounds"),
            ("ruonds", "rounds"),
        ] {
            assert_eq!(did_you_mean(name, keys), format!("; did you mean `{meant}`?"), "{name}");
        }
        assert_eq!(did_you_mean("rum", ["resume", "run", "report"]), "; did you mean `run`?");
        assert_eq!(did_you_mean("frobnicate", keys), "");
    }
}
