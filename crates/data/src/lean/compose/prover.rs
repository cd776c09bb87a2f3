//! Tactic proofs of propositional sequents by search: a terminating calculus for invertible steps, and choices up to a
//! maximal depth.

use super::formula::Formula;

/// The style of a proof, the same throughout.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Use `exact ⟨h1, h2⟩` and `exact Or.inl h1` if the parts are hypotheses.
    pub terms: bool,
    /// Use `cases h with` instead of `rcases` and `obtain`.
    pub cases: bool,
    /// Use `assumption` and `contradiction` instead of `exact`.
    pub search: bool,
}

/// A hypothesis: its name and its formula.
pub type Hypothesis = (String, Formula);

/// An intermediate goal with its proof.
#[derive(Clone, Debug)]
pub struct Subgoal {
    /// The hypotheses.
    pub hypotheses: Vec<Hypothesis>,
    /// The goal.
    pub goal: Formula,
    /// The proof's lines.
    pub lines: Vec<String>,
}

/// The state of a proof search.
pub struct Prover {
    style: Style,
    /// Remaining calls. A sequent that needs more has no readable proof.
    calls: usize,
    /// The intermediate goals that were proved.
    pub subgoals: Vec<Subgoal>,
}

/// Most nested choices.
const DEPTH: usize = 4;
/// Most calls for one sequent at one depth.
const CALLS: usize = 1500;

/// Formats lines as a bullet.
pub fn bullet(lines: Vec<String>) -> impl Iterator<Item = String> {
    lines.into_iter().enumerate().map(|(i, line)| format!("{}{line}", if i == 0 { "· " } else { "  " }))
}

impl Prover {
    /// Finds the proof with the fewest nested choices, or returns `None` if the limits are reached.
    pub fn prove(
        hypotheses: &[Hypothesis],
        goal: &Formula,
        style: Style,
    ) -> Option<(Vec<String>, Vec<Subgoal>)> {
        for depth in 0..=DEPTH {
            let mut prover = Self { style, calls: CALLS, subgoals: Vec::new() };
            if let Some(lines) = prover.search(hypotheses, goal, 2 * hypotheses.len() + 100, depth) {
                return Some((lines, prover.subgoals));
            }
        }
        None
    }

    fn search(
        &mut self,
        known: &[Hypothesis],
        goal: &Formula,
        next: usize,
        depth: usize,
    ) -> Option<Vec<String>> {
        self.calls = self.calls.checked_sub(1)?;
        if let Some(line) = self.close(known, goal) {
            return Some(vec![line]);
        }
        if let Some(found) = self.without_choice(known, goal, next, depth) {
            return found;
        }
        let depth = depth.checked_sub(1)?;
        let start = self.subgoals.len();
        if let Formula::Or(a, b) = goal {
            for (word, part) in [("left", a), ("right", b)] {
                if let Some(lines) = self.part(known, part, next, depth) {
                    return Some([vec![word.to_owned()], lines].concat());
                }
                self.subgoals.truncate(start);
            }
        }
        for (name, formula) in known {
            if let Some(lines) = self.apply(known, name, formula, goal, next, depth) {
                return Some(lines);
            }
            self.subgoals.truncate(start);
        }
        for (at, (name, formula)) in known.iter().enumerate() {
            if let Some(lines) = self.take_apart(known, at, name, formula, goal, next, depth) {
                return Some(lines);
            }
            self.subgoals.truncate(start);
        }
        None
    }

    /// Proves an intermediate goal and records it.
    fn part(
        &mut self,
        known: &[Hypothesis],
        goal: &Formula,
        next: usize,
        depth: usize,
    ) -> Option<Vec<String>> {
        let lines = self.search(known, goal, next, depth)?;
        self.subgoals.push(Subgoal { hypotheses: known.to_vec(), goal: goal.clone(), lines: lines.clone() });
        Some(lines)
    }

    /// The last line of a proof, if this is where it ends.
    fn close(&self, known: &[Hypothesis], goal: &Formula) -> Option<String> {
        let named = |f: &Formula| known.iter().find(|(_, k)| k == f).map(|(n, _)| n.as_str());
        if let Some(name) = named(goal) {
            return Some(if self.style.search { "assumption".into() } else { format!("exact {name}") });
        }
        for (name, formula) in known {
            match formula {
                Formula::False => return Some(format!("exact {name}.elim")),
                Formula::Not(a) => {
                    if let Some(other) = named(a) {
                        return Some(match (self.style.search, goal) {
                            (true, _) => "contradiction".into(),
                            (false, Formula::False) => format!("exact {name} {other}"),
                            _ => format!("exact absurd {other} {name}"),
                        });
                    }
                }
                Formula::Imp(a, b) if self.style.terms && **b == *goal => {
                    if let Some(other) = named(a) {
                        return Some(format!("exact {name} {other}"));
                    }
                }
                _ => {}
            }
        }
        match goal {
            Formula::And(a, b) if self.style.terms => Some(format!("exact ⟨{}, {}⟩", named(a)?, named(b)?)),
            Formula::Or(a, b) if self.style.terms => named(a)
                .map(|n| format!("exact Or.inl {n}"))
                .or_else(|| named(b).map(|n| format!("exact Or.inr {n}"))),
            _ => None,
        }
    }

    /// Applies an invertible step, if there is one, and returns the result of the search after it.
    fn without_choice(
        &mut self,
        known: &[Hypothesis],
        goal: &Formula,
        next: usize,
        depth: usize,
    ) -> Option<Option<Vec<String>>> {
        let fresh = |n: usize| format!("h{}", next + n);
        let without = |at: usize| {
            let mut rest = known.to_vec();
            rest.remove(at);
            rest
        };
        let mut then = |known: &[Hypothesis], goal: &Formula, first: String| {
            let rest = self.search(known, goal, next + 2, depth)?;
            Some([vec![first], rest].concat())
        };
        for (at, (name, formula)) in known.iter().enumerate() {
            match formula {
                Formula::And(a, b) => {
                    let mut rest = without(at);
                    rest.extend([(fresh(0), (**a).clone()), (fresh(1), (**b).clone())]);
                    return Some(then(&rest, goal, format!("obtain ⟨{}, {}⟩ := {name}", fresh(0), fresh(1))));
                }
                Formula::Iff(a, b) => {
                    let mut rest = without(at);
                    rest.push((fresh(0), Formula::Imp(a.clone(), b.clone())));
                    rest.push((fresh(1), Formula::Imp(b.clone(), a.clone())));
                    return Some(then(&rest, goal, format!("obtain ⟨{}, {}⟩ := {name}", fresh(0), fresh(1))));
                }
                Formula::Imp(a, b) => {
                    if let Some((other, _)) = known.iter().find(|(_, k)| *k == **a) {
                        let mut rest = without(at);
                        rest.push((fresh(0), (**b).clone()));
                        return Some(then(&rest, goal, format!("have {} := {name} {other}", fresh(0))));
                    }
                }
                _ => {}
            }
        }
        match goal {
            Formula::Imp(a, b) => {
                let more = [known, &[(fresh(0), (**a).clone())]].concat();
                return Some(then(&more, b, format!("intro {}", fresh(0))));
            }
            Formula::Not(a) => {
                let more = [known, &[(fresh(0), (**a).clone())]].concat();
                return Some(then(&more, &Formula::False, format!("intro {}", fresh(0))));
            }
            Formula::And(a, b) => return Some(self.both(known, (a, b), next, depth)),
            Formula::Iff(a, b) => {
                let (to, from) = (Formula::Imp(a.clone(), b.clone()), Formula::Imp(b.clone(), a.clone()));
                return Some(self.both(known, (&to, &from), next, depth));
            }
            _ => {}
        }
        let (at, name, a, b) = known.iter().enumerate().find_map(|(at, (name, k))| match k {
            Formula::Or(a, b) => Some((at, name, a, b)),
            _ => None,
        })?;
        let mut lines = match self.style.cases {
            true => vec![format!("cases {name} with")],
            false => vec![format!("rcases {name} with {0} | {0}", fresh(0))],
        };
        for (word, part) in [("inl", a), ("inr", b)] {
            let mut rest = without(at);
            rest.push((fresh(0), (**part).clone()));
            let Some(found) = self.part(&rest, goal, next + 2, depth) else { return Some(None) };
            if self.style.cases {
                lines.push(format!("| {word} {} =>", fresh(0)));
                lines.extend(found.into_iter().map(|line| format!("  {line}")));
            } else {
                lines.extend(bullet(found));
            }
        }
        Some(Some(lines))
    }

    fn both(
        &mut self,
        known: &[Hypothesis],
        (a, b): (&Formula, &Formula),
        next: usize,
        depth: usize,
    ) -> Option<Vec<String>> {
        let mut lines = vec!["constructor".to_owned()];
        for part in [a, b] {
            lines.extend(bullet(self.part(known, part, next, depth)?));
        }
        Some(lines)
    }

    /// Applies a hypothesis whose conclusion is the goal or `False`.
    fn apply(
        &mut self,
        known: &[Hypothesis],
        name: &str,
        formula: &Formula,
        goal: &Formula,
        next: usize,
        depth: usize,
    ) -> Option<Vec<String>> {
        let (premises, conclusion) = formula.premises();
        if premises.is_empty() {
            return None;
        }
        let mut lines = match conclusion {
            c if c == goal => Vec::new(),
            Formula::False => vec!["exfalso".to_owned()],
            _ => return None,
        };
        lines.push(format!("apply {name}"));
        let alone = premises.len() == 1;
        for premise in premises {
            let found = self.part(known, premise, next, depth)?;
            match alone {
                true => lines.extend(found),
                false => lines.extend(bullet(found)),
            }
        }
        Some(lines)
    }

    /// Splits an implication or negation with a compound premise into statements about its parts.
    #[allow(clippy::too_many_arguments)]
    fn take_apart(
        &mut self,
        known: &[Hypothesis],
        at: usize,
        name: &str,
        formula: &Formula,
        goal: &Formula,
        next: usize,
        depth: usize,
    ) -> Option<Vec<String>> {
        let (premise, rest): (&Formula, Option<&Formula>) = match formula {
            Formula::Imp(a, b) => (a, Some(b)),
            Formula::Not(a) => (a, None),
            _ => return None,
        };
        let follows = |a: &Formula| match rest {
            Some(b) => Formula::Imp(Box::new(a.clone()), Box::new(b.clone())),
            None => Formula::Not(Box::new(a.clone())),
        };
        let (h1, h2) = (format!("h{next}"), format!("h{}", next + 1));
        let mut others = known.to_vec();
        others.remove(at);
        let mut lines = Vec::new();
        match premise {
            Formula::And(a, b) => {
                let curried = Formula::Imp(a.clone(), Box::new(follows(b)));
                lines.push(format!("have {h1} : {curried} := fun a b => {name} ⟨a, b⟩"));
                others.push((h1, curried));
            }
            Formula::Or(a, b) => {
                let (one, two) = (follows(a), follows(b));
                lines.push(format!("have {h1} : {one} := fun a => {name} (Or.inl a)"));
                lines.push(format!("have {h2} : {two} := fun a => {name} (Or.inr a)"));
                others.extend([(h1, one), (h2, two)]);
            }
            Formula::Imp(_, _) | Formula::Not(_) => {
                let found = self.part(known, premise, next, depth)?;
                lines.push(format!("have {h1} : {premise} := by"));
                lines.extend(found.into_iter().map(|line| format!("  {line}")));
                lines.push(format!("have {h2} := {name} {h1}"));
                others.push((h2, rest.cloned().unwrap_or(Formula::False)));
            }
            _ => return None,
        }
        let found = self.search(&others, goal, next + 2, depth)?;
        Some([lines, found].concat())
    }
}
