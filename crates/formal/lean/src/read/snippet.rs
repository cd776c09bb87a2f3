//! A whole file as header and body, as the paper's (unused) batch path cuts it.

/// Splits a file at its first line that is neither blank nor `import`, `open` or `set_option`. Any import of
/// Mathlib becomes `import Mathlib`; a header line that repeats is dropped; the header ends in two line breaks.
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
