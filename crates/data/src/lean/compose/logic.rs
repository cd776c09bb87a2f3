//! Theorems of propositional and predicate logic.

use super::Theorem;
use super::draw::{Draw, between, happens, pick};
use super::formula::Formula;
use super::prover::{Hypothesis, Prover, Style, Subgoal};

/// Maximum number of sequents that are tried until one is suitable for a theorem.
const TRIES: usize = 400;

/// Composes a theorem of propositional logic, followed by the intermediate goals of its proof.
pub fn propositional(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let classical = happens(draw, 12);
    let (hypotheses, goal, lines, subgoals) = sequent(draw, level, &["p", "q", "r", "s"], classical)?;
    let kind = if classical { "classical" } else { "propositional" };
    let first = Theorem::new(kind, &binders(&hypotheses, &goal), &goal.to_string(), lines);
    let on_the_way = subgoals.into_iter().filter(|s| s.lines.len() > 1 && s.lines.len() < 6);
    // A sub-proof may use the excluded middle that the main proof introduces.
    let easier = on_the_way
        .filter(|_| !classical)
        .map(|s| Theorem::new(kind, &binders(&used(&s), &s.goal), &s.goal.to_string(), s.lines));
    Some(std::iter::once(first).chain(easier).collect())
}

/// Composes a theorem about predicates from a propositional one, for every `x`, for some `x`, or for `a`.
pub fn predicates(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let (hypotheses, goal, lines, _) = sequent(draw, level, &["P x", "Q x", "R x"], false)?;
    let shape = draw.below(4);
    // The variable of the propositional proof.
    let (own, exists) = match shape {
        0 => ("x", None),
        1 | 2 => ("x", Some(draw.below(hypotheses.len() as u64) as usize)),
        _ => ("a", None),
    };
    let mut binders = String::from("(α : Type) (P Q R : α → Prop)");
    let (mut before, mut after) = (Vec::new(), Vec::new());
    if own == "a" {
        binders.push_str(" (a : α)");
    }
    for (number, (name, formula)) in hypotheses.iter().enumerate() {
        let outer = format!("h{}", 900 + number);
        if exists == Some(number) {
            binders.push_str(&format!(" ({outer} : ∃ x, {formula})"));
            before.push(format!("obtain ⟨x, {name}⟩ := {outer}"));
        } else {
            binders.push_str(&format!(" ({outer} : ∀ x, {formula})"));
            after.push(format!("have {name} := {outer} {own}"));
        }
    }
    let conclusion = match shape {
        0 => {
            before.push("intro x".to_owned());
            format!("∀ x, {goal}")
        }
        1 | 2 => {
            after.push("refine ⟨x, ?_⟩".to_owned());
            format!("∃ x, {goal}")
        }
        _ => goal.to_string().replace('x', "a"),
    };
    let lines: Vec<String> = match own {
        "a" => lines
            .iter()
            .map(|line| line.replace("P x", "P a").replace("Q x", "Q a").replace("R x", "R a"))
            .collect(),
        _ => lines,
    };
    let whole = Theorem::new("predicates", &binders, &conclusion, [before, after, lines].concat());
    Some(vec![whole])
}

/// Composes a chain of rules from one fact to another. Each rule leads from one predicate to another through a
/// function.
pub fn rules(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let (predicates, functions) = (["P", "Q", "R"], ["f", "g"]);
    let mut rules: Vec<(usize, usize, usize)> = Vec::new();
    while (rules.len() as u64) < 2 + level / 2 {
        let rule = (draw.below(3) as usize, draw.below(2) as usize, draw.below(3) as usize);
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    let start = rules[0].0;
    let (mut place, mut term, mut path) = (start, "a".to_owned(), Vec::new());
    for _ in 0..between(draw, 1, 1 + level) {
        let open: Vec<usize> = (0..rules.len()).filter(|r| rules[*r].0 == place).collect();
        if open.is_empty() {
            break;
        }
        let rule = *pick(draw, &open);
        path.push((rule, place, term.clone()));
        term = match term.as_str() {
            "a" => format!("{} a", functions[rules[rule].1]),
            _ => format!("{} ({term})", functions[rules[rule].1]),
        };
        place = rules[rule].2;
    }
    let head = |term: &str| if term.contains(' ') { format!("({term})") } else { term.to_owned() };
    let mut order: Vec<usize> = (0..rules.len()).collect();
    draw.shuffle(&mut order);
    let name = |rule: usize| format!("h{}", 2 + position(&order, &rule));
    let mut binders = String::from("(α : Type) (P Q R : α → Prop) (f g : α → α) (a : α)");
    binders.push_str(&format!(" (h1 : {} a)", predicates[start]));
    for rule in &order {
        let (from, through, to) = rules[*rule];
        let line = format!("∀ x, {} x → {} ({} x)", predicates[from], predicates[to], functions[through]);
        binders.push_str(&format!(" ({} : {line})", name(*rule)));
    }
    let goal = format!("{} {}", predicates[place], head(&term));
    let lines = match draw.below(3) {
        0 => {
            let term = path.iter().fold("h1".to_owned(), |inner, (rule, ..)| {
                format!("{} _ {}", name(*rule), if inner == "h1" { inner } else { format!("({inner})") })
            });
            vec![format!("exact {term}")]
        }
        1 => {
            let mut lines = Vec::new();
            let mut last = "h1".to_owned();
            for (step, (rule, _, at)) in path.iter().enumerate() {
                let next = format!("h{}", 100 + step);
                lines.push(format!("have {next} := {} {} {last}", name(*rule), head(at)));
                last = next;
            }
            lines.push(format!("exact {last}"));
            lines
        }
        _ => {
            let backwards = path.iter().rev().map(|(rule, ..)| format!("apply {}", name(*rule)));
            backwards.chain(["exact h1".to_owned()]).collect()
        }
    };
    (!path.is_empty()).then(|| vec![Theorem::new("rules", &binders, &goal, lines)])
}

/// Composes a path through a transitive relation, among facts that lead to other elements.
pub fn relations(draw: &mut Draw, level: u64) -> Option<Vec<Theorem>> {
    let names = ["a", "b", "c", "d", "e", "k"];
    let mut points: Vec<&str> = names.to_vec();
    draw.shuffle(&mut points);
    let steps = between(draw, 2, (1 + level).clamp(2, 5)) as usize;
    let mut edges: Vec<(&str, &str)> = (0..steps).map(|i| (points[i], points[i + 1])).collect();
    for _ in 0..draw.below(1 + level / 2) {
        let edge = (*pick(draw, &names), *pick(draw, &names));
        if edge.0 != edge.1 && !edges.contains(&edge) && edge != (points[0], points[steps]) {
            edges.push(edge);
        }
    }
    let path = edges[..steps].to_vec();
    draw.shuffle(&mut edges);
    let name = |edge: &(&str, &str)| format!("h{}", 2 + position(&edges, edge));
    let mut binders = format!("(α : Type) (R : α → α → Prop) ({} : α)", names.join(" "));
    binders.push_str(" (h1 : ∀ x y z, R x y → R y z → R x z)");
    for edge in &edges {
        binders.push_str(&format!(" ({} : R {} {})", name(edge), edge.0, edge.1));
    }
    let goal = format!("R {} {}", points[0], points[steps]);
    let lines = if happens(draw, 50) {
        let last = path.iter().map(name).next_back()?;
        let term = path[..steps - 1].iter().rev().enumerate().fold(last, |inner, (depth, edge)| {
            format!("h1 _ _ _ {} {}", name(edge), if depth == 0 { inner } else { format!("({inner})") })
        });
        vec![format!("exact {term}")]
    } else {
        let mut lines = Vec::new();
        let mut last = name(&path[0]);
        for (step, edge) in path[1..].iter().enumerate() {
            let next = format!("h{}", 100 + step);
            lines.push(format!(
                "have {next} := h1 {} {} {} {last} {}",
                points[0],
                edge.0,
                edge.1,
                name(edge)
            ));
            last = next;
        }
        lines.push(format!("exact {last}"));
        lines
    };
    Some(vec![Theorem::new("relations", &binders, &goal, lines)])
}

type Proved = (Vec<Hypothesis>, Formula, Vec<String>, Vec<Subgoal>);

/// Returns a random sequent that holds, needs all of its hypotheses, and does not hold only because they contradict
/// each other.
fn sequent(draw: &mut Draw, level: u64, atoms: &[&str], classical: bool) -> Option<Proved> {
    let atoms: Vec<String> = atoms.iter().map(|a| (*a).to_owned()).collect();
    let style = Style { terms: happens(draw, 50), cases: happens(draw, 25), search: happens(draw, 15) };
    let wanted = between(draw, 1 + level / 2, 3 + 2 * level) as usize;
    for _ in 0..TRIES {
        let atoms = &atoms[..between(draw, 2, atoms.len() as u64) as usize];
        let some = between(draw, 1, 2 + level / 3);
        let size = |draw: &mut Draw| between(draw, 1, 2 + level / 2) as usize;
        let mut hypotheses: Vec<Hypothesis> = Vec::new();
        for number in 1..=some {
            let size = size(draw);
            hypotheses.push((format!("h{number}"), Formula::random(draw, size, atoms)));
        }
        let size = size(draw);
        let goal = Formula::random(draw, size, atoms);
        let mut first = Vec::new();
        if classical {
            let atom = Formula::Atom(atoms[0].clone());
            let middle = Formula::Or(Box::new(atom.clone()), Box::new(Formula::Not(Box::new(atom))));
            if Prover::prove(&hypotheses, &goal, style).is_some() {
                continue;
            }
            first.push(format!("have h800 := Classical.em {}", atoms[0]));
            hypotheses.push(("h800".to_owned(), middle));
        }
        let Some((lines, subgoals)) = Prover::prove(&hypotheses, &goal, style) else { continue };
        let length = lines.len() + first.len();
        let needs_all = hypotheses.iter().all(|(name, _)| {
            style.search
                || lines.iter().any(|line| line.split(|c: char| !c.is_alphanumeric()).any(|w| w == name))
        });
        let consistent = Prover::prove(&hypotheses, &Formula::False, style).is_none();
        if length >= wanted && length <= wanted + 4 && needs_all && consistent {
            if classical {
                hypotheses.pop();
            }
            return Some((hypotheses, goal, [first, lines].concat(), subgoals));
        }
    }
    None
}

fn used(subgoal: &Subgoal) -> Vec<Hypothesis> {
    let text = subgoal.lines.join("\n");
    let named = |name: &str| text.split(|c: char| !c.is_alphanumeric()).any(|word| word == name);
    let searched = text.contains("assumption") || text.contains("contradiction");
    subgoal.hypotheses.iter().filter(|(name, _)| searched || named(name)).cloned().collect()
}

/// Returns the binders of a sequent: its atoms and its hypotheses.
fn binders(hypotheses: &[Hypothesis], goal: &Formula) -> String {
    let formulas: String = hypotheses.iter().map(|(_, f)| f).chain([goal]).map(|f| format!("{f} ")).collect();
    let mut atoms: Vec<&str> =
        formulas.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() == 1).collect();
    atoms.sort_unstable();
    atoms.dedup();
    let mut text = format!("({} : Prop)", atoms.join(" "));
    for (name, formula) in hypotheses {
        text.push_str(&format!(" ({name} : {formula})"));
    }
    text
}

/// Returns the position of an item that was put into the list.
#[allow(clippy::expect_used, reason = "both callers shuffle the list of all items")]
fn position<T: PartialEq>(all: &[T], item: &T) -> usize {
    all.iter().position(|other| other == item).expect("invariant: the item is in the list")
}
