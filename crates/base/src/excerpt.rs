//! Shortens texts of files and other programs, so that they fit into an error message.

use std::borrow::Cow;

/// Maximum number of lines of another program's output in an error message.
pub const MOST_LINES: usize = 20;
/// Maximum size in bytes of another program's output in an error message.
pub const MOST_BYTES: usize = 4096;
/// Maximum number of characters of a quoted line.
const MOST_CHARACTERS: usize = 100;

/// Returns the end of what another program has printed, which usually contains the reason of its failure: at most
/// [`MOST_LINES`] lines and [`MOST_BYTES`] bytes. A text that was shortened begins with `…`.
pub fn end_of(text: &str) -> Cow<'_, str> {
    last_lines(text, MOST_LINES)
}

/// Returns the end of a text like [`end_of`], with at most `lines` lines.
pub fn last_lines(text: &str, lines: usize) -> Cow<'_, str> {
    let text = text.trim();
    let most = text.len().saturating_sub(MOST_BYTES);
    let by_bytes = (most..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let mut starts = text.rmatch_indices('\n').map(|(at, _)| at + 1);
    let by_lines = starts.nth(lines.saturating_sub(1)).unwrap_or(0);
    match by_bytes.max(by_lines) {
        0 => Cow::Borrowed(text),
        from if from == by_lines => Cow::Owned(format!("…\n{}", &text[from..])),
        from => Cow::Owned(format!("…{}", &text[from..])),
    }
}

/// Returns the beginning and the end of a reason, which together have at most 300 characters.
pub fn ends_of(reason: &str) -> Cow<'_, str> {
    let Some((begin, _)) = reason.char_indices().nth(MOST_CHARACTERS) else { return Cow::Borrowed(reason) };
    match reason.char_indices().nth_back(2 * MOST_CHARACTERS - 1) {
        Some((end, _)) if end > begin => Cow::Owned(format!("{} … {}", &reason[..begin], &reason[end..])),
        _ => Cow::Borrowed(reason),
    }
}

/// Returns the first characters of a line of a user's file. A line that was shortened ends with `…`.
pub fn beginning_of(line: &str) -> Cow<'_, str> {
    let line = line.trim();
    match line.char_indices().nth(MOST_CHARACTERS) {
        None => Cow::Borrowed(line),
        Some((end, _)) => Cow::Owned(format!("{}…", &line[..end])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_keeps_its_ends() {
        let short = "∀".repeat(300);
        assert_eq!(ends_of(&short), short);
        let long = format!("{}x{}", "∀".repeat(100), "∃".repeat(200));
        assert_eq!(ends_of(&long), format!("{} … {}", "∀".repeat(100), "∃".repeat(200)));
    }

    #[test]
    fn long_output_is_cut_to_its_last_lines_and_bytes() {
        assert_eq!(end_of(" one\ntwo\n"), "one\ntwo");
        assert_eq!(end_of(""), "");
        let lines: Vec<String> = (1..=30).map(|i| format!("line {i}")).collect();
        let end = end_of(&lines.join("\n")).into_owned();
        assert_eq!(end, format!("…\n{}", lines[10..].join("\n")));
        assert_eq!(end_of(&lines[..20].join("\n")), lines[..20].join("\n"));
        assert_eq!(last_lines(&lines.join("\n"), 1), "…\nline 30");
        // A character is not split.
        let long = format!("a{}", "é".repeat(MOST_BYTES));
        let end = end_of(&long).into_owned();
        assert!(end.starts_with("…é") && end.len() <= MOST_BYTES + "…".len(), "{} bytes", end.len());
    }

    #[test]
    fn a_long_line_is_cut_after_its_beginning() {
        assert_eq!(beginning_of(" a line\n"), "a line");
        assert_eq!(beginning_of(&"ψ".repeat(200)), format!("{}…", "ψ".repeat(100)));
    }
}
