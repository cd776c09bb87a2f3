//! The learned Guide: a regression on the Guide's reviews. It is trained during the run on whether conjectures helped.
//! The paper names a learned Guide as future work; this design is not from the paper.
//!
//! A training example is a conjecture that the Solver was trained on, together with the targets that it may help: its
//! own target and those most similar to it. Its label is whether one of these targets is solved within the following
//! rounds. The model is a logistic regression on the features of a conjecture that a round knows, in particular the
//! sub-scores of its review.

use crate::data::{Problem, ProblemId, Review};
use crate::reward::guide_score;
use crate::store::SolvedTarget;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Learning rate of the regression.
const LEARNING_RATE: f64 = 0.05;

/// Number of features.
const FEATURES: usize = 8;

/// The features of a conjecture, each of magnitude about 1 or less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuideFeatures([f64; FEATURES]);

impl GuideFeatures {
    /// Computes the features of a conjecture from its review, the score of the formal system's rubric (`0..=8`), its solve
    /// rate (`0..=1`), and the lengths of its statement and of its target's statement (in the same unit).
    pub fn of(review: Option<&Review>, rubric: f64, rate: f64, length: usize, target_length: usize) -> Self {
        let [relevance, redundancy, complexity, score] = review.map_or([0.0; 4], |r| {
            [r.relevance / 5.0, r.redundancy, r.complexity / 4.0, guide_score(r) / 8.0]
        });
        let log_ratio = (length.max(1) as f64 / target_length.max(1) as f64).ln().clamp(-2.0, 2.0) / 2.0;
        let rubric = rubric.clamp(0.0, 8.0) / 8.0;
        Self([1.0, relevance, redundancy, complexity, score, rubric, 1.0 - rate, log_ratio])
    }
}

/// A conjecture that the Solver was trained on, kept until its label is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuideExample {
    /// The round that trained the Solver on it.
    pub round: u32,
    /// Last round in which solving a watched target counts as a success.
    pub until: u32,
    /// The targets that the conjecture may help, all unsolved when it was trained on.
    pub watched: Vec<ProblemId>,
    /// Features of the conjecture.
    #[serde(alias = "signs")]
    pub features: GuideFeatures,
}

impl GuideExample {
    /// Returns whether one of the watched targets was first solved after `round` and no later than `until`.
    fn helped(&self, solved: &BTreeMap<ProblemId, SolvedTarget>) -> bool {
        let in_time = |target: &SolvedTarget| target.round > self.round && target.round <= self.until;
        self.watched.iter().any(|target| solved.get(target).is_some_and(in_time))
    }
}

/// How well the regression predicted the examples whose labels became known in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ForecastScore {
    /// Number of examples.
    #[serde(alias = "lessons")]
    pub examples: u64,
    /// Number of examples with a positive label.
    #[serde(alias = "fell")]
    pub positive: u64,
    /// Sum of the logarithmic losses, in nats, each taken before the regression is updated with the example.
    pub loss: f64,
    /// The same for a baseline that always predicts the share of positive labels so far.
    #[serde(alias = "loss_of_share")]
    pub baseline_loss: f64,
}

/// State of the learned Guide. The default state gives every conjecture the same score.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnedGuide {
    weights: [f64; FEATURES],
    /// Number of examples trained on, and the number of positive ones among them.
    learned: [u64; 2],
    /// Examples whose labels are not known yet, oldest first.
    open: Vec<GuideExample>,
    latest: ForecastScore,
}

impl LearnedGuide {
    /// Returns R_guide in `0..=8`: `8 p / (p + q)`, where p is the predicted probability that a watched target is solved
    /// and q is the share of positive examples so far. An average conjecture scores 4.
    pub fn score(&self, features: &GuideFeatures) -> f64 {
        let p = self.probability(features);
        8.0 * p / (p + self.base_rate())
    }

    /// Returns the forecast score of the round absorbed last.
    pub fn latest(&self) -> ForecastScore {
        self.latest
    }

    /// Adds a round's examples and trains on those whose labels this round decides.
    pub(crate) fn absorb(
        &mut self,
        round: u32,
        examples: &[GuideExample],
        solved: &BTreeMap<ProblemId, SolvedTarget>,
    ) {
        self.latest = ForecastScore::default();
        let (due, open) =
            std::mem::take(&mut self.open).into_iter().partition(|example| example.until <= round);
        self.open = open;
        self.open.extend(examples.iter().cloned());
        for example in due {
            self.train(&example, example.helped(solved));
        }
    }

    fn train(&mut self, example: &GuideExample, helped: bool) {
        let (p, base_rate) = (self.probability(&example.features), self.base_rate());
        let loss = |p: f64| -if helped { p } else { 1.0 - p }.max(1e-12).ln();
        self.latest.examples += 1;
        self.latest.positive += u64::from(helped);
        self.latest.loss += loss(p);
        self.latest.baseline_loss += loss(base_rate);
        let error = f64::from(u8::from(helped)) - p;
        for (weight, feature) in self.weights.iter_mut().zip(example.features.0) {
            *weight += LEARNING_RATE * error * feature;
        }
        self.learned[0] += 1;
        self.learned[1] += u64::from(helped);
    }

    fn probability(&self, features: &GuideFeatures) -> f64 {
        let sum: f64 = self.weights.iter().zip(features.0).map(|(weight, feature)| weight * feature).sum();
        1.0 / (1.0 + (-sum).exp())
    }

    /// Returns the share of positive examples, with one example of each label as the prior (Laplace's rule).
    fn base_rate(&self) -> f64 {
        (self.learned[1] + 1) as f64 / (self.learned[0] + 2) as f64
    }
}

/// Returns the `count` problems whose statements are most similar to a statement, most similar first. Similarity is the
/// Jaccard index of the multisets of symbols; ties keep the order of `problems`.
pub fn nearest<'a>(
    statement: &str,
    problems: impl Iterator<Item = &'a Arc<Problem>>,
    count: usize,
) -> Vec<&'a Arc<Problem>> {
    let own = symbols(statement);
    let mut all: Vec<(f64, &Arc<Problem>)> =
        problems.map(|problem| (jaccard(&own, &symbols(&problem.statement)), problem)).collect();
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

fn jaccard(a: &HashMap<&str, u32>, b: &HashMap<&str, u32>) -> f64 {
    let shared: u32 = a.iter().map(|(symbol, count)| count.min(b.get(symbol).unwrap_or(&0))).sum();
    let all = a.values().sum::<u32>() + b.values().sum::<u32>() - shared;
    f64::from(shared) / f64::from(all.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example(round: u32, relevance: f64) -> GuideExample {
        let review = Review { relevance, redundancy: 0.0, complexity: 1.0 };
        let features = GuideFeatures::of(Some(&review), 4.0, 0.5, 20, 40);
        GuideExample { round, until: round + 2, watched: vec![ProblemId::new(format!("t{round}"))], features }
    }

    /// Creates solved targets from pairs of the target's number and the round that solved it.
    fn solved(targets: &[(u32, u32)]) -> BTreeMap<ProblemId, SolvedTarget> {
        let entry = |&(target, round): &(u32, u32)| {
            let first = SolvedTarget { round, index: 0, proof: Arc::from("p"), best_rate: 0.1 };
            (ProblemId::new(format!("t{target}")), first)
        };
        targets.iter().map(entry).collect()
    }

    #[test]
    fn only_a_watched_target_solved_in_time_counts() {
        let helped = |round| example(3, 1.0).helped(&solved(&[(3, round)]));
        assert_eq!([2, 3, 4, 5, 6].map(helped), [false, false, true, true, false]);
        assert!(!example(3, 1.0).helped(&solved(&[(4, 4)])), "another target");
    }

    #[test]
    fn an_untrained_guide_gives_every_conjecture_the_same_score() {
        let guide = LearnedGuide::default();
        assert_eq!(guide.score(&example(0, 0.0).features), 4.0);
        assert_eq!(guide.score(&example(0, 5.0).features), 4.0);
    }

    /// If only relevant conjectures help, the regression must learn it and beat the baseline.
    #[test]
    fn it_learns_which_conjectures_help() {
        let mut guide = LearnedGuide::default();
        let mut last = ForecastScore::default();
        for round in 0..2_000 {
            let helps = round % 4 == 0;
            let solved =
                if helps { solved(&[(round - round.min(2), round.saturating_sub(1))]) } else { solved(&[]) };
            // The label of the example added two rounds ago is decided in this round.
            let relevance = if (round + 2) % 4 == 0 { 5.0 } else { 1.0 };
            guide.absorb(round, &[example(round, relevance)], &solved);
            if round >= 1_900 {
                let latest = guide.latest();
                last = ForecastScore {
                    examples: last.examples + latest.examples,
                    positive: last.positive + latest.positive,
                    loss: last.loss + latest.loss,
                    baseline_loss: last.baseline_loss + latest.baseline_loss,
                };
            }
        }
        assert_eq!((last.examples, last.positive), (100, 25));
        assert!(last.loss < 0.5 * last.baseline_loss, "{last:?}");
        assert!(guide.score(&example(0, 5.0).features) > 5.0 && guide.score(&example(0, 1.0).features) < 2.0);
    }

    #[test]
    fn names_of_early_versions_are_read() {
        let example = example(3, 1.0);
        let mut early = serde_json::to_value(&example).unwrap();
        early["signs"] = early["features"].take();
        early.as_object_mut().unwrap().remove("features");
        assert_eq!(serde_json::from_value::<GuideExample>(early).unwrap(), example);
        let early = r#"{"lessons": 4, "fell": 1, "loss": 2.0, "loss_of_share": 3.0}"#;
        let score = ForecastScore { examples: 4, positive: 1, loss: 2.0, baseline_loss: 3.0 };
        assert_eq!(serde_json::from_str::<ForecastScore>(early).unwrap(), score);
        let early = r#"{"lessons": 4, "lessons_fell": 1, "lesson_loss": 0.5, "lesson_loss_of_share": 0.75}"#;
        let metrics: crate::metrics::RoundMetrics = serde_json::from_str(early).unwrap();
        assert_eq!((metrics.guide_examples, metrics.guide_examples_positive), (4, 1));
        assert_eq!((metrics.guide_loss, metrics.guide_baseline_loss), (Some(0.5), Some(0.75)));
    }

    #[test]
    fn the_nearest_problems_share_the_most_symbols() {
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
        fn scores_are_in_range(relevance in 0.0f64..=5.0, rate in 0.0f64..=1.0, length in 0usize..1000, labels: Vec<bool>) {
            let review = Review { relevance, redundancy: 1.0, complexity: 4.0 };
            let features = GuideFeatures::of(Some(&review), 9.0, rate, length, 30);
            let mut guide = LearnedGuide::default();
            for helped in labels {
                let example = GuideExample { features, ..example(0, 0.0) };
                guide.train(&example, helped);
                prop_assert!((0.0..=8.0).contains(&guide.score(&features)));
            }
        }
    }
}
