//! Theorems about numbers: witnesses, inequalities, instances of general statements, induction.

use super::draw::{Draw, between, happens, pick};
use super::{Theorem, owned};

const VARIABLES: [&str; 3] = ["x", "y", "z"];

/// Returns a sum of multiples and a constant, such as `2 * x`, `x` or `x + 3`; `0` if it has no terms.
fn sum(parts: &[(u64, &str)], constant: u64) -> String {
    let mut terms: Vec<String> = Vec::new();
    for (factor, of) in parts {
        match factor {
            0 => {}
            1 => terms.push((*of).to_owned()),
            _ => terms.push(format!("{factor} * {of}")),
        }
    }
    if constant > 0 || terms.is_empty() {
        terms.push(constant.to_string());
    }
    terms.join(" + ")
}

fn plus(of: &str, constant: u64) -> String {
    sum(&[(1, of)], constant)
}

/// Returns a proof that gives a witness and leaves the rest to `omega`.
fn witness(draw: &mut Draw, given: &str) -> Vec<String> {
    match happens(draw, 50) {
        true => vec![format!("exact ⟨{given}, by omega⟩")],
        false => vec![format!("refine ⟨{given}, ?_⟩"), "omega".to_owned()],
    }
}

/// Composes a theorem about the form of a sum: if `x = 4 * k + 1` and so on, then `x + y = 2 * k + 1` for some `k`.
pub fn forms(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let kind = if happens(draw, 70) { "Nat" } else { "Int" };
    let count = between(draw, 1, (1 + level / 2).min(3)) as usize;
    let modulus = between(draw, 2, 3 + level);
    let (mut facts, mut lines, mut goal, mut found) = (String::new(), Vec::new(), Vec::new(), Vec::new());
    let mut rest = 0;
    for (i, x) in VARIABLES.into_iter().take(count).enumerate() {
        let multiple = between(draw, 1, 1 + level / 3);
        let (factor, of) = if happens(draw, 60) { (modulus * multiple, 1) } else { (multiple, modulus) };
        let remainder = draw.below(modulus + level);
        let direct = happens(draw, 30);
        let inner = if direct { ["u", "v", "w"][i] } else { ["k", "m", "n"][i] };
        let form = |k| format!("{x} = {}", sum(&[(factor, k)], remainder));
        let name = format!("h{}", i + 1);
        if direct {
            facts.push_str(&format!(" ({name} : {})", form(inner)));
        } else {
            facts.push_str(&format!(" ({name} : ∃ k, {})", form("k")));
            lines.push(format!("obtain ⟨{inner}, h{}⟩ := {name}", 100 + i));
        }
        goal.push((of, x));
        found.push((of * factor / modulus, inner));
        rest += of * remainder;
    }
    let more = draw.below(modulus + 2);
    rest += more;
    let left = rest % modulus;
    let bound = found.iter().map(|(_, n)| *n).filter(|n| "uvw".contains(n));
    let names: Vec<&str> = VARIABLES[..count].iter().copied().chain(bound).collect();
    let binders = format!("({} : {kind}){facts}", names.join(" "));
    let total = sum(&goal, more);
    if happens(draw, 25) && count > 1 {
        lines.push("omega".to_owned());
        let conclusion = format!("({total}) % {modulus} = {left}");
        return Some(vec![Theorem::new("remainders", &binders, &conclusion, lines)]);
    }
    lines.extend(witness(draw, &sum(&found, rest / modulus)));
    let conclusion = format!("∃ k, {total} = {}", sum(&[(modulus, "k")], left));
    Some(vec![Theorem::new("forms", &binders, &conclusion, lines)])
}

/// Composes the existence of a number that is between two others, solves an equation, or exceeds some numbers.
pub fn witnesses(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let (a, b) = (between(draw, 0, 3 + level), between(draw, 1, 3 + level));
    let (binders, conclusion, given) = match draw.below(5) {
        0 => (
            format!("(x y : Nat) (h1 : {} < y)", plus("x", a + b)),
            format!("∃ k, {} < k ∧ {} ≤ y", plus("x", a), plus("k", b)),
            plus("x", a + 1),
        ),
        1 => {
            let factor = between(draw, 2, 3 + level);
            let goal = format!("∃ k, {factor} * x + {} = {factor} * k + {a}", a + factor * b);
            ("(x : Nat)".to_owned(), goal, plus("x", b))
        }
        2 => (
            "(x y : Nat)".to_owned(),
            format!("∃ k, {} ≤ k ∧ {} < k", sum(&[(a, "x")], b), sum(&[(b, "y")], a)),
            sum(&[(a, "x"), (b, "y")], a + b + 1),
        ),
        3 => {
            let rest = if a == 0 { String::new() } else { format!(" - {a}") };
            (
                format!("(x y : Nat) (h1 : {} ≤ x)", sum(&[(b, "y")], a)),
                format!("∃ k, x = {}", sum(&[(1, "k"), (b, "y")], a)),
                format!("x - {}{rest}", sum(&[(b, "y")], 0)),
            )
        }
        _ => (
            format!("(x y : Int) (h1 : {} = y)", plus("x", a)),
            format!("∃ k, k + {b} = y ∧ k = x + {a} - {b}"),
            if happens(draw, 50) { format!("y - {b}") } else { format!("x + {a} - {b}") },
        ),
    };
    let lines = witness(draw, &given);
    Some(vec![Theorem::new("witnesses", &binders, &conclusion, lines)])
}

/// Composes a chain of inequalities, whose ends `omega` compares.
pub fn inequalities(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let kind = *pick(draw, &["Nat", "Int"]);
    let points = ["x", "y", "z", "w"];
    let steps = between(draw, 1, (1 + level).min(3)) as usize;
    let mut binders = format!("({} : {kind})", points[..=steps].join(" "));
    let mut total = 0;
    for i in 0..steps {
        let less = happens(draw, 50);
        let more = draw.below(2 + level);
        total += more + u64::from(less);
        let (from, word) = (plus(points[i], more), if less { "<" } else { "≤" });
        binders.push_str(&format!(" (h{} : {from} {word} {})", i + 1, points[i + 1]));
    }
    let (first, last) = (points[0], points[steps]);
    let goals = [
        format!("{} ≤ {last}", plus(first, total)),
        format!("{} < {}", plus(first, total), plus(last, 1)),
        format!("¬{last} < {}", plus(first, total)),
        format!("{first} ≠ {last} ∨ {first} = {last}"),
        format!("{} ≤ {last} ∧ ¬{last} < {first}", plus(first, total / 2)),
    ];
    let goal = pick(draw, &goals).clone();
    Some(vec![Theorem::new("inequalities", &binders, &goal, owned(["omega"]))])
}

/// Composes an instance of statements about all numbers.
pub fn instances(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let (a, b) = (between(draw, 1, 2 + level), draw.below(3 + level));
    let (c, d) = (between(draw, 1, 2 + level), draw.below(3 + level));
    let two = happens(draw, 40 + 5 * level);
    let of_g = sum(&[(c, if two { "f n" } else { "n" })], d);
    let of_f = sum(&[(a, "n")], b);
    let binders = format!("(f g : Nat → Nat) (h1 : ∀ n, f n ≤ {of_f}) (h2 : ∀ n, g n ≤ {of_g})");
    let points: Vec<u64> = (0..between(draw, 1, 1 + level / 2)).map(|_| draw.below(5 + level)).collect();
    let (mut lines, mut terms, mut most) = (Vec::new(), Vec::new(), 0);
    for (i, point) in points.iter().enumerate() {
        let of_f = happens(draw, 40);
        let at_f = a * point + b;
        terms.push(format!("{} {point}", if of_f { "f" } else { "g" }));
        if of_f || two {
            lines.push(format!("have h{} := h1 {point}", 100 + 2 * i));
        }
        if !of_f {
            lines.push(format!("have h{} := h2 {point}", 101 + 2 * i));
        }
        most += match (of_f, two) {
            (true, _) => at_f,
            (false, true) => c * at_f + d,
            (false, false) => c * point + d,
        };
    }
    lines.push("omega".to_owned());
    let slack = draw.below(3);
    let goal = format!("{} ≤ {}", terms.join(" + "), most + slack);
    Some(vec![Theorem::new("instances", &binders, &goal, lines)])
}

/// Composes a theorem by induction.
pub fn induction(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let (a, b, c) = (between(draw, 1, 2 + level), draw.below(3 + level), between(draw, 2, 3 + level));
    let (line, next) = (sum(&[(a, "n")], b), plus("f n", a));
    let start = |word: &str| format!("(f : Nat → Nat) (h1 : f 0 {word} {b})");
    let (binders, goal) = match draw.below(7) {
        0 => (format!("{} (h2 : ∀ n, f (n + 1) = {next})", start("=")), format!("f n = {line}")),
        1 => (format!("{} (h2 : ∀ n, f (n + 1) ≤ {next})", start("≤")), format!("f n ≤ {line}")),
        2 => ("(f : Nat → Nat) (h1 : 0 ≤ f 0) (h2 : ∀ n, f n < f (n + 1))".to_owned(), "n ≤ f n".to_owned()),
        3 => (
            format!("{} (h2 : ∀ n, f (n + 1) = {})", start("="), plus("f n", c)),
            format!("f n % {c} = {}", b % c),
        ),
        4 => (
            format!("{} (h2 : ∀ n, f (n + 1) = {})", start("="), sum(&[(c, "f n")], 0)),
            format!("f n % {} = {}", c - 1, b % (c - 1)),
        ),
        5 => {
            let step = format!("f (n + 1) = {next} ∧ g (n + 1) = {}", plus("g n", a));
            (format!("(f g : Nat → Nat) (h1 : f 0 = g 0) (h2 : ∀ n, {step})"), "f n = g n".to_owned())
        }
        _ => (format!("{} (h2 : ∀ n, f n + {a} ≤ f (n + 1))", start("=")), format!("{line} ≤ f n")),
    };
    let use_step = if happens(draw, 50) { "  have h3 := h2 n" } else { "  specialize h2 n" };
    let lines = ["intro n", "induction n with", "| zero => omega", "| succ n ih =>", use_step, "  omega"];
    let property = Theorem::new("induction", &binders, &format!("∀ n, {goal}"), owned(lines));
    if !happens(draw, 30) {
        return Some(vec![property]);
    }
    let step = between(draw, 1, 3);
    let base = if step == 1 { 0 } else { b };
    let binders = format!("(P : Nat → Prop) (h1 : P {base}) (h2 : ∀ n, P n → P (n + {step}))");
    let mut lines = owned(["intro n", "induction n with"]);
    let goal = if step == 1 {
        lines.extend(owned(["| zero => exact h1", "| succ n ih => exact h2 n ih"]));
        "∀ n, P n".to_owned()
    } else {
        lines.extend(owned(["| zero => simpa using h1", "| succ n ih =>"]));
        lines.push(format!("  have h3 := h2 ({step} * n + {b}) ih"));
        lines.push(format!("  rwa [show {step} * (n + 1) + {b} = {step} * n + {b} + {step} by omega]"));
        format!("∀ n, P ({step} * n + {b})")
    };
    Some(vec![property, Theorem::new("induction", &binders, &goal, lines)])
}
