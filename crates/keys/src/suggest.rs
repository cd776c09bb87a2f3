//! Suggestions for unknown names.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

/// Similarity below which nothing is suggested, in 0..=1.
const SIMILAR: f64 = 0.8;

/// Returns `; did you mean `NAME`?` with the known name that resembles `name` most, or nothing if none does.
///
/// Dotted names are compared from the end: `learning_rate` and `solver.learning_rat` both resemble
/// `algorithm.solver.learning_rate`. The shortest of equally similar names is suggested, and a key of [`is_of_some_runs`]
/// only if no other key is almost as similar.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let nearest = nearest(known.into_iter().map(|known| (similarity(name, known), known)));
    nearest.map(|known| format!("; did you mean `{known}`?")).unwrap_or_default()
}

/// Returns the name with the greatest similarity, and the shortest of equally similar names, or `None` if none is similar.
fn nearest<'a>(known: impl Iterator<Item = (f64, &'a str)>) -> Option<&'a str> {
    let similar = known.filter(|(s, _)| *s > SIMILAR);
    let nearest =
        similar.max_by(|a, b| a.0.total_cmp(&b.0).then(Reverse(a.1.len()).cmp(&Reverse(b.1.len()))));
    nearest.map(|(_, known)| known)
}

/// Returns the message about a path that does not exist, with the path of [`did_you_mean_path`].
pub fn no_such_path(path: &Path, is_suitable: impl Fn(&Path) -> bool) -> String {
    format!("{}: there is no such file or folder{}", path.display(), did_you_mean_path(path, is_suitable))
}

/// Returns `; did you mean `PATH`?` with the existing path that resembles a missing one most, if there is one that
/// `is_suitable`, or nothing. Only the first missing part of the path may differ.
pub fn did_you_mean_path(path: &Path, is_suitable: impl Fn(&Path) -> bool) -> String {
    let near = near_path(path, is_suitable);
    near.map(|near| format!("; did you mean `{}`?", near.display())).unwrap_or_default()
}

fn near_path(path: &Path, is_suitable: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let is_missing = |part: &&Path| !part.as_os_str().is_empty() && !part.exists();
    let missing = path.ancestors().take_while(is_missing).last()?;
    let (rest, parent) = (path.strip_prefix(missing).ok()?, missing.parent()?);
    let name = missing.file_name()?.to_str()?;
    let with_name = |name: &str| {
        let meant = missing.with_file_name(name);
        // Joining an empty path would add a slash.
        if rest.as_os_str().is_empty() { meant } else { meant.join(rest) }
    };
    let folder = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let known: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let known = known.iter().filter(|known| is_suitable(&with_name(known)));
    nearest(known.map(|known| (alike_files(name, known), known.as_str()))).map(with_name)
}

/// Compares the names of two files. An extension that both have does not count.
fn alike_files(name: &str, known: &str) -> f64 {
    match (name.rsplit_once('.'), known.rsplit_once('.')) {
        (Some((name, a)), Some((known, b))) if a == b => alike(name, known),
        _ => alike(name, known),
    }
}

/// Similarity of last components from which keys of different tables are similar.
const ALMOST_EQUAL: f64 = 0.95;

/// Tables of keys that have an effect in some runs only.
const OF_SOME_RUNS: [&str; 3] = ["external.", "lean.", "sampling.endpoint."];

/// By how much a key of [`OF_SOME_RUNS`] is less similar to a name without a table.
const RARELY_MEANT: f64 = 0.05;

/// Returns whether a key has an effect only in runs with Lean, an external system or an endpoint.
pub fn is_of_some_runs(key: &str) -> bool {
    OF_SOME_RUNS.iter().any(|table| key.starts_with(table))
}

/// Compares as many trailing components as `name` has. If only the last component is similar, the key of another table is
/// less similar than a key of the same table.
fn similarity(name: &str, known: &str) -> f64 {
    // `batch_size` may be meant as `batch.size`.
    let words = |name: &str| name.replace(['.', '_'], "");
    if words(name) == words(known) {
        return 1.0;
    }
    let pairs: Vec<f64> = name.rsplit('.').zip(known.rsplit('.')).map(|(a, b)| alike(a, b)).collect();
    let last = pairs.first().copied().unwrap_or(0.0);
    let parts = name.split('.').count();
    let elsewhere = if last >= ALMOST_EQUAL { 0.93 * last } else { 0.0 };
    let rarely_meant = if parts == 1 && is_of_some_runs(known) { RARELY_MEANT } else { 0.0 };
    (pairs.iter().sum::<f64>() / parts as f64).max(elsewhere) - rarely_meant
}

/// Compares two names. A single mistake in a short name counts little, and so do missing words.
fn alike(name: &str, known: &str) -> f64 {
    let is_error = name.len() > 2 && strsim::osa_distance(name, known) == 1;
    let is_a_word = known.split(['_', '-']).any(|word| word == name);
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
            "algorithm.batch",
            "algorithm.batch.size",
            "algorithm.optimizer.batch_size",
            "algorithm.conjecturer.target_share",
            "problems.set",
            "sampling.batch",
            "sampling.memory_mib",
            "sampling.endpoint.url",
            "lean.limits.memory",
            "lean.limits.output",
            "external.batch",
            "external.memory_mib",
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
            ("batchsize", "algorithm.optimizer.batch_size"),
            ("sampling.batchsize", "sampling.batch"),
            ("sampling.batch_size", "sampling.batch"),
            ("optimizer.batchsize", "algorithm.optimizer.batch_size"),
            ("training.batch_size", "algorithm.optimizer.batch_size"),
            ("algorithm.batchsize", "algorithm.batch.size"),
            ("algorithm.batch_size", "algorithm.batch.size"),
            ("round", "rounds"),
            ("ruonds", "rounds"),
            ("batch", "sampling.batch"),
            ("memory_mib", "sampling.memory_mib"),
            ("memory", "sampling.memory_mib"),
            ("limits.memory", "lean.limits.memory"),
            ("external.memry_mib", "external.memory_mib"),
            ("output", "lean.limits.output"),
            ("url", "sampling.endpoint.url"),
        ] {
            assert_eq!(did_you_mean(name, keys), format!("; did you mean `{meant}`?"), "{name}");
        }
        assert_eq!(did_you_mean("rum", ["resume", "run", "report"]), "; did you mean `run`?");
        for name in ["frobnicate", "problems.targets"] {
            assert_eq!(did_you_mean(name, keys), "", "{name}");
        }
    }

    #[test]
    fn the_nearest_path_is_suggested() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for folder in ["runs/sgs-metamath-quick", "runs/cispo-metamath-quick", "runs/sweep/cispo-seed1"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["proofs.jsonl", "a.toml", "runs/sgs-metamath-quid"] {
            std::fs::write(at(file), "").unwrap();
        }
        let told = |path: &str, is_suitable: fn(&Path) -> bool| {
            let told = no_such_path(&at(path), is_suitable);
            let (_, near) = told.split_once(": there is no such file or folder").unwrap();
            near.replace(&format!("{}/", dir.path().display()), "")
        };
        for (wrong, meant) in [
            ("runs/sgs-metamath-quik", "runs/sgs-metamath-quick"),
            ("runs/sgs-metamath-quik/", "runs/sgs-metamath-quick"),
            ("run/sgs-metamath-quick", "runs/sgs-metamath-quick"),
            ("runs/swep/cispo-seed1", "runs/sweep/cispo-seed1"),
        ] {
            assert_eq!(told(wrong, Path::is_dir), format!("; did you mean `{meant}`?"));
        }
        assert_eq!(told("proof.jsonl", Path::is_file), "; did you mean `proofs.jsonl`?");
        for wrong in ["runs/other", "run/other", "runs/sgs-metamath-quick/report"] {
            assert_eq!(told(wrong, Path::is_dir), "");
        }
        // Names that share only their extension are not similar.
        for wrong in ["b.toml", "long.jsonl"] {
            assert_eq!(told(wrong, Path::exists), "");
        }
    }
}
