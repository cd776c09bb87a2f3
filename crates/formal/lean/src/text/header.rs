//! The rule for the text before a problem's theorem.

use super::declaration::variable_binders;
use super::{SourceCommand, commands, is_among, lex, line_of, words};
use sgs_base::excerpt;

/// Commands that a header may contain. They add no assumptions and run no code.
const COMMANDS: &str = "import open set_option universe universes variable variables namespace section \
    end mutual include omit export def abbrev theorem lemma example instance structure inductive class \
    deriving attribute notation notation3 infix infixl infixr prefix postfix";

/// Checks that a header consists of allowed commands, so that an import names those that the judge would refuse.
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

/// Commands that give symbols another meaning.
const NOTATIONS: &str = "notation notation3 infix infixl infixr prefix postfix";

/// Types that assume nothing, because they have elements.
const INHABITED: &str = "ℕ ℤ ℚ ℝ ℂ Nat Int Rat Real Complex Bool Char String";

/// Returns the commands of a header that add hypotheses, instances or notations to a statement that does not show them,
/// each as a line. Variables that stand for types, numbers or strings are left out.
///
/// The text alone does not show whether a variable is a hypothesis, so every other `variable` counts, also in a closed
/// section. What definitions, `open` and options change is not noticed.
pub fn assumptions(header: &str) -> Vec<String> {
    let found = commands(header, &lex(header));
    let text_of = |command: &SourceCommand| header.get(command.range.clone()).unwrap_or_default();
    let mut assuming = Vec::new();
    for (index, command) in found.iter().enumerate() {
        let text = text_of(command);
        let assumes = match command.keyword.as_str() {
            "variable" | "variables" => may_assume(text),
            word if is_among(NOTATIONS, word) => true,
            // Either the keyword or an attribute: no other part of a command contains these words.
            _ => words(text).iter().any(|word| is_among("instance default_instance", word)),
        };
        if assumes {
            // `attribute [instance] …` and `deriving instance …` are split at the keyword.
            let before = index.checked_sub(1).map(|before| &found[before]).filter(|before| {
                match words(text_of(before)).as_slice() {
                    ["deriving"] | ["attribute", "["] => true,
                    ["attribute", "[", modifier] => is_among("local scoped", modifier),
                    _ => false,
                }
            });
            let start = before.unwrap_or(command).range.start;
            let whole = header.get(start..command.range.end).unwrap_or_default();
            let line = whole.split_whitespace().collect::<Vec<_>>().join(" ");
            assuming.push(excerpt::beginning_of(&line).into_owned());
        }
    }
    assuming
}

/// Returns whether a `variable` command binds something that could be a hypothesis or an instance.
fn may_assume(command: &str) -> bool {
    let tokens = lex(command);
    let Some(binders) = variable_binders(command, &tokens) else { return true };
    binders.iter().any(|binder| {
        let within = |range: &std::ops::Range<usize>| command.get(range.clone()).unwrap_or_default();
        let words = words(within(&binder.ty));
        let is_plain = match words.as_slice() {
            // It only changes the brackets of an earlier variable.
            [] => true,
            ["Type" | "Sort" | "Prop"] => true,
            ["Type" | "Sort", "*" | "_"] => true,
            ["Type" | "Sort", level] => level.chars().all(char::is_alphanumeric),
            [one] => is_among(INHABITED, one),
            _ => false,
        };
        within(&binder.range).starts_with('[') || !is_plain
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hypotheses_instances_and_notations_of_a_header_are_named() {
        for (header, named) in [
            ("variable (h : False)\ninclude h\n", "variable (h : False)"),
            ("class C : Prop where f : False\nvariable [C]\n", "variable [C]"),
            (
                "section\nvariable {α : Type*} [inst : Inhabited\n  α]\nend",
                "variable {α : Type*} [inst : Inhabited α]",
            ),
            ("variable (f : Type → False)", "variable (f : Type → False)"),
            ("variable (x : Fin 0)", "variable (x : Fin 0)"),
            ("open Nat in\nvariable {p : Prop} {h : p}", "variable {p : Prop} {h : p}"),
            ("variable x : 1 = 2", "variable x : 1 = 2"),
            (
                "instance (priority := high) : OfNat Nat 2 := ⟨1⟩\n",
                "instance (priority := high) : OfNat Nat 2 := ⟨1⟩",
            ),
            ("@[reducible, instance] def i : C := ⟨x⟩", "@[reducible, instance] def i : C := ⟨x⟩"),
            (
                "attribute [local instance] Classical.propDecidable",
                "attribute [local instance] Classical.propDecidable",
            ),
            ("deriving instance DecidableEq for S", "deriving instance DecidableEq for S"),
            ("local infix:50 \" = \" => fun _ _ => True", "local infix:50 \" = \" => fun _ _ => True"),
        ] {
            assert_eq!(assumptions(header), [named], "{header}");
        }
        for header in [
            "import Mathlib\nimport Aesop\nset_option maxHeartbeats 0\nopen BigOperators Real Nat Topology Rat\n",
            "open Nat\nvariable {α : Type*} {β : Type u} (γ : Sort _) -- (h : False)\n",
            "universe u\nvariable (x y : ℝ) {n : ℕ} (p : Prop) (α : Type)\nvariable {x}",
            "/-- An instance: (h : False) -/\ndef f := \"instance\"\n@[simp] theorem g : f = f := rfl",
            "class C where f : Nat\nstructure S where h : 1 = 1\nnamespace A\nend A",
        ] {
            assert_eq!(assumptions(header), [""; 0], "{header}");
        }
        assert!(assumptions(&format!("variable (h : {})", "x".repeat(9000)))[0].len() < 1000);
    }

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
