//! Converts the events of a round to the status of the live page.

use crate::display::TextDisplay;
use sgs_analysis::live::{LiveStage, LiveStatus, Recent};
use sgs_analysis::run::StatementDisplay;
use sgs_run::{RoundStage, RunEvent};
use sgs_selfplay::reward::guide_score;
use sgs_selfplay::{Problem, ProblemId, Progress, Review, TaskKind};
use std::collections::VecDeque;
use std::time::Instant;

/// Maximum number of proofs, and of conjectures, on the page.
const MAX_CARDS: usize = 40;

pub(super) const STAGES: [(TaskKind, &str); 4] = [
    (TaskKind::Conjecture, "Conjectures"),
    (TaskKind::Rollout, "Rollouts"),
    (TaskKind::Judgement, "Verdicts"),
    (TaskKind::Review, "Reviews"),
];

/// The round in progress.
pub(super) struct Feed {
    shown: TextDisplay,
    round: Option<u32>,
    progress: Progress,
    began: (Instant, Progress),
    /// Latest proofs, newest first, with their order of arrival.
    proofs: VecDeque<(u64, Recent)>,
    conjectures: VecDeque<(u64, Recent)>,
    arrived: u64,
}

impl Feed {
    pub(super) fn new(shown: TextDisplay) -> Self {
        Self {
            shown,
            round: None,
            progress: Progress::default(),
            began: (Instant::now(), Progress::default()),
            proofs: VecDeque::new(),
            conjectures: VecDeque::new(),
            arrived: 0,
        }
    }

    pub(super) fn on(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Stage { round, stage, .. } => {
                self.begin_round(*round);
                if *stage == RoundStage::Evaluating {
                    // The attempts of an evaluation do not count for the round.
                    self.round = None;
                }
            }
            RunEvent::Progress(progress) => self.progress(*progress),
            RunEvent::Conjecture { id, statement } => self.add_conjecture(id, statement),
            RunEvent::Reviewed { id, review, .. } => self.reviewed(id, review),
            RunEvent::Solved { problem, target, proof } => self.proved(problem, *target, proof),
            _ => {}
        }
    }

    /// Resets the counts if this is another round. Proofs and conjectures stay.
    pub(super) fn begin_round(&mut self, round: u32) {
        if self.round != Some(round) {
            self.round = Some(round);
            self.progress = Progress::default();
        }
    }

    /// Updates the counts of the round. Rates are means since the first counts of this round.
    pub(super) fn progress(&mut self, now: Progress) {
        if self.progress == Progress::default() {
            self.began = (Instant::now(), now);
        }
        self.progress = now;
    }

    fn add_conjecture(&mut self, id: &ProblemId, statement: &str) {
        let recent = Recent {
            kind: "conjecture".into(),
            problem: id.to_string(),
            statement: self.shown.statement(statement),
            text: String::new(),
            scores: String::new(),
        };
        self.arrived += 1;
        self.conjectures.push_front((self.arrived, recent));
        self.conjectures.truncate(MAX_CARDS);
    }

    fn reviewed(&mut self, conjecture: &ProblemId, review: &Review) {
        let shown = self.conjectures.iter_mut().find(|(_, r)| r.problem == conjecture.as_str());
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
        self.proofs.truncate(MAX_CARDS);
    }

    /// Returns the stages and the latest proofs and conjectures, newest first.
    pub(super) fn status(&self) -> LiveStatus {
        let seconds = self.began.0.elapsed().as_secs_f64();
        let stage = |&(kind, name): &(TaskKind, &str)| {
            let (now, then) = (self.progress.of(kind), self.began.1.of(kind));
            let rate = (now.done - then.done.min(now.done)) as f64 / seconds;
            let rate = (now.done > then.done && now.done < now.asked && seconds > 0.5).then_some(rate);
            LiveStage { name: name.to_owned(), done: now.done, total: now.asked, rate }
        };
        let mut recent: Vec<&(u64, Recent)> = self.proofs.iter().chain(&self.conjectures).collect();
        recent.sort_by_key(|(order, _)| std::cmp::Reverse(*order));
        LiveStatus {
            round: self.round,
            stages: STAGES.iter().map(stage).filter(|s| s.total > 0).collect(),
            recent: recent.into_iter().map(|(_, r)| r.clone()).collect(),
            ..LiveStatus::default()
        }
    }
}
