//! Fenced code blocks of a completion.

/// Returns the code of all fenced blocks whose language is Lean or missing, in order, without blank ones. Fences are paired
/// from the start, and the last one may be open.
pub fn lean_blocks(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("```") {
        let word = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
        let (language, code) = after.split_at(word);
        let (code, next) = code.split_once("```").unwrap_or((code, ""));
        let is_lean = ["", "lean4", "lean"].iter().any(|name| language.eq_ignore_ascii_case(name));
        if is_lean && !code.trim().is_empty() {
            found.push(code);
        }
        rest = next;
    }
    found
}
