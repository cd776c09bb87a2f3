//! A Guide that is no model: how much a conjecture has in common with its target, counted on symbols.

use crate::statement::Statement;
use rustc_hash::FxHashMap;

/// 8 times the overlap of the two statements' constants times the closeness of their lengths, `0..=8`.
///
/// The overlap is that of multisets: shared occurrences over all occurrences. The closeness is the shorter length over
/// the longer one. A conjecture of other symbols gets 0, one about the same things at the same length nearly 8.
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
    fn what_is_nearer_scores_higher() -> Result<(), Box<dyn std::error::Error>> {
        let system = Metamath::shipped()?;
        let parse = |text: &str| Statement::parse(system.theory(), text, Default::default());
        let target = parse("$e |- ( ph -> ps ) $p |- ( ph -> ( ps /\\ ch ) )")?;
        let score = |text: &str| parse(text).map(|conjecture| rubric(&target, &conjecture));
        assert_eq!(score("$e |- ( ch -> ps ) $p |- ( ph -> ( ps /\\ ch ) )")?, 8.0, "names do not count");
        let near = score("$p |- ( ph -> ( ps /\\ ch ) )")?;
        let far = score("$p |- -. ph")?;
        assert!(near > 2.0 && near < 8.0 && far == 0.0, "{near} {far}");
        assert_eq!(rubric(&target, &parse("$p |- ph")?), 0.0);
        Ok(())
    }
}
