//! Extracts a conjecture from the Conjecturer's completion.

use super::fence::lean_blocks;
use crate::text::{Bounds, canonical_conjecture, unix_lines};
use sgs_formal::Malformed;

/// Extracts the theorem of the last block of Lean code as a canonical statement without a proof.
///
/// # Errors
/// Returns an error if there is no such block, if it contains more than a theorem, or if it exceeds the limits. The judge
/// examines the statement before Lean elaborates it.
pub fn read_conjecture(completion: &str, bounds: &Bounds) -> Result<String, Malformed> {
    if completion.len() > bounds.bytes * 4 {
        return Err(Malformed::new("too-long", format!("{} bytes", completion.len())));
    }
    let completion = &*unix_lines(completion);
    let code = lean_blocks(completion)
        .pop()
        .ok_or_else(|| Malformed::new("no-code-block", "no fenced block of Lean code"))?;
    bounds.check(code).map_err(|e| Malformed::new("bounds", e))?;
    let statement =
        canonical_conjecture(code).map_err(|e| Malformed::new("not-one-statement", e.to_string()))?;
    if statement.conclusion().is_empty() {
        return Err(Malformed::new("no-conclusion", "nothing between `:` and `:=`"));
    }
    Ok(statement.text)
}

/// Extracts a conjecture as the paper's code does. The conjecture is the text between the last `lean4` fence and the
/// last fence. It must contain exactly one `:= by` and at most one `sorry`, and end in either. Commands before the
/// theorem are kept, so do not use this function for a model that is trained on the result.
pub fn read_conjecture_strict(completion: &str) -> Result<String, Malformed> {
    let refuse = |detail: &str| Err(Malformed::new("strict", detail));
    let Some((_, after)) = completion.rsplit_once("```lean4") else { return refuse("no `lean4` fence") };
    let Some((code, _)) = after.rsplit_once("```") else { return refuse("no closing fence") };
    let code = code.trim();
    if code.matches(":= by").count() != 1 || code.matches("sorry").count() > 1 {
        return refuse("not exactly one `:= by`, or more than one `sorry`");
    }
    if !code.ends_with("sorry") && !code.ends_with(":= by") {
        return refuse("the block does not end in `sorry` or `:= by`");
    }
    let Some((head, _)) = code.split_once(":= by") else { return refuse("no `:= by`") };
    Ok(format!("{head}:= by").trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(code: &str) -> Result<String, String> {
        read_conjecture(code, &Bounds::default()).map_err(|m| m.kind)
    }

    #[test]
    fn statements_are_read_with_any_proof() {
        let expected = Ok("theorem l1 (x : ℝ) : x < x + 1 := by".to_owned());
        for proof in [":= by sorry", ":= sorry", ":= by", ":= by linarith", ":=\n  by\n  sorry", ""] {
            assert_eq!(
                read(&format!("Idea.\n```lean4\ntheorem l1 (x : ℝ) : x < x + 1 {proof}\n```\nSo.")),
                expected,
                "{proof}"
            );
        }
        assert_eq!(read("```lean4\r\ntheorem l1 (x : ℝ) : x < x + 1 := by sorry\r\n```\r\n"), expected);
        assert_eq!(
            read("```lean4\nimport Mathlib\n\n-- no sorry here\nlemma l1 (x : ℝ) : x < x + 1 := by sorry"),
            expected
        );
    }

    #[test]
    fn more_than_a_statement_is_refused() {
        assert_eq!(
            read("```lean4\naxiom cheat : False\ntheorem b : (1:ℕ) = 2 := by sorry\n```"),
            Err("not-one-statement".into())
        );
        assert_eq!(read("nothing"), Err("no-code-block".into()));
    }
}
