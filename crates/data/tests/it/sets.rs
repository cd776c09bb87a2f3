//! Statistics of the shipped problem sets.

use sgs_data::sets::stats::StatsBuilder;
use sgs_lean::data::d3k;

#[test]
fn statistics_agree_with_the_paper() {
    let mut stats = StatsBuilder::default();
    d3k().unwrap().iter().for_each(|target| stats.add(target));
    let stats = stats.finish();
    assert_eq!((stats.problems, stats.headers, stats.most_frequent_header), (3323, 5, 3249));
    assert_eq!(stats.repeated_statements, 0);
    let c = stats.characters;
    assert_eq!((c.min, c.p5, c.p50, c.max), (35, 89, 194, 2072));
    assert!((236.0..237.5).contains(&c.mean), "{}", c.mean);
    // Paper: less than 10% of the conclusions contain a disjunction.
    assert!((200..=282).contains(&stats.with_disjunction), "{}", stats.with_disjunction);
}
