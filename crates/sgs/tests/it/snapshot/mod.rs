//! The reproducible results of a run, as text for comparisons.

use sgs_rundir::RunView;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// Returns all rows and metrics of a run, except measurements of time and memory, and hashes of its last weights.
pub fn snapshot(run: &Path) -> BTreeMap<String, String> {
    let view = RunView::open(run).expect("a run");
    let mut out = BTreeMap::new();
    for round in view.rounds().expect("rounds") {
        round.check().expect("complete files");
        let number = round.round();
        for row in round.rollouts().expect("rollouts") {
            let row = row.expect("a row");
            let key = format!("{number} rollout {} {}", row.problem, row.index);
            let value = format!(
                "{:?} {:?} {:?} {:?}",
                row.sample.tokens, row.verdict, row.weight, row.sample.log_probs
            );
            assert!(out.insert(key.clone(), value).is_none(), "{key} occurs twice");
        }
        for row in round.conjectures().expect("conjectures") {
            let row = row.expect("a row");
            let key = format!("{number} conjecture {} {}", row.target, row.index);
            let value =
                format!("{:?} {:?} {:?} {:?}", row.sample.tokens, row.status, row.r_synth, row.weight);
            assert!(out.insert(key.clone(), value).is_none(), "{key} occurs twice");
        }
        for row in round.reviews().expect("reviews") {
            let row = row.expect("a row");
            let key = format!("{number} review {} {}", row.conjecture, row.index);
            assert!(
                out.insert(key.clone(), format!("{:?}", row.sample.tokens)).is_none(),
                "{key} occurs twice"
            );
        }
        for (name, value) in round.metrics().expect("metrics").scalars {
            let measured = ["time_", "memory", "_per_s", "records_repeated", "rank_"];
            if !measured.iter().any(|m| name.contains(m)) {
                out.insert(format!("{number} metric {name}"), format!("{value:?}"));
            }
        }
    }
    for evaluation in view.evaluations().expect("evaluations") {
        for row in evaluation.problems().expect("a table") {
            let row = row.expect("a row");
            let key = format!("{} evaluation {:?} {}", evaluation.after, row.set, row.id);
            let value = format!("{} {} {:?}", row.judged, row.proved, row.proof);
            assert!(out.insert(key.clone(), value).is_none(), "{key} occurs twice");
        }
    }
    // Only the weights show the effect of the last update.
    if let Some(last) = view.checkpoints().newest_valid(u32::MAX).expect("checkpoints") {
        for role in ["solver", "conjecturer"] {
            let weights = std::fs::read(last.directory.join(role).join("model.safetensors"));
            let mut hash = DefaultHasher::new();
            weights.ok().hash(&mut hash);
            out.insert(format!("weights of {role} after {}", last.round), format!("{:x}", hash.finish()));
        }
    }
    out
}
