//! The sets that ship: the paper's targets, and a small one of our own that needs no Mathlib.

use super::read::{ReadError, Target, read_text};
use sgs_selfplay::Verdict;

/// The toolchain of the paper's runs over D_3k.
pub const D3K_TOOLCHAIN: &str = "v4.15.0";

/// The paper's 3,323 targets, in its order.
///
/// # Errors
/// The program is damaged.
pub fn d3k() -> Result<Vec<Target>, ReadError> {
    let bytes: &[u8] = include_bytes!("../../../../../data/lean/D_3k.json.zst");
    let text = zstd::stream::decode_all(bytes)
        .and_then(|bytes| {
            String::from_utf8(bytes).map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e))
        })
        .map_err(|error| ReadError::Io { path: "D_3k.json.zst".into(), error })?;
    Ok(read_text("D_3k.json", &text, "")?.targets)
}

/// The theorems of the small set: core Lean, any version, each with a proof that holds.
///
/// # Errors
/// The program is damaged.
pub fn core() -> Result<Vec<Target>, ReadError> {
    let text = include_str!("../../../../../data/lean/core.jsonl");
    let mut targets = read_text("core.jsonl", text, "")?.targets;
    targets.retain(|target| target.expect == Some(Verdict::Proved));
    Ok(targets)
}

/// Targets of the size `lean-core`: composed theorems that the model which ships does not prove easily, each with a proof.
///
/// # Errors
/// The program is damaged.
pub fn composed() -> Result<Vec<Target>, ReadError> {
    Ok(read_text("composed.jsonl", include_str!("../../../../../data/lean/composed.jsonl"), "")?.targets)
}

/// Problems like them that nothing is trained on.
///
/// # Errors
/// The program is damaged.
pub fn composed_held_out() -> Result<Vec<Target>, ReadError> {
    let text = include_str!("../../../../../data/lean/composed-held-out.jsonl");
    Ok(read_text("composed-held-out.jsonl", text, "")?.targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_sets_are_whole() {
        let d3k = d3k().unwrap();
        assert_eq!(d3k.len(), 3323);
        assert!(d3k.iter().all(|t| t.toolchain.as_deref() == Some("v4.15.0")));
        let core = core().unwrap();
        assert!(
            core.len() >= 60 && core.iter().all(|t| t.toolchain.is_none() && t.problem.context.is_empty())
        );
    }
}
