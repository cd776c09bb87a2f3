//! Theorems about numbers: witnesses, inequalities, instances of general statements, induction.

use super::Theorem;
use super::draw::{Draw, between, happens, pick};

const VARIABLES: [&str; 3] = ["x", "y", "z"];

/// `2 * x`, `x`, `x + 3` and so on as one sum; `0` if nothing is in it.
fn sum(parts: &[(u64, String)], constant: u64) -> String {
    let mut terms: Vec<String> = Vec::new();
    for (factor, of) in parts {
        match factor {
            0 => {}
            1 => terms.push(of.clone()),
            _ => terms.push(format!("{factor} * {of}")),
        }
    }
    if constant > 0 || terms.is_empty() {
        terms.push(constant.to_string());
    }
    terms.join(" + ")
}

/// A proof that gives a witness and leaves the rest to `omega`.
fn witness(draw: &mut Draw, given: &str) -> Vec<String> {
    match happens(draw, 50) {
        true => vec![format!("exact ⟨{given}, by omega⟩")],
        false => vec![format!("refine ⟨{given}, ?_⟩"), "omega".to_owned()],
    }
}

/// A sum of numbers of known form is of a form: `x = 4 * k + 1`, so `x + y = 2 * k + 1` for some `k`.
pub fn forms(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let kind = if happens(draw, 70) { "Nat" } else { "Int" };
    let count = between(draw, 1, (1 + level / 2).min(3)) as usize;
    let modulus = between(draw, 2, 3 + level);
    let (mut facts, mut lines, mut goal, mut found) = (String::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut rest, letters) = (0, ["k", "m", "n"]);
    for i in 0..count {
        let multiple = between(draw, 1, 1 + level / 3);
        let (factor, of) = if happens(draw, 60) { (modulus * multiple, 1) } else { (multiple, modulus) };
        let remainder = draw.below(modulus + level);
        let direct = happens(draw, 30);
        let inner = if direct { ["u", "v", "w"][i] } else { letters[i] };
        let form = format!("{} = {}", VARIABLES[i], sum(&[(factor, inner.to_owned())], remainder));
        let name = format!("h{}", i + 1);
        if direct {
            facts.push_str(&format!(" ({name} : {form})"));
        } else {
            facts.push_str(&format!(" ({name} : ∃ k, {})", form.replace(letters[i], "k")));
            lines.push(format!("obtain ⟨{inner}, h{}⟩ := {name}", 100 + i));
        }
        goal.push((of, VARIABLES[i].to_owned()));
        found.push((of * factor / modulus, inner.to_owned()));
        rest += of * remainder;
    }
    let more = draw.below(modulus + 2);
    rest += more;
    let left = rest % modulus;
    let bound: Vec<&str> = found.iter().map(|(_, n)| n.as_str()).filter(|n| "uvw".contains(n)).collect();
    let names: Vec<&str> = VARIABLES[..count].iter().copied().chain(bound).collect();
    let binders = format!("({} : {kind}){facts}", names.join(" "));
    if happens(draw, 25) && count > 1 {
        let conclusion = format!("({}) % {modulus} = {left}", sum(&goal, more));
        lines.push("omega".to_owned());
        return Some(vec![Theorem::new("remainders", &binders, &conclusion, lines)]);
    }
    let conclusion = format!("∃ k, {} = {}", sum(&goal, more), sum(&[(modulus, "k".to_owned())], left));
    lines.extend(witness(draw, &sum(&found, rest / modulus)));
    Some(vec![Theorem::new("forms", &binders, &conclusion, lines)])
}

/// Something that lies between, solves an equation, or exceeds some numbers.
pub fn witnesses(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let (a, b) = (between(draw, 0, 3 + level), between(draw, 1, 3 + level));
    let (binders, conclusion, given) = match draw.below(5) {
        0 => {
            let gap = a + b;
            let hypothesis = format!("(x y : Nat) (h1 : {} < y)", sum(&[(1, "x".into())], gap));
            let goal =
                format!("∃ k, {} < k ∧ {} ≤ y", sum(&[(1, "x".into())], a), sum(&[(1, "k".into())], b));
            (hypothesis, goal, sum(&[(1, "x".into())], a + 1))
        }
        1 => {
            let factor = between(draw, 2, 3 + level);
            let goal = format!("∃ k, {factor} * x + {} = {factor} * k + {a}", a + factor * b);
            ("(x : Nat)".to_owned(), goal, sum(&[(1, "x".into())], b))
        }
        2 => {
            let goal =
                format!("∃ k, {} ≤ k ∧ {} < k", sum(&[(a, "x".into())], b), sum(&[(b, "y".into())], a));
            ("(x y : Nat)".to_owned(), goal, sum(&[(a, "x".into()), (b, "y".into())], a + b + 1))
        }
        3 => {
            let hypothesis = format!("(x y : Nat) (h1 : {} ≤ x)", sum(&[(b, "y".into())], a));
            let rest = if a == 0 { String::new() } else { format!(" - {a}") };
            let goal = format!("∃ k, x = {}", sum(&[(1, "k".into()), (b, "y".into())], a));
            (hypothesis, goal, format!("x - {}{rest}", sum(&[(b, "y".into())], 0)))
        }
        _ => {
            let hypothesis = format!("(x y : Int) (h1 : {} = y)", sum(&[(1, "x".into())], a));
            let goal = format!("∃ k, k + {b} = y ∧ k = x + {a} - {b}");
            (hypothesis, goal, if happens(draw, 50) { format!("y - {b}") } else { format!("x + {a} - {b}") })
        }
    };
    let lines = witness(draw, &given);
    Some(vec![Theorem::new("witnesses", &binders, &conclusion, lines)])
}

/// A chain of inequalities with gaps; the whole follows by `omega`, or step by step.
pub fn inequalities(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let kind = *pick(draw, &["Nat", "Int"]);
    let points = ["x", "y", "z", "w"];
    let steps = between(draw, 1, (1 + level).min(3)) as usize;
    let mut binders = format!("({} : {kind})", points[..=steps].join(" "));
    let (mut strict, mut gap) = (0, 0);
    for i in 0..steps {
        let less = happens(draw, 50);
        let more = draw.below(2 + level);
        strict += u64::from(less);
        gap += more;
        let word = if less { "<" } else { "≤" };
        binders.push_str(&format!(
            " (h{} : {} {word} {})",
            i + 1,
            sum(&[(1, points[i].into())], more),
            points[i + 1]
        ));
    }
    let (first, last) = (points[0].to_owned(), points[steps].to_owned());
    let total = gap + strict;
    let lower = |n| sum(&[(1, first.clone())], n);
    let goals = [
        format!("{} ≤ {last}", lower(total)),
        format!("{} < {}", lower(total), sum(&[(1, last.clone())], 1)),
        format!("¬{last} < {}", lower(total)),
        format!("{first} ≠ {last} ∨ {first} = {last}"),
        format!("{} ≤ {last} ∧ ¬{last} < {first}", lower(total / 2)),
    ];
    let goal = pick(draw, &goals).clone();
    let lines = vec!["omega".to_owned()];
    Some(vec![Theorem::new("inequalities", &binders, &goal, lines)])
}

/// An instance of a statement about all numbers.
pub fn instances(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let (a, b) = (between(draw, 1, 2 + level), draw.below(3 + level));
    let (c, d) = (between(draw, 1, 2 + level), draw.below(3 + level));
    let bound = |factor, constant| sum(&[(factor, "n".to_owned())], constant);
    let two = happens(draw, 40 + 5 * level);
    let mut binders = format!("(f g : Nat → Nat) (h1 : ∀ n, f n ≤ {})", bound(a, b));
    binders.push_str(&match two {
        true => format!(" (h2 : ∀ n, g n ≤ {})", sum(&[(c, "f n".to_owned())], d)),
        false => format!(" (h2 : ∀ n, g n ≤ {})", bound(c, d)),
    });
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

/// A theorem by induction.
pub fn induction(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let (a, b, c) = (between(draw, 1, 2 + level), draw.below(3 + level), between(draw, 2, 3 + level));
    let n = |factor, constant| sum(&[(factor, "n".to_owned())], constant);
    let f = |constant| sum(&[(1, "f n".to_owned())], constant);
    let start = |word: &str| format!("(f : Nat → Nat) (h1 : f 0 {word} {b})");
    let (binders, goal) = match draw.below(7) {
        0 => (format!("{} (h2 : ∀ n, f (n + 1) = {})", start("="), f(a)), format!("f n = {}", n(a, b))),
        1 => (format!("{} (h2 : ∀ n, f (n + 1) ≤ {})", start("≤"), f(a)), format!("f n ≤ {}", n(a, b))),
        2 => ("(f : Nat → Nat) (h1 : 0 ≤ f 0) (h2 : ∀ n, f n < f (n + 1))".to_owned(), "n ≤ f n".to_owned()),
        3 => (
            format!("{} (h2 : ∀ n, f (n + 1) = {})", start("="), sum(&[(1, "f n".to_owned())], c)),
            format!("f n % {c} = {}", b % c),
        ),
        4 => (
            format!("{} (h2 : ∀ n, f (n + 1) = {})", start("="), sum(&[(c, "f n".to_owned())], 0)),
            format!("f n % {} = {}", c - 1, b % (c - 1)),
        ),
        5 => (
            format!(
                "(f g : Nat → Nat) (h1 : f 0 = g 0) (h2 : ∀ n, f (n + 1) = {} ∧ g (n + 1) = {})",
                f(a),
                sum(&[(1, "g n".to_owned())], a)
            ),
            "f n = g n".to_owned(),
        ),
        _ => (format!("{} (h2 : ∀ n, f n + {a} ≤ f (n + 1))", start("=")), format!("{} ≤ f n", n(a, b))),
    };
    let tidy = happens(draw, 50);
    let mut lines = vec!["intro n".to_owned()];
    lines.push("induction n with".to_owned());
    lines.push("| zero => omega".to_owned());
    if tidy {
        lines.extend(["| succ n ih =>", "  have h3 := h2 n", "  omega"].map(str::to_owned));
    } else {
        lines.extend(["| succ n ih =>", "  specialize h2 n", "  omega"].map(str::to_owned));
    }
    let property = Theorem::new("induction", &binders, &format!("∀ n, {goal}"), lines);
    if !happens(draw, 30) {
        return Some(vec![property]);
    }
    let step = between(draw, 1, 3);
    let at = |n: &str| format!("P {n}");
    let (binders, goal, first) = match step {
        1 => (String::new(), "∀ n, P n".to_owned(), "n"),
        _ => (String::new(), format!("∀ n, P ({step} * n + {b})"), "n"),
    };
    let base = if step == 1 { "0".to_owned() } else { format!("{b}") };
    let binders = format!("(P : Nat → Prop){binders} (h1 : {}) (h2 : ∀ n, P n → P (n + {step}))", at(&base));
    let mut lines = vec![format!("intro {first}"), "induction n with".to_owned()];
    match step {
        1 => lines.extend(["| zero => exact h1", "| succ n ih => exact h2 n ih"].map(str::to_owned)),
        _ => lines.extend([
            "| zero => simpa using h1".to_owned(),
            "| succ n ih =>".to_owned(),
            format!("  have h3 := h2 ({step} * n + {b}) ih"),
            format!("  rwa [show {step} * (n + 1) + {b} = {step} * n + {b} + {step} by omega]"),
        ]),
    }
    Some(vec![property, Theorem::new("induction", &binders, &goal, lines)])
}
