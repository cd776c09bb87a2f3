//! Fenced code blocks of a completion.

/// A fenced code block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeBlock<'s> {
    /// The word after the opening fence: `lean4`, `lean`, empty, ….
    pub language: &'s str,
    /// The text between the fences.
    pub code: &'s str,
    /// Whether there is a closing fence.
    pub closed: bool,
}

/// Returns all fenced blocks in order. Fences are paired from the start, and the last one may be open.
pub fn blocks(text: &str) -> Vec<CodeBlock<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find("```") {
        let after = &rest[open + 3..];
        let word = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
        let (language, code) = after.split_at(word);
        match code.find("```") {
            Some(close) => {
                found.push(CodeBlock { language, code: &code[..close], closed: true });
                rest = &code[close + 3..];
            }
            None => {
                found.push(CodeBlock { language, code, closed: false });
                break;
            }
        }
    }
    found
}

/// Returns whether a block's language is Lean or missing.
pub(super) fn may_be_lean(block: &CodeBlock<'_>) -> bool {
    let language = block.language;
    language.is_empty() || language.eq_ignore_ascii_case("lean4") || language.eq_ignore_ascii_case("lean")
}
