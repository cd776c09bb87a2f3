//! From the events of a round to what a page shows of it.

use crate::shown::Shown;
use sgs_analysis::live::{Recent, StageProgress, Status};
use sgs_analysis::run::Display;
use sgs_run::{RoundStage, RunEvent};
use sgs_selfplay::reward::guide_score;
use sgs_selfplay::{Problem, ProblemId, Progress, Review, TaskKind};
use std::collections::VecDeque;
use std::time::Instant;

/// Proofs, and as many conjectures, that a page shows.
const SHOWN: usize = 40;

const STAGES: [(TaskKind, &str); 4] = [
    (TaskKind::Conjecture, "Conjectures"),
    (TaskKind::Rollout, "Rollouts"),
    (TaskKind::Judgement, "Verdicts"),
    (TaskKind::Review, "Reviews"),
];

/// What is known of the round in progress.
pub(super) struct Feed {
    shown: Shown,
    round: Option<u32>,
    progress: Progress,
    began: (Instant, Progress),
    /// The latest, newest first, with their order of arrival.
    proofs: VecDeque<(u64, Recent)>,
    inventions: VecDeque<(u64, Recent)>,
    arrived: u64,
}

impl Feed {
    pub(super) fn new(shown: Shown) -> Self {
        Self {
            shown,
            round: None,
            progress: Progress::default(),
            began: (Instant::now(), Progress::default()),
            proofs: VecDeque::new(),
            inventions: VecDeque::new(),
            arrived: 0,
        }
    }

    pub(super) fn on(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Stage { round, stage, .. } => {
                self.begin_round(*round);
                if *stage == RoundStage::Evaluating {
                    // Its attempts are none of the round's.
                    self.round = None;
                }
            }
            RunEvent::Progress(progress) => self.progress(*progress),
            RunEvent::Conjecture { id, statement } => self.invented(id, statement),
            RunEvent::Reviewed { id, review, .. } => self.reviewed(id, review),
            RunEvent::Solved { problem, target, proof } => self.proved(problem, *target, proof),
            _ => {}
        }
    }

    /// Forgets the counts of the round before, if this is another one; proofs and conjectures stay shown.
    pub(super) fn begin_round(&mut self, round: u32) {
        if self.round != Some(round) {
            self.round = Some(round);
            self.progress = Progress::default();
        }
    }

    /// The counts of the round. Rates are means since the first counts of this round that were seen.
    pub(super) fn progress(&mut self, now: Progress) {
        if self.progress == Progress::default() {
            self.began = (Instant::now(), now);
        }
        self.progress = now;
    }

    fn invented(&mut self, id: &ProblemId, statement: &str) {
        let recent = Recent {
            kind: "conjecture".into(),
            problem: id.to_string(),
            statement: self.shown.statement(statement),
            text: String::new(),
            scores: String::new(),
        };
        self.arrived += 1;
        self.inventions.push_front((self.arrived, recent));
        self.inventions.truncate(SHOWN);
    }

    fn reviewed(&mut self, conjecture: &ProblemId, review: &Review) {
        let shown = self.inventions.iter_mut().find(|(_, r)| r.problem == conjecture.as_str());
        if let Some((_, recent)) = shown {
            let Review { relevance, redundancy, complexity } = review;
            recent.scores = format!(
                "relevance {relevance}/5 · redundancy {redundancy}/1 · complexity {complexity}/4 · R_guide {}/8",
                guide_score(review)
            );
        }
    }

    fn proved(&mut self, problem: &Problem, target: bool, proof: &str) {
        let recent = Recent {
            kind: "proof".into(),
            problem: problem.id.to_string(),
            statement: self.shown.statement(&problem.statement),
            text: self.shown.proof(&problem.statement, &problem.context, proof),
            scores: if target { "target".into() } else { "conjecture".into() },
        };
        self.arrived += 1;
        self.proofs.push_front((self.arrived, recent));
        self.proofs.truncate(SHOWN);
    }

    /// Stages and the latest proofs and conjectures, newest first.
    pub(super) fn status(&self) -> Status {
        let seconds = self.began.0.elapsed().as_secs_f64();
        let stage = |&(kind, name): &(TaskKind, &str)| {
            let (now, then) = (self.progress.of(kind), self.began.1.of(kind));
            let rate = (now.done - then.done.min(now.done)) as f64 / seconds;
            let rate = (now.done > then.done && now.done < now.asked && seconds > 0.5).then_some(rate);
            StageProgress { name: name.to_owned(), done: now.done, total: now.asked, rate }
        };
        let mut recent: Vec<&(u64, Recent)> = self.proofs.iter().chain(&self.inventions).collect();
        recent.sort_by_key(|(order, _)| std::cmp::Reverse(*order));
        Status {
            round: self.round,
            stages: STAGES.iter().map(stage).filter(|s| s.total > 0).collect(),
            recent: recent.into_iter().map(|(_, r)| r.clone()).collect(),
            ..Status::default()
        }
    }
}
