//! Reviews before the first round, which show whether the Guide's output can be read.

use crate::config::{RunConfig, guide_format};
use crate::error::Result;
use crate::round::dispatcher::Work;
use crate::round::event::EventStream;
use crate::round::record::Entry;
use sgs_selfplay::seed::evaluation_seed;
use sgs_selfplay::{Command, Event, Problem, Progress, TaskKey, TaskKind};
use std::sync::Arc;

const REVIEWS: u32 = 64;

/// Reviews of targets as conjectures for other targets.
pub(crate) struct GuideCheck<'a> {
    config: &'a RunConfig,
    targets: &'a [Arc<Problem>],
    sampled: u32,
    readable: u32,
    progress: Progress,
}

impl<'a> GuideCheck<'a> {
    /// Returns the check; `None` if no model reviews conjectures or the check is turned off.
    pub(crate) fn new(config: &'a RunConfig, targets: &'a [Arc<Problem>]) -> Option<Self> {
        let algorithm = &config.algorithm;
        let wanted =
            algorithm.has_model_reviews() && algorithm.guide.min_readable > 0.0 && !targets.is_empty();
        wanted.then(|| Self { config, targets, sampled: 0, readable: 0, progress: Progress::default() })
    }

    /// Returns an error if too few reviews could be read.
    pub(crate) fn outcome(&self) -> Result<()> {
        tracing::info!("{} of the Guide's {} reviews can be read", self.readable, self.sampled);
        guide_format::check(self.config, self.readable, self.sampled)
    }
}

impl Work for GuideCheck<'_> {
    fn name(&self) -> String {
        "the check of the Guide".to_owned()
    }

    fn describe_open(&self, tasks: usize) -> String {
        format!("{tasks} reviews that check the Guide are open")
    }

    fn begin(&mut self) -> Vec<Command> {
        let review = |(index, target): (u32, &Arc<Problem>)| {
            let conjecture = &self.targets[(index as usize + 1) % self.targets.len()];
            let key = TaskKey { round: 0, kind: TaskKind::Review, problem: target.id.clone(), index };
            let seed = evaluation_seed(self.config.seed, &target.id, index);
            Command::SampleReview {
                key,
                seed,
                target: Arc::clone(target),
                conjecture: Arc::clone(conjecture),
            }
        };
        self.progress.reviews.asked = REVIEWS.into();
        (0..REVIEWS).zip(self.targets.iter().cycle()).map(review).collect()
    }

    fn apply(&mut self, entry: Entry, _: &mut EventStream<'_>) -> Vec<Command> {
        self.progress.reviews.done += 1;
        if let Event::Review { read, .. } = entry.event {
            self.sampled += 1;
            self.readable += u32::from(read.is_ok_and(|review| review.is_in_range()));
        }
        Vec::new()
    }

    fn is_complete(&self) -> bool {
        self.progress.reviews.done == self.progress.reviews.asked
    }

    fn progress(&self) -> Progress {
        self.progress
    }
}
