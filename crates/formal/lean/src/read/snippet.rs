//! Splits a complete file into header and body, as in the paper's (unused) batch path.

/// Splits a file at its first line that is neither blank nor begins with `import`, `open` or `set_option`. Every import of
/// Mathlib becomes `import Mathlib`, repeated lines of the header are dropped, and the header ends in two line breaks.
pub fn split_snippet(text: &str) -> (String, String) {
    let is_header = |line: &str| {
        line.trim().is_empty()
            || ["import ", "open ", "set_option "].iter().any(|word| line.starts_with(word))
    };
    let body_at = text.lines().position(|line| !is_header(line)).unwrap_or(usize::MAX);
    let mut header: Vec<&str> = Vec::new();
    for line in text.lines().take(body_at).filter(|line| !line.trim().is_empty()) {
        let line = if line.starts_with("import Mathlib") { "import Mathlib" } else { line };
        if !header.contains(&line) {
            header.push(line);
        }
    }
    let body: Vec<&str> = text.lines().skip(body_at).collect();
    (format!("{}\n\n", header.join("\n")), body.join("\n"))
}
