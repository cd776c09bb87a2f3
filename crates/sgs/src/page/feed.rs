//! From the events of a round to what a page shows of it.

use crate::shown::Shown;
use sgs_analysis::live::{Recent, StageProgress, Status};
use sgs_analysis::run::Display;
use sgs_selfplay::reward::guide_score;
use sgs_selfplay::round::conjecture_id;
use sgs_selfplay::{Event, Problem, ProblemId, Progress, Review, Round, TaskKey, TaskKind, Verdict};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
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
    targets: HashMap<ProblemId, Arc<Problem>>,
    round: Option<u32>,
    progress: Progress,
    began: (Instant, Progress),
    /// Conjectures of the round by name: statement, and the target whose context they share.
    conjectures: HashMap<ProblemId, (Arc<str>, ProblemId)>,
    /// Proofs that wait for their verdicts.
    unjudged: HashMap<TaskKey, Arc<str>>,
    /// Problems of the round of which a proof is shown.
    proved: HashSet<ProblemId>,
    /// The latest, newest first, with their order of arrival.
    proofs: VecDeque<(u64, Recent)>,
    inventions: VecDeque<(u64, Recent)>,
    arrived: u64,
}

impl Feed {
    pub(super) fn new(shown: Shown, targets: &[Arc<Problem>]) -> Self {
        Self {
            shown,
            targets: targets.iter().map(|t| (t.id.clone(), Arc::clone(t))).collect(),
            round: None,
            progress: Progress::default(),
            began: (Instant::now(), Progress::default()),
            conjectures: HashMap::new(),
            unjudged: HashMap::new(),
            proved: HashSet::new(),
            proofs: VecDeque::new(),
            inventions: VecDeque::new(),
            arrived: 0,
        }
    }

    /// Forgets the round before, if this is another one; proofs and conjectures stay shown.
    pub(super) fn begin_round(&mut self, round: u32) {
        if self.round == Some(round) {
            return;
        }
        self.round = Some(round);
        self.progress = Progress::default();
        self.conjectures.clear();
        self.unjudged.clear();
        self.proved.clear();
    }

    /// The counts of the round. Rates are means since the first counts of this round that were seen.
    pub(super) fn progress(&mut self, round: &Round) {
        let now = round.progress();
        if self.progress == Progress::default() {
            self.began = (Instant::now(), now);
        }
        self.progress = now;
    }

    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::Conjecture { key, read: Ok(read), .. } => self.invented(key, &read.statement),
            Event::Rollout { key, read: Ok(proof), .. } => {
                self.unjudged.insert(key.clone(), Arc::clone(&proof.text));
            }
            Event::Judgement { key, judgement } => {
                let proof = self.unjudged.remove(&key.with_kind(TaskKind::Rollout));
                if let (Verdict::Proved, Some(proof)) = (judgement.verdict, proof) {
                    self.proved(&key.problem, &proof);
                }
            }
            Event::Review { key, read: Ok(review), .. } => self.reviewed(&key.problem, review),
            _ => {}
        }
    }

    fn invented(&mut self, key: &TaskKey, statement: &Arc<str>) {
        let id = conjecture_id(key.round, &key.problem, key.index);
        let recent = Recent {
            kind: "conjecture".into(),
            problem: id.to_string(),
            statement: self.shown.statement(statement),
            text: String::new(),
            scores: String::new(),
        };
        self.conjectures.insert(id, (Arc::clone(statement), key.problem.clone()));
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

    /// The first proof of a problem in this round.
    fn proved(&mut self, id: &ProblemId, proof: &str) {
        if !self.proved.insert(id.clone()) {
            return;
        }
        let problem = match (self.targets.get(id), self.conjectures.get(id)) {
            (Some(target), _) => Arc::clone(target),
            (None, Some((statement, target))) => {
                let context = self.targets.get(target).map_or_else(|| "".into(), |t| Arc::clone(&t.context));
                Arc::new(Problem { id: id.clone(), statement: Arc::clone(statement), context })
            }
            (None, None) => return,
        };
        let recent = Recent {
            kind: "proof".into(),
            problem: id.to_string(),
            statement: self.shown.statement(&problem.statement),
            text: self.shown.proof(&problem.statement, &problem.context, proof),
            scores: if self.targets.contains_key(id) { "target".into() } else { "conjecture".into() },
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
