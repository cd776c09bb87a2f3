//! Breaks text into lines of a terminal.

/// Breaks each line that is longer than `columns` between words; its rest is indented by four columns more.
pub fn fitted(text: &str, columns: usize) -> String {
    let fit = |line: &str| match width(line) > columns {
        true => wrapped(line, columns, line.len() - line.trim_start_matches(' ').len() + 4),
        false => line.to_owned(),
    };
    text.split('\n').map(fit).collect::<Vec<_>>().join("\n")
}

/// Splits a text at its blanks, which stay at the ends of the words. A command between backticks is one word, because a
/// line break would damage its copy.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let code = rest.find('`').filter(|start| !rest[..*start].contains(' '));
        let after_code = code.and_then(|start| Some(start + 2 + rest[start + 1..].find('`')?)).unwrap_or(0);
        let end = rest[after_code..].find(' ').map_or(rest.len(), |blank| after_code + blank + 1);
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word).filter(|word| !word.is_empty())
    })
}

/// Returns the number of columns of a text on a terminal, where codes of colours have none.
fn width(text: &str) -> usize {
    let codes = text.split("\x1b[").skip(1).filter_map(|rest| Some(rest.find('m')? + 3));
    text.chars().count() - codes.sum::<usize>()
}

/// Breaks a text between words into lines of at most `columns` columns, unless a word is longer.
pub fn wrapped(text: &str, columns: usize, indent: usize) -> String {
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for word in words(text) {
        let visible = width(word.trim_end());
        if at > indent && at + visible > columns {
            out.truncate(out.trim_end().len());
            out.push_str(&format!("\n{:indent$}", ""));
            at = indent;
        }
        out.push_str(word);
        at += width(word);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        let text = "solved      22.0% of 100 targets ever; 6.2% now";
        assert_eq!(wrapped(text, 80, 12), text);
        let expected = "solved      22.0% of 100\n            targets ever;\n            6.2% now";
        assert_eq!(wrapped(text, 25, 12), expected);
        assert_eq!(wrapped("next        /a/long/path", 15, 12), "next        /a/long/path");
    }

    #[test]
    fn lines_that_do_not_fit_are_broken_between_words_and_commands() {
        let text = "error: the run exists: `sgs resume runs/a` continues it\n  because: of it";
        assert_eq!(fitted(text, 80), text);
        assert_eq!(
            fitted(text, 30),
            "error: the run exists:\n    `sgs resume runs/a`\n    continues it\n  because: of it"
        );
        // A symbol of set.mm is no command.
        assert_eq!(fitted("A = `' B", 6), "A = `'\n    B");
        // Colours need no columns.
        assert_eq!(fitted("\x1b[31mwarning:\x1b[0m no", 11), "\x1b[31mwarning:\x1b[0m no");
        assert_eq!(fitted("\x1b[31mwarning:\x1b[0m no", 10), "\x1b[31mwarning:\x1b[0m\n    no");
    }
}
