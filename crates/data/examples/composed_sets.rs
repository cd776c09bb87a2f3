//! Prints the problems of a composed set (`deep` or `congruence`) and of its held-out set as JSON Lines: theorems that no
//! single assertion proves, in the order of their composition.

use sgs_base::random::SeededRng;
use sgs_metamath::composed_sets::{ComposedProblem, ComposedSet, HELD_OUT_EACH, TARGETS_EACH};
use sgs_metamath::composer::inferences;
use sgs_metamath::congruences::Congruences;
use sgs_metamath::normal_text::normal_text;
use sgs_metamath::proof_text::write_steps;
use sgs_metamath::splits::{SplitRule, split};
use sgs_metamath::statement::Statement;
use sgs_metamath::system::Metamath;
use sgs_metamath::unify::Unifier;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;

/// Maximum number of tokens of a proof and of a statement, so that a model can read and write them.
const PROOF_TOKENS: usize = 39;
const STATEMENT_TOKENS: usize = 195;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_default();
    let set = ComposedSet::ALL.into_iter().find(|set| set.name() == name);
    let set = set.ok_or("name the set: deep or congruence")?;
    let system = Metamath::shipped()?;
    let theory = system.theory();
    let split = split(theory, SplitRule::default());
    let mut seen: HashSet<_> = split.lessons.iter().map(|l| normal_text(theory, &l.statement)).collect();
    seen.extend(split.forbidden.iter().cloned());
    let is_trivial = |statement: &Statement, before, unifier: &mut Unifier| {
        system.assertion_index().triviality(theory, unifier, statement, before).is_some()
    };
    let congruences = Congruences::new(theory, &split.lessons);
    let (mut found, mut unifier) = (BTreeMap::<usize, usize>::new(), Unifier::new());
    let mut out = std::io::stdout().lock();
    for number in 0.. {
        let mut lengths = set.inferences();
        if lengths.all(|steps| found.get(&steps) == Some(&(TARGETS_EACH + HELD_OUT_EACH))) {
            break;
        }
        let mut draw = SeededRng::numbered(20_260_102, set.name(), number);
        let composed = match set {
            ComposedSet::Deep => system.composer().compose(theory, &mut unifier, &mut draw, None),
            ComposedSet::Congruence => {
                congruences.compose(theory, &mut unifier, &mut draw, set.inferences(), None)
            }
        };
        let Some((composed, print)) = composed else { continue };
        let steps = inferences(&composed.steps);
        let count = found.entry(steps).or_default();
        let statement = composed.statement.text(theory);
        let fits = write_steps(theory, &composed.steps).split_ascii_whitespace().count() <= PROOF_TOKENS
            && statement.split_ascii_whitespace().count() <= STATEMENT_TOKENS;
        if !set.inferences().contains(&steps)
            || *count == TARGETS_EACH + HELD_OUT_EACH
            || !fits
            || !seen.insert(print)
            || is_trivial(&composed.statement, theory.rule(composed.rule).statement, &mut unifier)
        {
            continue;
        }
        *count += 1;
        let problem = ComposedProblem {
            id: format!("{}-{steps}-{count}", set.name()),
            statement,
            context: theory.label(composed.rule).to_owned(),
            steps,
            held_out: *count > TARGETS_EACH,
        };
        writeln!(out, "{}", serde_json::to_string(&problem)?)?;
    }
    Ok(())
}
