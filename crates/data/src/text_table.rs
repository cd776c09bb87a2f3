//! Tables as plain text.

/// Formats rows in columns: the first column left-aligned, the others right-aligned.
pub fn text_table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let render = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (i, (cell, &width)) in cells.zip(&widths).enumerate() {
            if i == 0 {
                text.push_str(&format!("{cell:<width$}"));
            } else {
                text.push_str(&format!("  {cell:>width$}"));
            }
        }
        text.truncate(text.trim_end().len());
        text
    };
    let mut lines = vec![render(&mut header.iter().copied())];
    lines.extend(rows.iter().map(|row| render(&mut row.iter().map(String::as_str))));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["1".to_owned(), "23".to_owned()], vec!["100".to_owned(), "4".to_owned()]];
        assert_eq!(text_table(&["round", "n"], &rows), "round   n\n1      23\n100     4");
    }
}
