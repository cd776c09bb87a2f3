//! The learned Guide: a head on the Guide's reviews, trained in the run on what conjectures did. The paper names a learned
//! Guide as future work; this one is ours.
//!
//! A *lesson* is a conjecture that the Solver was trained on, with the targets that it might have helped: its own and
//! those nearest to it. Some rounds later it is known whether one of them fell. The head is a logistic regression on
//! what a round knows of a conjecture, the review's sub-scores first of all.

use crate::data::{Problem, ProblemId, Review};
use crate::reward::guide_score;
use crate::state::SolvedTarget;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Step of the regression.
const STEP: f64 = 0.05;

/// Numbers that the head sees.
const SIGNS: usize = 8;

/// What the head sees of a conjecture, each about 0 to 1 in size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Signs([f64; SIGNS]);

impl Signs {
    /// Of a conjecture with its review, the formal system's rubric (`0..=8`), its solve rate (`0..=1`) and the lengths of
    /// its statement and its target's, in any unit.
    pub fn of(review: Option<&Review>, rubric: f64, rate: f64, length: usize, target_length: usize) -> Self {
        let [relevance, redundancy, complexity, score] = review.map_or([0.0; 4], |r| {
            [r.relevance / 5.0, r.redundancy, r.complexity / 4.0, guide_score(r) / 8.0]
        });
        let longer = (length.max(1) as f64 / target_length.max(1) as f64).ln().clamp(-2.0, 2.0) / 2.0;
        Self([
            1.0,
            relevance,
            redundancy,
            complexity,
            score,
            rubric.clamp(0.0, 8.0) / 8.0,
            1.0 - rate,
            longer,
        ])
    }
}

/// A conjecture that the Solver was trained on, until it is known what it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lesson {
    /// The round after which the Solver was trained on it.
    pub round: u32,
    /// The last round in which a target may fall for it.
    pub until: u32,
    /// The targets that it might have helped, all unsolved then.
    pub watched: Vec<ProblemId>,
    /// What the head saw of it.
    pub signs: Signs,
}

impl Lesson {
    /// Whether one of its targets was proved for the first time in its rounds.
    fn fell(&self, solved: &BTreeMap<ProblemId, SolvedTarget>) -> bool {
        let in_time = |target: &SolvedTarget| target.round > self.round && target.round <= self.until;
        self.watched.iter().any(|target| solved.get(target).is_some_and(in_time))
    }
}

/// How the head did on the lessons that one round brought to their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graded {
    pub lessons: u64,
    /// Those of which a target fell.
    pub fell: u64,
    /// Sum of the head's logarithmic losses, nats, before it learned from them.
    pub loss: f64,
    /// The same of one who knows only the share that fell before.
    pub loss_of_share: f64,
}

/// What the learned Guide has learned so far. The empty one scores all conjectures alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnedGuide {
    weights: [f64; SIGNS],
    /// Lessons learned, and how many of them fell.
    learned: [u64; 2],
    /// Lessons whose end is to come, oldest first.
    open: Vec<Lesson>,
    latest: Graded,
}

impl LearnedGuide {
    /// R_guide in `0..=8`: `8 p / (p + q)` with the head's probability p that a target falls, and the share q of the
    /// lessons so far of which one did. What promises as much as the average has 4.
    pub fn score(&self, signs: &Signs) -> f64 {
        let p = self.probability(signs);
        8.0 * p / (p + self.share())
    }

    /// How the head did in the round that was absorbed last.
    pub fn latest(&self) -> Graded {
        self.latest
    }

    /// Takes the lessons of a round, and learns from those that it ends.
    pub(crate) fn absorb(
        &mut self,
        round: u32,
        lessons: &[Lesson],
        solved: &BTreeMap<ProblemId, SolvedTarget>,
    ) {
        self.latest = Graded::default();
        let (due, open) =
            std::mem::take(&mut self.open).into_iter().partition(|lesson| lesson.until <= round);
        self.open = open;
        self.open.extend(lessons.iter().cloned());
        for lesson in due {
            self.learn(&lesson, lesson.fell(solved));
        }
    }

    fn learn(&mut self, lesson: &Lesson, fell: bool) {
        let (p, share) = (self.probability(&lesson.signs), self.share());
        let loss = |p: f64| -if fell { p } else { 1.0 - p }.max(1e-12).ln();
        self.latest.lessons += 1;
        self.latest.fell += u64::from(fell);
        self.latest.loss += loss(p);
        self.latest.loss_of_share += loss(share);
        let error = f64::from(u8::from(fell)) - p;
        for (weight, sign) in self.weights.iter_mut().zip(lesson.signs.0) {
            *weight += STEP * error * sign;
        }
        self.learned[0] += 1;
        self.learned[1] += u64::from(fell);
    }

    fn probability(&self, signs: &Signs) -> f64 {
        let sum: f64 = self.weights.iter().zip(signs.0).map(|(weight, sign)| weight * sign).sum();
        1.0 / (1.0 + (-sum).exp())
    }

    /// The share of the lessons that fell, with one of each before the first.
    fn share(&self) -> f64 {
        (self.learned[1] + 1) as f64 / (self.learned[0] + 2) as f64
    }
}

/// The problems nearest to a statement: by the symbols that both have over all symbols (Jaccard of multisets), nearest
/// first; of equals the first.
pub fn nearest<'a>(
    statement: &str,
    problems: impl Iterator<Item = &'a Arc<Problem>>,
    count: usize,
) -> Vec<&'a Arc<Problem>> {
    let own = symbols(statement);
    let mut all: Vec<(f64, &Arc<Problem>)> =
        problems.map(|problem| (overlap(&own, &symbols(&problem.statement)), problem)).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all.into_iter().take(count).map(|(_, problem)| problem).collect()
}

fn symbols(statement: &str) -> HashMap<&str, u32> {
    let mut counts = HashMap::new();
    for symbol in statement.split_whitespace() {
        *counts.entry(symbol).or_default() += 1;
    }
    counts
}

fn overlap(a: &HashMap<&str, u32>, b: &HashMap<&str, u32>) -> f64 {
    let shared: u32 = a.iter().map(|(symbol, count)| count.min(b.get(symbol).unwrap_or(&0))).sum();
    let all = a.values().sum::<u32>() + b.values().sum::<u32>() - shared;
    f64::from(shared) / f64::from(all.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lesson(round: u32, relevance: f64) -> Lesson {
        let review = Review { relevance, redundancy: 0.0, complexity: 1.0 };
        let signs = Signs::of(Some(&review), 4.0, 0.5, 20, 40);
        Lesson { round, until: round + 2, watched: vec![ProblemId::new(format!("t{round}"))], signs }
    }

    fn solved(rounds: &[(u32, u32)]) -> BTreeMap<ProblemId, SolvedTarget> {
        let one = |&(target, round): &(u32, u32)| {
            let first = SolvedTarget { round, index: 0, proof: Arc::from("p"), best_rate: 0.1 };
            (ProblemId::new(format!("t{target}")), first)
        };
        rounds.iter().map(one).collect()
    }

    #[test]
    fn a_target_falls_for_a_lesson_only_in_its_rounds() {
        let fell = |round| lesson(3, 1.0).fell(&solved(&[(3, round)]));
        assert_eq!([2, 3, 4, 5, 6].map(fell), [false, false, true, true, false]);
        assert!(!lesson(3, 1.0).fell(&solved(&[(4, 4)])), "another target");
    }

    #[test]
    fn what_is_not_learned_yet_scores_all_alike() {
        let guide = LearnedGuide::default();
        assert_eq!(guide.score(&lesson(0, 0.0).signs), 4.0);
        assert_eq!(guide.score(&lesson(0, 5.0).signs), 4.0);
    }

    /// Where relevant conjectures help and others do not, the head says so, and does better than the share alone.
    #[test]
    fn it_learns_which_conjectures_help() {
        let mut guide = LearnedGuide::default();
        let mut last = Graded::default();
        for round in 0..2_000 {
            let helps = round % 4 == 0;
            let fell = if helps { solved(&[(round - round.min(2), round - 1)]) } else { solved(&[]) };
            // The lesson of two rounds ago ends in this one.
            let relevance = if (round + 2) % 4 == 0 { 5.0 } else { 1.0 };
            guide.absorb(round, &[lesson(round, relevance)], &fell);
            if round >= 1_900 {
                let Graded { lessons, fell, loss, loss_of_share } = guide.latest();
                last = Graded {
                    lessons: last.lessons + lessons,
                    fell: last.fell + fell,
                    loss: last.loss + loss,
                    loss_of_share: last.loss_of_share + loss_of_share,
                };
            }
        }
        assert_eq!((last.lessons, last.fell), (100, 25));
        assert!(last.loss < 0.5 * last.loss_of_share, "{last:?}");
        assert!(guide.score(&lesson(0, 5.0).signs) > 5.0 && guide.score(&lesson(0, 1.0).signs) < 2.0);
    }

    #[test]
    fn the_nearest_share_most_symbols() {
        let problem = |statement: &str| {
            let (id, context) = (ProblemId::new(statement), Arc::from(""));
            Arc::new(Problem { id, statement: Arc::from(statement), context })
        };
        let problems = ["a b c", "x y", "a b", "a a b c"].map(problem);
        let near = nearest("a b c c", problems.iter(), 2);
        assert_eq!(near.iter().map(|p| &*p.statement).collect::<Vec<_>>(), ["a b c", "a a b c"]);
        assert!(nearest("", problems.iter(), 9).len() == 4);
    }

    proptest! {
        #[test]
        fn scores_are_in_range(relevance in 0.0f64..=5.0, rate in 0.0f64..=1.0, length in 0usize..1000, fell: Vec<bool>) {
            let review = Review { relevance, redundancy: 1.0, complexity: 4.0 };
            let signs = Signs::of(Some(&review), 9.0, rate, length, 30);
            let mut guide = LearnedGuide::default();
            for fell in fell {
                let lesson = Lesson { signs, ..lesson(0, 0.0) };
                guide.learn(&lesson, fell);
                prop_assert!((0.0..=8.0).contains(&guide.score(&signs)));
            }
        }
    }
}
