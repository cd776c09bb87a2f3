//! The rules of the Self-play Theorem Prover (Dong and Ma 2025) that differ from SGS.
//!
//! Left out, since it needs embeddings of statements: the re-weighting of the chosen conjectures towards the unsolved
//! targets (a Wasserstein matching). All chosen conjectures weigh the same.

use crate::config::StpConfig;
use crate::seed::Stream;

/// What the rule needs to know of one judged conjecture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Provability {
    /// Solve rate, `0..=1`.
    pub rate: f64,
    /// Characters of the shortest proof, 0 if there is none.
    pub shortest_proof: u32,
    /// Characters of the statement.
    pub statement: u32,
}

/// Which conjectures train the Conjecturer: those that are barely provable, `0 < s < max_rate`, without the share
/// `elegance_cut` that has the lowest ratio of shortest proof to statement.
///
/// The cut is the ratio at position `floor(n · elegance_cut)` of the sorted ratios; ratios equal to it stay. A single
/// conjecture stays.
pub fn select_conjectures(conjectures: &[Provability], config: &StpConfig) -> Vec<bool> {
    let barely = |c: &Provability| c.rate > 0.0 && c.rate < config.max_rate;
    let ratio = |c: &Provability| f64::from(c.shortest_proof) / f64::from(c.statement.max(1));
    let mut ratios: Vec<f64> = conjectures.iter().filter(|c| barely(c)).map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let cut = ratios.get((ratios.len() as f64 * config.elegance_cut) as usize).copied().unwrap_or(0.0);
    conjectures.iter().map(|c| barely(c) && ratio(c) >= cut).collect()
}

/// Draws `wanted` of `available` seeds: without replacement as long as there are enough, then again from the start of
/// the same shuffle. Empty if there is nothing to draw from.
pub fn draw_seeds(available: usize, wanted: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..available).collect();
    Stream::new(seed).shuffle(&mut order);
    order.iter().copied().cycle().take(if available == 0 { 0 } else { wanted }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn barely_provable_and_elegant() {
        let of = |rate, shortest_proof| Provability { rate, shortest_proof, statement: 100 };
        let conjectures = [
            of(0.0, 0),
            of(0.125, 50),
            of(0.125, 10),
            of(0.25, 99),
            of(0.125, 80),
            of(0.125, 70),
            of(0.125, 60),
        ];
        let chosen = select_conjectures(&conjectures, &StpConfig::default());
        assert_eq!(chosen, [false, true, false, false, true, true, true]);
        assert_eq!(select_conjectures(&conjectures[2..3], &StpConfig::default()), [true]);
    }

    proptest! {
        #[test]
        fn seeds_are_spread_evenly(available in 0usize..20, wanted in 0usize..60, seed: u64) {
            let drawn = draw_seeds(available, wanted, seed);
            prop_assert_eq!(drawn.len(), if available == 0 { 0 } else { wanted });
            for i in 0..available {
                let times = drawn.iter().filter(|&&d| d == i).count();
                prop_assert!(times == wanted / available || times == wanted.div_ceil(available));
            }
        }
    }
}
