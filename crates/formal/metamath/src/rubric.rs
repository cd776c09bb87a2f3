//! A Guide without a model: scores the similarity of a conjecture to its target.

use crate::statement::Statement;
use rustc_hash::FxHashMap;

/// Returns a score in `0..=8`: 8 times the overlap of the two statements' productions times the similarity of their lengths.
///
/// The overlap is the Jaccard index of the multisets of productions. The similarity of the lengths is the shorter length
/// divided by the longer one, in nodes. A conjecture without common symbols scores 0.
pub fn rubric(target: &Statement, conjecture: &Statement) -> f64 {
    let mut counts: FxHashMap<u32, (u32, u32)> = FxHashMap::default();
    for production in productions(target) {
        counts.entry(production).or_default().0 += 1;
    }
    for production in productions(conjecture) {
        counts.entry(production).or_default().1 += 1;
    }
    let shared: u32 = counts.values().map(|(a, b)| a.min(b)).sum();
    let all: u32 = counts.values().map(|(a, b)| a.max(b)).sum();
    let (a, b) = (length(target), length(conjecture));
    if all == 0 || a == 0 || b == 0 {
        return 0.0;
    }
    8.0 * f64::from(shared) / f64::from(all) * (a.min(b) as f64 / a.max(b) as f64)
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

    #[test]
    fn more_similar_conjectures_score_higher() -> Result<(), Box<dyn std::error::Error>> {
        let system = Metamath::shipped()?;
        let parse = |text: &str| Statement::parse(system.theory(), text, Default::default());
        let target = parse("$e |- ( ph -> ps ) $p |- ( ph -> ( ps /\\ ch ) )")?;
        let score = |text: &str| parse(text).map(|conjecture| rubric(&target, &conjecture));
        assert_eq!(
            score("$e |- ( ch -> ps ) $p |- ( ph -> ( ps /\\ ch ) )")?,
            8.0,
            "the names of variables do not matter"
        );
        let near = score("$p |- ( ph -> ( ps /\\ ch ) )")?;
        let far = score("$p |- -. ph")?;
        assert!(near > 2.0 && near < 8.0 && far == 0.0, "{near} {far}");
        assert_eq!(rubric(&target, &parse("$p |- ph")?), 0.0);
        Ok(())
    }
}
