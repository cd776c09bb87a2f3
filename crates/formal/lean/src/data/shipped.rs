//! The data sets that are part of the program.

use super::read::{collect, read_text};
use super::stream::{Records, stream};
use super::target::{DataSetError, Target};
use sgs_selfplay::Verdict;

/// Returns the paper's 3,323 targets, in its order.
pub fn d3k() -> Result<Vec<Target>, DataSetError> {
    let bytes: &[u8] = include_bytes!("../../data/D_3k.json.zst");
    let text = zstd::Decoder::new(bytes);
    let text = text.map_err(|error| DataSetError::Io { path: "D_3k.json.zst".into(), error })?;
    Ok(collect(|take| stream("D_3k.json", text, Records::new("", take)))?.targets)
}

/// Returns the theorems of our small set for core Lean of any version, each with a correct proof.
pub fn core() -> Result<Vec<Target>, DataSetError> {
    let text = include_str!("../../data/core.jsonl");
    let mut targets = read_text("core.jsonl", text, "")?.targets;
    targets.retain(|target| target.expect == Some(Verdict::Proved));
    Ok(targets)
}

/// Returns the targets of the size `lean-core`: composed theorems that the shipped model rarely proves, each with a proof.
pub fn composed() -> Result<Vec<Target>, DataSetError> {
    Ok(read_text("composed.jsonl", include_str!("../../data/composed.jsonl"), "")?.targets)
}

/// Returns held-out problems like those of [`composed`]. No model is trained on them.
pub fn composed_held_out() -> Result<Vec<Target>, DataSetError> {
    let text = include_str!("../../data/composed-held-out.jsonl");
    Ok(read_text("composed-held-out.jsonl", text, "")?.targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_sets_are_complete() {
        let d3k = d3k().unwrap();
        assert_eq!(d3k.len(), 3323);
        assert!(d3k.iter().all(|t| t.toolchain.as_deref() == Some("v4.15.0")));
        let core = core().unwrap();
        assert!(
            core.len() >= 60 && core.iter().all(|t| t.toolchain.is_none() && t.problem.context.is_empty())
        );
    }
}
