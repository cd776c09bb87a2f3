//! The rule for the text before a problem's theorem.

use super::{commands, is_among, lex, line_of};

/// Commands that a header may contain. They add no assumptions and run no code.
const COMMANDS: &str = "import open set_option universe universes variable variables namespace section \
    end mutual include omit export def abbrev theorem lemma example instance structure inductive class \
    deriving attribute notation notation3 infix infixl infixr prefix postfix";

/// Checks that a header consists of allowed commands. The judge checks the contents of these commands before Lean
/// elaborates them.
pub(crate) fn check_header(header: &str) -> Result<(), String> {
    let tokens = lex(header);
    let refuse = |what: &str, at: usize| {
        Err(format!(
            "the header contains `{what}` in line {}: a header must not add axioms, `sorry` or code that runs during \
             elaboration, because any statement could be proved with them",
            line_of(header, at)
        ))
    };
    for command in commands(header, &tokens) {
        if !is_among(COMMANDS, &command.keyword) {
            return refuse(&command.keyword, command.range.start);
        }
        if command.modifiers.iter().any(|modifier| modifier == "unsafe") {
            return refuse("unsafe", command.range.start);
        }
    }
    match tokens.iter().find(|token| token.text(header) == "sorry") {
        Some(sorry) => refuse("sorry", sorry.start),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_add_neither_assumptions_nor_code() {
        for allowed in [
            "import Mathlib\nimport Aesop\nset_option maxHeartbeats 400000\nopen BigOperators Real Nat Topology Rat\n",
            "-- no axiom, no sorry\n/-- An `axiom`. -/\ndef f (n : ℕ) := n\n@[simp] theorem one : f 1 = 1 := rfl\n",
            "namespace A\nvariable (n : ℕ) (constant : ℕ)\nlocal notation \"|\" x \"|\" => abs x\nend A\n",
            "noncomputable section\ndef s := \"axiom sorry\"\n",
        ] {
            assert_eq!(check_header(allowed), Ok(()), "{allowed}");
        }
        for (header, what) in [
            ("axiom foo : False\n", "axiom"),
            ("import Mathlib\nopen Real in axiom foo : False", "axiom"),
            ("private axiom foo : False", "axiom"),
            ("constant foo : False", "constant"),
            ("opaque foo : Nat", "opaque"),
            ("unsafe def foo : False := unsafeCast ()", "unsafe"),
            ("instance : Inhabited False := ⟨sorry⟩", "sorry"),
            ("run_cmd Lean.logInfo \"\"", "run_cmd"),
            ("macro \"x\" : tactic => `(tactic| sorry)", "macro"),
            ("#eval 1", "#eval"),
        ] {
            let error = check_header(header).unwrap_err();
            assert!(error.contains(&format!("contains `{what}` in line")), "{header}: {error}");
        }
    }
}
