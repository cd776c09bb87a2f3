//! Extracts the three scores from the Guide's completion.

use sgs_formal::Malformed;
use sgs_selfplay::Review;

/// Extracts the three scores: relevance 0 to 5, redundancy 0 to 1, complexity 0 to 4.
pub fn read_review(completion: &str) -> Result<Review, Malformed> {
    let review = read_review_strict(completion)?;
    for (name, value, limit) in [
        ("relevance", review.relevance, 5.0),
        ("redundancy", review.redundancy, 1.0),
        ("complexity", review.complexity, 4.0),
    ] {
        if !(0.0..=limit).contains(&value) {
            return Err(Malformed::new(
                "out-of-range",
                format!("{name} is {value}, not between 0 and {limit}"),
            ));
        }
    }
    Ok(review)
}

/// Extracts the three scores as the paper's code does: the last of each tag, as Python's `float()`, in any range.
pub fn read_review_strict(completion: &str) -> Result<Review, Malformed> {
    Ok(Review {
        relevance: score(completion, "relevance")?,
        redundancy: score(completion, "redundancy")?,
        complexity: score(completion, "conclusion_complexity")?,
    })
}

fn score(text: &str, name: &str) -> Result<f64, Malformed> {
    let (begin, end) = (format!("<begin_{name}_score>"), format!("<end_{name}_score>"));
    let from = text.rfind(&begin).map(|at| at + begin.len());
    let inside = from.zip(text.rfind(&end)).and_then(|(from, to)| text.get(from..to));
    let Some(inside) = inside else {
        return Err(Malformed::new("no-score", format!("no {begin}…{end}")));
    };
    python_float(inside).ok_or_else(|| {
        let shown: String = inside.trim().chars().take(40).collect();
        Malformed::new("not-a-number", format!("{name}: `{shown}`"))
    })
}

/// Parses a number as Python's `float(str)`: with surrounding blanks, `inf` and `nan` in any case, and single underscores
/// between digits.
fn python_float(text: &str) -> Option<f64> {
    let text = text.trim();
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let misplaced = |at: usize| !(digit(at.checked_sub(1)) && digit(Some(at + 1)));
    if bytes.iter().enumerate().any(|(at, b)| *b == b'_' && misplaced(at)) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_like_python() {
        for (text, value) in
            [(" 1e0\n", 1.0), ("1_0", 10.0), ("+.5", 0.5), ("5.", 5.0), ("Infinity", f64::INFINITY)]
        {
            assert_eq!(python_float(text), Some(value), "{text}");
        }
        assert!(python_float("NaN").is_some_and(f64::is_nan));
        for text in ["3/5", "high", "", "1__0", "_1", "1_", "0x1", "1 2"] {
            assert_eq!(python_float(text), None, "{text}");
        }
    }

    #[test]
    fn scores_outside_of_the_rubric_are_refused() {
        let text = |r: &str, d: &str, c: &str| {
            format!(
                "<begin_relevance_score>{r}<end_relevance_score><begin_redundancy_score>{d}<end_redundancy_score><begin_conclusion_complexity_score>{c}<end_conclusion_complexity_score>"
            )
        };
        assert_eq!(
            read_review(&text("4", "1", "2")),
            Ok(Review { relevance: 4.0, redundancy: 1.0, complexity: 2.0 })
        );
        for bad in [
            text("100", "0", "0"),
            text("nan", "0", "0"),
            text("5", "2", "0"),
            text("5", "0", "5"),
            text("-1", "0", "0"),
        ] {
            assert_eq!(read_review(&bad).unwrap_err().kind, "out-of-range");
        }
    }
}
