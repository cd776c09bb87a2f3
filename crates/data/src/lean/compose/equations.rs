//! Theorems by rewriting, on Booleans and on lists.

use super::Theorem;
use super::draw::{Draw, between, happens, pick};

/// A term over functions of one or two arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    head: &'static str,
    arguments: Vec<Term>,
}

const LEAVES: [&str; 4] = ["a", "b", "c", "d"];

impl Term {
    fn random(draw: &mut Draw, depth: u64) -> Self {
        if depth == 0 || happens(draw, 25) {
            return Self { head: *pick(draw, &LEAVES), arguments: Vec::new() };
        }
        let (head, count) = *pick(draw, &[("f", 1), ("g", 1), ("m", 2)]);
        Self { head, arguments: (0..count).map(|_| Self::random(draw, depth - 1)).collect() }
    }

    fn rewritten(&self, from: &Term, to: &Term) -> Self {
        if self == from {
            return to.clone();
        }
        let arguments = self.arguments.iter().map(|a| a.rewritten(from, to)).collect();
        Self { head: self.head, arguments }
    }
}

impl std::fmt::Display for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.head)?;
        for argument in &self.arguments {
            if argument.arguments.is_empty() {
                write!(f, " {argument}")?;
            } else {
                write!(f, " ({argument})")?;
            }
        }
        Ok(())
    }
}

/// Composes an equation between two terms that follows by `rw` with some of the given equations, in the right order and
/// direction.
pub fn rewriting(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    for _ in 0..100 {
        let mut rules: Vec<(Term, Term)> = Vec::new();
        for _ in 0..between(draw, 1, 2 + level / 2) {
            let (left, right) = (Term::random(draw, 1), Term::random(draw, 1));
            if left != right {
                rules.push((left, right));
            }
        }
        if rules.is_empty() {
            continue;
        }
        let start = Term::random(draw, 2 + level / 3);
        let mut end = start.clone();
        for _ in 0..between(draw, 1, 1 + level) {
            let (left, right) = pick(draw, &rules);
            end = if happens(draw, 50) { end.rewritten(left, right) } else { end.rewritten(right, left) };
        }
        let most = 1 + level as usize;
        let Some(path) = joined(&rules, (start.clone(), end.clone()), most) else { continue };
        if !path.is_empty() && path.len() as u64 * 2 >= level {
            return Some(vec![rewritten(draw, &rules, &start, &end, &path)]);
        }
    }
    None
}

fn rewritten(
    draw: &mut Draw,
    rules: &[(Term, Term)],
    start: &Term,
    end: &Term,
    path: &[(usize, bool)],
) -> Theorem {
    let mut binders = String::from("(α : Type) (f g : α → α) (m : α → α → α) (a b c d : α)");
    for (i, (left, right)) in rules.iter().enumerate() {
        binders.push_str(&format!(" (h{} : {left} = {right})", i + 1));
    }
    let steps: Vec<String> =
        path.iter().map(|(rule, back)| format!("{}h{}", if *back { "← " } else { "" }, rule + 1)).collect();
    let lines = match happens(draw, 75) {
        true => vec![format!("rw [{}]", steps.join(", "))],
        false => steps.iter().map(|step| format!("rw [{step}]")).collect(),
    };
    Theorem::new("rewriting", &binders, &format!("{start} = {end}"), lines)
}

/// Returns the shortest sequence of rewrites that makes both sides of an equation equal. Each rewrites the whole
/// equation and is given as the number of a rule and whether the rule is used backwards.
fn joined(rules: &[(Term, Term)], goal: (Term, Term), most: usize) -> Option<Vec<(usize, bool)>> {
    let mut seen = vec![goal.clone()];
    let mut open = vec![(goal, Vec::new())];
    for _ in 0..=most {
        let mut next = Vec::new();
        for ((left, right), path) in open {
            if left == right {
                return Some(path);
            }
            for (number, (one, two)) in rules.iter().enumerate() {
                for (from, to, back) in [(one, two, false), (two, one, true)] {
                    let new = (left.rewritten(from, to), right.rewritten(from, to));
                    if !seen.contains(&new) && seen.len() < 2000 {
                        seen.push(new.clone());
                        next.push((new, [path.clone(), vec![(number, back)]].concat()));
                    }
                }
            }
        }
        open = next;
    }
    None
}

/// Returns an expression over Booleans: its text, and its value for every row of a truth table with three variables.
fn boolean(draw: &mut Draw, size: u64, variables: usize) -> (String, u8) {
    if size == 0 {
        return [("a", 0b1010_1010), ("b", 0b1100_1100), ("c", 0b1111_0000)].map(|(t, v)| (t.to_owned(), v))
            [draw.below(variables as u64) as usize]
            .clone();
    }
    let left = draw.below(size);
    let ((one, x), (two, y)) = (boolean(draw, left, variables), boolean(draw, size - 1 - left, variables));
    match draw.below(5) {
        0 | 1 => (format!("({one} && {two})"), x & y),
        2 | 3 => (format!("({one} || {two})"), x | y),
        _ => (format!("!{one}"), !x),
    }
}

/// Composes an identity of Booleans, or an implication between two expressions.
pub fn booleans(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let variables = between(draw, 2, 3) as usize;
    let names = &["a", "b", "c"][..variables];
    let cases = names.iter().map(|n| format!("cases {n}")).collect::<Vec<_>>().join(" <;> ");
    let given = happens(draw, 50);
    for _ in 0..300 {
        let sizes = (between(draw, 1, 2 + level / 2), between(draw, 1, 2 + level / 2));
        let (one, x) = boolean(draw, sizes.0, variables);
        let (two, y) = boolean(draw, sizes.1, variables);
        let mask = if variables == 2 { 0b1111 } else { 0xff };
        let (x, y) = (x & mask, y & mask);
        let constant = |v: u8| v == 0 || v == mask;
        if one == two || constant(x) || constant(y) {
            continue;
        }
        let binders = format!("({} : Bool)", names.join(" "));
        if given && x & !y == 0 && x != y {
            let hypothesis = format!("{binders} (h1 : {} = true)", one);
            let last = *pick(draw, &["decide", "simp"]);
            let lines = vec!["revert h1".to_owned(), format!("{cases} <;> {last}")];
            return Some(vec![Theorem::new("booleans", &hypothesis, &format!("{} = true", two), lines)]);
        }
        if !given && x == y {
            let last = *pick(draw, &["rfl", "rfl", "decide"]);
            let lines = vec![format!("{cases} <;> {last}")];
            return Some(vec![Theorem::new("booleans", &binders, &format!("{} = {}", one, two), lines)]);
        }
    }
    None
}

/// Composes the membership of an element in a list that contains its list.
pub fn membership(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let lists = ["xs", "ys", "zs", "ws"];
    let count = between(draw, 2, (2 + level / 2).min(4)) as usize;
    let mut order: Vec<&str> = lists[..count].to_vec();
    draw.shuffle(&mut order);
    // Each list, with the path into it: for every append, whether the path leads to the right.
    let mut parts: Vec<(String, Vec<(String, bool)>)> = order
        .iter()
        .map(|name| {
            ((*name).to_owned(), if *name == "xs" { vec![(String::new(), true)] } else { Vec::new() })
        })
        .collect();
    while parts.len() > 1 {
        let at = draw.below(parts.len() as u64 - 1) as usize;
        let (right, path_right) = parts.remove(at + 1);
        let (left, path_left) = parts.remove(at);
        let path = match (path_left.is_empty(), path_right.is_empty()) {
            (false, _) => [vec![("left".to_owned(), false)], path_left].concat(),
            (_, false) => [vec![("right".to_owned(), true)], path_right].concat(),
            _ => Vec::new(),
        };
        let bracket = |text: String| if text.contains(' ') { format!("({text})") } else { text };
        parts.insert(at, (format!("{} ++ {}", bracket(left), bracket(right)), path));
    }
    let (whole, path) = parts.pop()?;
    let path = &path[..path.len() - 1];
    let term = path.iter().rev().fold("h1".to_owned(), |inner, (_, right)| {
        let inner = if inner == "h1" { inner } else { format!("({inner})") };
        format!("List.mem_append.mpr (Or.{} {inner})", if *right { "inr" } else { "inl" })
    });
    let lines = match happens(draw, 40) {
        true => vec![format!("exact {term}")],
        false => {
            let steps = path.iter().flat_map(|(word, _)| ["rw [List.mem_append]".to_owned(), word.clone()]);
            steps.chain(["exact h1".to_owned()]).collect()
        }
    };
    let binders = format!("(a : Nat) ({} : List Nat) (h1 : a ∈ xs)", lists[..count].join(" "));
    Some(vec![Theorem::new("membership", &binders, &format!("a ∈ {whole}"), lines)])
}

/// Composes the length of a list that is built from other lists.
pub fn lengths(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    fn list(draw: &mut Draw, size: u64) -> (String, Vec<&'static str>, u64) {
        if size == 0 {
            let name = *pick(draw, &["xs", "ys", "zs"]);
            return (name.to_owned(), vec![name], 0);
        }
        match draw.below(6) {
            0 | 1 => {
                let left = draw.below(size);
                let ((a, mut of_a, m), (b, of_b, n)) = (list(draw, left), list(draw, size - 1 - left));
                of_a.extend(of_b);
                (format!("({a} ++ {b})"), of_a, m + n)
            }
            2 | 3 => {
                let (a, of, n) = list(draw, size - 1);
                (format!("{a}.reverse"), of, n)
            }
            4 => {
                let (a, of, n) = list(draw, size - 1);
                (format!("({a}.map f)"), of, n)
            }
            _ => {
                let (a, of, n) = list(draw, size - 1);
                (format!("({} :: {a})", pick(draw, &["a", "b"])), of, n + 1)
            }
        }
    }
    let size = between(draw, 1, 2 + level);
    let (text, mut of, more) = list(draw, size);
    draw.shuffle(&mut of);
    let mut sum: Vec<String> = of.iter().map(|name| format!("{name}.length")).collect();
    if more > 0 {
        sum.push(more.to_string());
    }
    let mut lemmas = Vec::new();
    for (mark, lemma) in [
        ("++", "List.length_append"),
        ("reverse", "List.length_reverse"),
        ("map", "List.length_map"),
        ("::", "List.length_cons"),
    ] {
        if text.contains(mark) {
            lemmas.push(lemma);
        }
    }
    let mut lines = vec![match happens(draw, 60) {
        true => format!("simp only [{}]", lemmas.join(", ")),
        false => "simp".to_owned(),
    }];
    if of.len() + usize::from(more > 0) > 1 || happens(draw, 10) {
        lines.push("omega".to_owned());
    }
    let binders = "(a b : Nat) (f : Nat → Nat) (xs ys zs : List Nat)";
    Some(vec![Theorem::new("lengths", binders, &format!("{text}.length = {}", sum.join(" + ")), lines)])
}
