//! Fenced code blocks of a completion.

/// One fenced block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'s> {
    /// The word after the opening fence: `lean4`, `lean`, empty, ….
    pub language: &'s str,
    /// The text between the fences.
    pub code: &'s str,
    /// Whether the closing fence is there.
    pub closed: bool,
}

/// All fenced blocks, in order. Fences pair up from the start; the last may be open.
pub fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find("```") {
        let after = rest.get(open + 3..).unwrap_or_default();
        let word = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
        let (language, code) = after.split_at(word);
        match code.find("```") {
            Some(close) => {
                found.push(Block { language, code: code.get(..close).unwrap_or_default(), closed: true });
                rest = code.get(close + 3..).unwrap_or_default();
            }
            None => {
                found.push(Block { language, code, closed: false });
                break;
            }
        }
    }
    found
}

/// Whether a block's language says Lean, or nothing.
pub(super) fn may_be_lean(block: &Block<'_>) -> bool {
    let language = block.language;
    language.is_empty() || language.eq_ignore_ascii_case("lean4") || language.eq_ignore_ascii_case("lean")
}
