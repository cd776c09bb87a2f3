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
    let pairs: Vec<f64> = name.rsplit('.').zip(known.rsplit('.')).map(|(a, b)| alike(a, b)).collect();
    let last = pairs.first().copied().unwrap_or(0.0);
    let parts = name.split('.').count();
    (pairs.iter().sum::<f64>() / parts as f64).max(0.98 * last)
}

/// Compares two names. A single mistake in a short name counts little, and so do missing words.
fn alike(name: &str, known: &str) -> f64 {
    let is_error = name.len() > 2 && strsim::osa_distance(name, known) == 1;
    let is_a_word = known.split('_').any(|word| word == name);
    strsim::jaro_winkler(name, known).max(if is_error || is_a_word { 0.97 } else { 0.0 })
}

/// Returns whether a name differs from a known one in case and at most one letter, or in the order of two.
pub fn is_typing_error(name: &str, known: &str) -> bool {
    strsim::osa_distance(&name.to_lowercase(), &known.to_lowercase()) <= 1
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
            ("conjecturer.rate", "algorithm.conjecturer.learning_rate"),
            ("solver.rate", "algorithm.solver.learning_rate"),
            ("round", "rounds"),
            ("ruonds", "rounds"),
        ] {
            assert_eq!(did_you_mean(name, keys), format!("; did you mean `{meant}`?"), "{name}");
        }
        assert_eq!(did_you_mean("rum", ["resume", "run", "report"]), "; did you mean `run`?");
        assert_eq!(did_you_mean("frobnicate", keys), "");
    }
}
