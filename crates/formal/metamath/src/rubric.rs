//! A Guide without a model: scores the similarity of a conjecture to its target.

use crate::database::Symbol;
use crate::features::depth;
use crate::statement::Statement;
use crate::theory::Theory;
use rustc_hash::FxHashMap;
use sgs_selfplay::Review;

/// Returns a score in `0..=8`: 8 times the overlap of the two statements' productions, times the similarity of their
/// lengths, times two factors that lower the score of a conjecture that is harder only because it is padded.
///
/// The overlap is the Jaccard index of the multisets of productions, so a conjecture without common symbols has the
/// score 0. The similarity of the lengths is the shorter length divided by the longer one, in nodes. A conjecture whose
/// formulas are nested more deeply than the target's is scored by the ratio of the depths. A variable that occurs only
/// once represents an arbitrary formula, so the last factor is the share of the variables that occur again, relative to
/// the target's.
pub fn rubric(theory: &Theory, target: &Statement, conjecture: &Statement) -> f64 {
    let mut counts: FxHashMap<u32, [u32; 2]> = FxHashMap::default();
    for (side, statement) in [target, conjecture].into_iter().enumerate() {
        for production in productions(statement) {
            counts.entry(production).or_default()[side] += 1;
        }
    }
    let shared: u32 = counts.values().map(|[a, b]| a.min(b)).sum();
    let all: u32 = counts.values().map(|[a, b]| a.max(b)).sum();
    let (a, b) = (length(target), length(conjecture));
    if all == 0 || a == 0 || b == 0 {
        return 0.0;
    }
    let overlap = f64::from(shared) / f64::from(all);
    let similarity = a.min(b) as f64 / a.max(b) as f64;
    let at_most = |mine: f64, theirs: f64| if mine > theirs { theirs / mine } else { 1.0 };
    let depth = |s: &Statement| s.trees().map(|tree| depth(theory, tree)).max().map_or(0.0, f64::from);
    let nesting = at_most(depth(conjecture), depth(target));
    // The smallest share that counts keeps the ratio finite for a target in which no variable recurs.
    let recurring = |s: &Statement| recurring_share(s).max(0.25);
    let substance = at_most(recurring(target), recurring(conjecture));
    8.0 * overlap * similarity * nesting * substance
}

/// Returns a review whose score ([`guide_score`]) is the given score, rounded to an integer. Its three scores only encode this
/// number and say nothing separately.
///
/// [`guide_score`]: sgs_selfplay::reward::guide_score
pub fn review_of_score(score: f64) -> Review {
    let score = score.clamp(0.0, 8.0).round();
    Review {
        relevance: score.min(5.0),
        redundancy: if score > 7.0 { 0.0 } else { 1.0 },
        complexity: 2.0 - (score - 5.0).clamp(0.0, 2.0),
    }
}

/// Returns whether a conjecture is padded: at least two of its variables occur only once, and more than the target's do.
pub fn is_padded(target: &Statement, conjecture: &Statement) -> bool {
    let single = |s: &Statement| occurrences(s).values().filter(|count| **count == 1).count();
    single(conjecture) > single(target).max(1)
}

/// Returns the share of a statement's variables that occur more than once; 1 without variables.
fn recurring_share(statement: &Statement) -> f64 {
    let counts = occurrences(statement);
    let recurring = counts.values().filter(|count| **count > 1).count();
    if counts.is_empty() { 1.0 } else { recurring as f64 / counts.len() as f64 }
}

/// Returns the number of occurrences of each variable.
fn occurrences(statement: &Statement) -> FxHashMap<Symbol, u32> {
    let mut counts: FxHashMap<Symbol, u32> = FxHashMap::default();
    for variable in statement.trees().flat_map(|tree| tree.iter().filter_map(|head| head.as_variable())) {
        *counts.entry(variable).or_default() += 1;
    }
    counts
}

fn productions(statement: &Statement) -> impl Iterator<Item = u32> {
    statement.trees().flat_map(|tree| tree.iter().filter_map(|head| head.as_production()))
}

fn length(statement: &Statement) -> usize {
    statement.trees().map(|tree| tree.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Metamath;
    use sgs_selfplay::reward::guide_score;

    fn statement(system: &Metamath, text: &str) -> Statement {
        Statement::parse(system.theory(), text, Default::default()).unwrap()
    }

    #[test]
    fn a_review_has_the_score_that_it_was_made_for() {
        for score in 0..=8 {
            for difference in [-0.4, 0.0, 0.4] {
                let score = f64::from(score);
                assert_eq!(guide_score(&review_of_score(score + difference)), score);
            }
        }
    }

    #[test]
    fn two_variables_that_occur_once_are_padding_unless_the_target_has_them() {
        let system = Metamath::shipped().unwrap();
        let padded = |target: &str, conjecture: &str| {
            let [target, conjecture] = [target, conjecture].map(|text| statement(&system, text));
            is_padded(&target, &conjecture)
        };
        let (plain, one) = ("$p |- ( ph -> ph )", "$p |- ( ph -> ( ps -> ph ) )");
        let two = "$p |- ( ph -> ( ps -> ( ch -> ph ) ) )";
        assert!(!padded(plain, plain) && !padded(plain, one) && padded(plain, two));
        assert!(padded(one, two) && !padded(two, two));
    }

    #[test]
    fn more_similar_conjectures_score_higher() {
        let system = Metamath::shipped().unwrap();
        let score = |target: &str, conjecture: &str| {
            let [target, conjecture] = [target, conjecture].map(|text| statement(&system, text));
            rubric(system.theory(), &target, &conjecture)
        };
        let target = "$e |- ( ph -> ps ) $p |- ( ph -> ( ps /\\ ch ) )";
        let renamed = "$e |- ( ch -> ps ) $p |- ( ph -> ( ps /\\ ch ) )";
        assert_eq!(score(target, renamed), 8.0, "the names of variables do not matter");
        let near = score(target, "$p |- ( ph -> ( ps /\\ ch ) )");
        assert!(near > 1.0 && near < 8.0, "{near}");
        assert_eq!([score(target, "$p |- -. ph"), score(target, "$p |- ph")], [0.0, 0.0]);
        // Padding lowers the score.
        let target = "$e |- ( ph -> ( ps -> ch ) ) $e |- ( ch -> th ) $p |- ( ps -> ( ph -> th ) )";
        let useful = score(target, "$e |- ( ph -> ( ps -> ch ) ) $p |- ( ps -> ( ph -> ( ph -> ch ) ) )");
        let padded = score(target, "$p |- ( ph -> ( ps -> ( ch -> ( th -> ( ta -> ph ) ) ) ) )");
        let nested =
            score(target, "$p |- ( ( ph -> ps ) -> ( ( ch -> ( th -> ph ) ) -> ( ch -> ( th -> ps ) ) ) )");
        assert!(useful > 1.5 * nested && nested > padded, "{useful} {nested} {padded}");
    }
}
