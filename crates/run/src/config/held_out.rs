//! Selects the problems that a run uses for evaluation only.

use sgs_keys::above;
use sgs_selfplay::{Problem, ProblemId};
use sha2::{Digest, Sha256};
use std::collections::HashSet;

sgs_keys::table! {
    /// Evaluation of the Solver on held-out problems. Its samples are not counted as generations and are not used for
    /// training.
    #[derive(Clone, Debug, PartialEq)]
    pub struct EvaluationConfig {
        /// Problems for evaluation only. Those that are also targets are skipped.
        pub held_out: String = NONE.to_owned(),
            in "none; a set as in problems.set, such as held-out (200 theorems that are not in quick or train); split (a fraction of problems.set, which is then removed from the targets); a file",
        /// With held_out = split: fraction of problems.set that is held out.
        pub share: f64 = 0.1, in above(0.0).below(1.0),
        /// Maximum number of held-out problems; the first ones are used.
        pub problems: usize = 200, in 1..=1_000_000,
        /// Number of proofs sampled per held-out problem.
        pub samples: u32 = 8, in 1..=1024,
        /// Number of rounds between evaluations. 0 means only before the first round and after the last.
        pub every: u32 = 10, in 0..=1_000_000,
        /// Number of proofs that the base model samples per target before the first round. These and the proofs of the
        /// first round give the base model's pass@k on the targets.
        pub target_samples: u32 = 0, in 0..=1024,
    }
}

/// Value of `held_out` for no held-out problems.
pub const NONE: &str = "none";

/// Value of `held_out` for a fraction of the run's own problems.
pub(crate) const SPLIT: &str = "split";

impl EvaluationConfig {
    /// Returns the set or file that held-out problems are read from. Returns `None` if the run has no held-out
    /// problems, or if they are split off from its own problems.
    pub fn source(&self) -> Option<&str> {
        (self.held_out != NONE && self.held_out != SPLIT).then_some(self.held_out.as_str())
    }
}

/// Held-out problems and a note about them for the user.
#[derive(Clone, Debug, Default)]
pub struct HeldOut {
    /// The problems, in the order of their set.
    pub problems: Vec<Problem>,
    /// One line, or `None` if the configuration asks for no held-out problems.
    pub note: Option<String>,
}

/// Maps a statement to its content without the name. Statements with equal content are duplicates.
pub type Says<'s> = &'s dyn Fn(&str) -> String;

/// Selects the held-out problems: those of `others` (read from [`EvaluationConfig::source`]) that are not targets, or a
/// fraction of the targets, which are then removed from `targets`.
pub fn choose(
    config: &EvaluationConfig,
    targets: &mut Vec<Problem>,
    others: Vec<Problem>,
    says: Says<'_>,
) -> HeldOut {
    if config.held_out == NONE {
        return HeldOut::default();
    }
    let from_others = config.source().is_some();
    let (all, before) = (others.len(), targets.len());
    let mut problems = if from_others { unlike(targets, others, says) } else { split(config, targets, says) };
    problems.truncate(config.problems);
    let name = &config.held_out;
    let note = match problems.len() {
        0 if !from_others => format!(
            "no held-out evaluation: {} of {} is less than one problem (evaluation.share)",
            config.share,
            targets.len()
        ),
        0 => format!(
            "no held-out evaluation: all {all} problems of `{name}` are among the targets; choose a smaller problems.set, \
             or other problems with evaluation.held_out"
        ),
        n if from_others => format!("held out: {n} problems of `{name}` that are not trained on"),
        n => {
            let twins = before - n - targets.len();
            let twins = match twins {
                0 => String::new(),
                twins => format!("; {twins} duplicates of these are left out"),
            };
            format!("held out: {n} problems of problems.set, which leaves {} targets{twins}", targets.len())
        }
    };
    HeldOut { problems, note: Some(note) }
}

/// Removes the problems that [`choose`] would hold out from a run's problems.
pub fn leave_out(config: &EvaluationConfig, targets: &mut Vec<Problem>, says: Says<'_>) {
    if config.held_out == SPLIT {
        split(config, targets, says);
    }
}

/// Returns those of `others` that differ from all targets in name and content.
fn unlike(targets: &[Problem], others: Vec<Problem>, says: Says<'_>) -> Vec<Problem> {
    let ids: HashSet<&ProblemId> = targets.iter().map(|t| &t.id).collect();
    let said: HashSet<String> = targets.iter().map(|t| says(&t.statement)).collect();
    others.into_iter().filter(|p| !ids.contains(&p.id) && !said.contains(&says(&p.statement))).collect()
}

/// Removes a fraction of the targets and returns it. The selection depends only on the targets' names, so it is the
/// same for every seed and method. Targets that duplicate a held-out one under another name are dropped, because the
/// run would otherwise be trained on the content of its held-out problems.
fn split(config: &EvaluationConfig, targets: &mut Vec<Problem>, says: Says<'_>) -> Vec<Problem> {
    let count = (config.share * targets.len() as f64).floor() as usize;
    let count = count.min(config.problems);
    let mut order: Vec<([u8; 32], usize)> =
        targets.iter().enumerate().map(|(at, target)| (lot(&target.id), at)).collect();
    order.sort_unstable();
    let mut said = HashSet::new();
    let drawn = order.into_iter().filter(|(_, at)| said.insert(says(&targets[*at].statement)));
    let chosen: HashSet<usize> = drawn.map(|(_, at)| at).take(count).collect();
    let mut at = 0..;
    let held: Vec<Problem> =
        targets.extract_if(.., |_| at.next().is_some_and(|at| chosen.contains(&at))).collect();
    let said: HashSet<String> = held.iter().map(|problem| says(&problem.statement)).collect();
    targets.retain(|target| !said.contains(&says(&target.statement)));
    held
}

fn lot(id: &ProblemId) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"sgs-split-v1\0");
    hash.update(id.as_str().as_bytes());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn problems(ids: std::ops::Range<usize>) -> Vec<Problem> {
        let problem = |i| Problem {
            id: ProblemId::new(format!("p{i}")),
            statement: format!("s{i}").into(),
            context: "".into(),
        };
        ids.map(problem).collect()
    }

    fn plainly(statement: &str) -> String {
        statement.to_owned()
    }

    fn config(held_out: &str) -> EvaluationConfig {
        EvaluationConfig { held_out: held_out.to_owned(), problems: 5, ..EvaluationConfig::default() }
    }

    #[test]
    fn targets_are_not_held_out() {
        let mut targets = problems(0..10);
        let chosen = choose(&config("held-out"), &mut targets, problems(8..40), &plainly);
        assert_eq!(chosen.problems, problems(10..15), "the first that are not targets");
        let renamed = Problem { id: ProblemId::new("other"), ..problems(3..4).remove(0) };
        assert!(choose(&config("x.jsonl"), &mut targets, vec![renamed], &plainly).problems.is_empty());
        let chosen = choose(&config("held-out"), &mut targets, problems(2..6), &plainly);
        assert!(chosen.note.unwrap().starts_with("no held-out evaluation: all 4 problems"));
        assert_eq!(targets, problems(0..10));
        assert!(choose(&config(NONE), &mut targets, Vec::new(), &plainly).note.is_none());
    }

    #[test]
    fn a_split_does_not_depend_on_the_order_and_leaves_the_rest() {
        let mut targets = problems(0..20);
        let config = EvaluationConfig { share: 0.15, ..config(SPLIT) };
        let held = choose(&config, &mut targets, Vec::new(), &plainly);
        assert_eq!((held.problems.len(), targets.len()), (3, 17));
        assert!(held.problems.iter().all(|p| !targets.contains(p)));
        let mut reversed: Vec<Problem> = problems(0..20).into_iter().rev().collect();
        let mut again = choose(&config, &mut reversed, Vec::new(), &plainly).problems;
        again.reverse();
        assert_eq!(again, held.problems);
        let few = choose(&config, &mut problems(0..6), Vec::new(), &plainly);
        assert!(few.problems.is_empty() && few.note.unwrap().contains("0.15 of 6 is less than one problem"));
    }

    #[test]
    fn duplicates_of_held_out_problems_are_not_trained_on() {
        let says = |statement: &str| {
            statement.trim_start_matches('s').parse::<usize>().map_or(0, |n| n / 2).to_string()
        };
        let mut targets = problems(0..20);
        let config = EvaluationConfig { share: 0.2, ..config(SPLIT) };
        let chosen = choose(&config, &mut targets, Vec::new(), &says);
        assert!(chosen.note.unwrap().ends_with("12 targets; 4 duplicates of these are left out"));
        let held = chosen.problems;
        assert_eq!((held.len(), targets.len()), (4, 12), "four held out and their four duplicates dropped");
        let said: HashSet<String> = held.iter().map(|p| says(&p.statement)).collect();
        assert_eq!(said.len(), 4, "no duplicates");
        assert!(targets.iter().all(|target| !said.contains(&says(&target.statement))));
        let others =
            choose(&EvaluationConfig { held_out: "x.jsonl".into(), ..config }, &mut targets, held, &says);
        assert_eq!(others.problems.len(), 4, "none of them duplicates a target");
    }
}
