//! Finds tactic proofs of propositional sequents: a terminating calculus for invertible steps, and a search with a
//! maximum depth for choices.

use super::formula::Formula;

/// The style of a proof, which is the same for the whole proof.
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
    pub hypotheses: Vec<Hypothesis>,
    pub goal: Formula,
    pub lines: Vec<String>,
}

#[derive(Clone, Copy)]
struct Sequent<'a> {
    known: &'a [Hypothesis],
    goal: &'a Formula,
    /// Number of the next new hypothesis.
    next: usize,
    /// Maximum number of nested choices.
    depth: usize,
}

impl Sequent<'_> {
    fn fresh(&self, n: usize) -> String {
        format!("h{}", self.next + n)
    }

    fn name_of(&self, formula: &Formula) -> Option<&str> {
        self.known.iter().find(|(_, known)| known == formula).map(|(name, _)| name.as_str())
    }

    /// Returns the hypotheses with one of them replaced by others.
    fn replaced(&self, at: usize, more: impl IntoIterator<Item = Hypothesis>) -> Vec<Hypothesis> {
        let mut rest = self.known.to_vec();
        rest.remove(at);
        rest.extend(more);
        rest
    }
}

/// The state of a proof search.
pub struct Prover {
    style: Style,
    /// Remaining calls. A sequent that needs more has no readable proof.
    calls: usize,
    /// The intermediate goals that were proved.
    pub subgoals: Vec<Subgoal>,
}

/// Maximum number of nested choices.
const DEPTH: usize = 4;
/// Maximum number of calls for one sequent at one depth.
const CALLS: usize = 1500;

/// Formats lines as a bullet.
pub fn bullet(lines: Vec<String>) -> impl Iterator<Item = String> {
    lines.into_iter().enumerate().map(|(i, line)| format!("{}{line}", if i == 0 { "· " } else { "  " }))
}

fn indented(lines: Vec<String>) -> impl Iterator<Item = String> {
    lines.into_iter().map(|line| format!("  {line}"))
}

impl Prover {
    /// Finds the proof with the fewest nested choices, or returns `None` if the limits are reached.
    pub fn prove(known: &[Hypothesis], goal: &Formula, style: Style) -> Option<(Vec<String>, Vec<Subgoal>)> {
        (0..=DEPTH).find_map(|depth| {
            let mut prover = Self { style, calls: CALLS, subgoals: Vec::new() };
            let lines = prover.search(Sequent { known, goal, next: 2 * known.len() + 100, depth })?;
            Some((lines, prover.subgoals))
        })
    }

    fn search(&mut self, s: Sequent<'_>) -> Option<Vec<String>> {
        self.calls = self.calls.checked_sub(1)?;
        if let Some(line) = self.close(s) {
            return Some(vec![line]);
        }
        if let Some(found) = self.without_choice(s) {
            return found;
        }
        let s = Sequent { depth: s.depth.checked_sub(1)?, ..s };
        if let Formula::Or(a, b) = s.goal {
            for (word, part) in [("left", a), ("right", b)] {
                let found = self.try_choice(|prover| prover.part(Sequent { goal: part, ..s }));
                if let Some(lines) = found {
                    return Some([vec![word.to_owned()], lines].concat());
                }
            }
        }
        let apply = (0..s.known.len()).find_map(|at| self.try_choice(|prover| prover.apply(s, at)));
        apply.or_else(|| (0..s.known.len()).find_map(|at| self.try_choice(|prover| prover.take_apart(s, at))))
    }

    /// Makes a choice. If it fails, the intermediate goals that were proved for it are discarded.
    fn try_choice(&mut self, choice: impl FnOnce(&mut Self) -> Option<Vec<String>>) -> Option<Vec<String>> {
        let start = self.subgoals.len();
        let found = choice(self);
        if found.is_none() {
            self.subgoals.truncate(start);
        }
        found
    }

    /// Proves an intermediate goal and records it.
    fn part(&mut self, s: Sequent<'_>) -> Option<Vec<String>> {
        let lines = self.search(s)?;
        let (hypotheses, goal) = (s.known.to_vec(), s.goal.clone());
        self.subgoals.push(Subgoal { hypotheses, goal, lines: lines.clone() });
        Some(lines)
    }

    /// Returns the last line of the proof if one step completes it.
    fn close(&self, s: Sequent<'_>) -> Option<String> {
        if let Some(name) = s.name_of(s.goal) {
            return Some(if self.style.search { "assumption".into() } else { format!("exact {name}") });
        }
        for (name, formula) in s.known {
            match formula {
                Formula::False => return Some(format!("exact {name}.elim")),
                Formula::Not(a) => {
                    if let Some(other) = s.name_of(a) {
                        return Some(match (self.style.search, s.goal) {
                            (true, _) => "contradiction".into(),
                            (false, Formula::False) => format!("exact {name} {other}"),
                            _ => format!("exact absurd {other} {name}"),
                        });
                    }
                }
                Formula::Imp(a, b) if self.style.terms && **b == *s.goal => {
                    if let Some(other) = s.name_of(a) {
                        return Some(format!("exact {name} {other}"));
                    }
                }
                _ => {}
            }
        }
        let named = |f: &Formula| s.name_of(f);
        match s.goal {
            Formula::And(a, b) if self.style.terms => Some(format!("exact ⟨{}, {}⟩", named(a)?, named(b)?)),
            Formula::Or(a, b) if self.style.terms => named(a)
                .map(|n| format!("exact Or.inl {n}"))
                .or_else(|| named(b).map(|n| format!("exact Or.inr {n}"))),
            _ => None,
        }
    }

    /// Applies an invertible step, if there is one, and returns the result of the search after it.
    fn without_choice(&mut self, s: Sequent<'_>) -> Option<Option<Vec<String>>> {
        let (h1, h2) = (s.fresh(0), s.fresh(1));
        let imp = |a: &Formula, b: &Formula| Formula::Imp(Box::new(a.clone()), Box::new(b.clone()));
        let mut then = |known: &[Hypothesis], goal: &Formula, first: String| {
            let rest = self.search(Sequent { known, goal, next: s.next + 2, ..s })?;
            Some([vec![first], rest].concat())
        };
        for (at, (name, formula)) in s.known.iter().enumerate() {
            let pair = match formula {
                Formula::And(a, b) => ((**a).clone(), (**b).clone()),
                Formula::Iff(a, b) => (imp(a, b), imp(b, a)),
                Formula::Imp(a, b) => {
                    if let Some(other) = s.name_of(a) {
                        let line = format!("have {h1} := {name} {other}");
                        return Some(then(&s.replaced(at, [(h1, (**b).clone())]), s.goal, line));
                    }
                    continue;
                }
                _ => continue,
            };
            let line = format!("obtain ⟨{h1}, {h2}⟩ := {name}");
            return Some(then(&s.replaced(at, [(h1, pair.0), (h2, pair.1)]), s.goal, line));
        }
        let mut intro = |a: &Formula, goal: &Formula| {
            then(&[s.known, &[(h1.clone(), a.clone())]].concat(), goal, format!("intro {h1}"))
        };
        match s.goal {
            Formula::Imp(a, b) => return Some(intro(a, b)),
            Formula::Not(a) => return Some(intro(a, &Formula::False)),
            Formula::And(a, b) => return Some(self.both(s, a, b)),
            Formula::Iff(a, b) => return Some(self.both(s, &imp(a, b), &imp(b, a))),
            _ => {}
        }
        let (at, name, a, b) = s.known.iter().enumerate().find_map(|(at, (name, k))| match k {
            Formula::Or(a, b) => Some((at, name, a, b)),
            _ => None,
        })?;
        let mut lines = match self.style.cases {
            true => vec![format!("cases {name} with")],
            false => vec![format!("rcases {name} with {h1} | {h1}")],
        };
        for (word, part) in [("inl", a), ("inr", b)] {
            let rest = s.replaced(at, [(h1.clone(), (**part).clone())]);
            let part = self.part(Sequent { known: &rest, next: s.next + 2, ..s });
            let Some(found) = part else { return Some(None) };
            if self.style.cases {
                lines.push(format!("| {word} {h1} =>"));
                lines.extend(indented(found));
            } else {
                lines.extend(bullet(found));
            }
        }
        Some(Some(lines))
    }

    fn both(&mut self, s: Sequent<'_>, a: &Formula, b: &Formula) -> Option<Vec<String>> {
        let mut lines = vec!["constructor".to_owned()];
        for goal in [a, b] {
            lines.extend(bullet(self.part(Sequent { goal, ..s })?));
        }
        Some(lines)
    }

    /// Applies a hypothesis whose conclusion is the goal or `False`.
    fn apply(&mut self, s: Sequent<'_>, at: usize) -> Option<Vec<String>> {
        let (name, formula) = &s.known[at];
        let (premises, conclusion) = formula.premises();
        if premises.is_empty() {
            return None;
        }
        let mut lines = match conclusion {
            c if c == s.goal => Vec::new(),
            Formula::False => vec!["exfalso".to_owned()],
            _ => return None,
        };
        lines.push(format!("apply {name}"));
        let alone = premises.len() == 1;
        for goal in premises {
            let found = self.part(Sequent { goal, ..s })?;
            if alone { lines.extend(found) } else { lines.extend(bullet(found)) }
        }
        Some(lines)
    }

    /// Splits an implication or negation with a compound premise into statements about its parts.
    fn take_apart(&mut self, s: Sequent<'_>, at: usize) -> Option<Vec<String>> {
        let (name, formula) = &s.known[at];
        let (premise, rest): (&Formula, Option<&Formula>) = match formula {
            Formula::Imp(a, b) => (a, Some(b)),
            Formula::Not(a) => (a, None),
            _ => return None,
        };
        let follows = |a: &Formula| match rest {
            Some(b) => Formula::Imp(Box::new(a.clone()), Box::new(b.clone())),
            None => Formula::Not(Box::new(a.clone())),
        };
        let (h1, h2) = (s.fresh(0), s.fresh(1));
        let (mut lines, mut more) = (Vec::new(), Vec::new());
        match premise {
            Formula::And(a, b) => {
                let curried = Formula::Imp(a.clone(), Box::new(follows(b)));
                lines.push(format!("have {h1} : {curried} := fun a b => {name} ⟨a, b⟩"));
                more.push((h1, curried));
            }
            Formula::Or(a, b) => {
                let (one, two) = (follows(a), follows(b));
                lines.push(format!("have {h1} : {one} := fun a => {name} (Or.inl a)"));
                lines.push(format!("have {h2} : {two} := fun a => {name} (Or.inr a)"));
                more.extend([(h1, one), (h2, two)]);
            }
            Formula::Imp(_, _) | Formula::Not(_) => {
                let found = self.part(Sequent { goal: premise, ..s })?;
                lines.push(format!("have {h1} : {premise} := by"));
                lines.extend(indented(found));
                lines.push(format!("have {h2} := {name} {h1}"));
                more.push((h2, rest.cloned().unwrap_or(Formula::False)));
            }
            _ => return None,
        }
        let known = s.replaced(at, more);
        let found = self.search(Sequent { known: &known, next: s.next + 2, ..s })?;
        Some([lines, found].concat())
    }
}
