//! Sinks of a run's metrics.

use super::{JsonLinesSink, MetricKind, MetricValues, TensorBoardSink};
use crate::error::Result;

/// The last round and the last evaluation that were recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastRecorded {
    /// Number of the last round.
    pub round: Option<u32>,
    /// Number of rounds before the last evaluation.
    pub evaluation: Option<u32>,
}

impl LastRecorded {
    /// Notes a round or evaluation, and returns whether it is a later one.
    pub(super) fn note(&mut self, metrics: &MetricValues) -> bool {
        let last = match metrics.kind {
            MetricKind::Round => &mut self.round,
            MetricKind::Evaluation => &mut self.evaluation,
        };
        let is_new = last.is_none_or(|last| metrics.round > last);
        *last = (*last).max(Some(metrics.round));
        is_new
    }
}

/// The destinations of metrics in addition to the rounds' directories. One that fails is logged once and disabled, and the
/// run continues.
pub struct MetricSinks {
    tensorboard: Option<TensorBoardSink>,
    lines: Option<JsonLinesSink>,
    failures: Vec<String>,
}

impl MetricSinks {
    pub(crate) fn new(tensorboard: Result<TensorBoardSink>, lines: Result<JsonLinesSink>) -> Self {
        let mut sinks = Self { tensorboard: None, lines: None, failures: Vec::new() };
        sinks.tensorboard = sinks.working("TensorBoard", tensorboard);
        sinks.lines = sinks.working("metrics.jsonl", lines);
        sinks
    }

    /// Records a round or evaluation in every sink that does not have it yet. TensorBoard comes before `metrics.jsonl`,
    /// which determines the next round to record: a crash between the two repeats an event in TensorBoard, but never
    /// loses one.
    pub fn record(&mut self, metrics: &MetricValues) {
        if let Some(mut sink) = self.tensorboard.take() {
            let recorded = sink.record(metrics).map(|()| sink);
            self.tensorboard = self.working("TensorBoard", recorded);
        }
        if let Some(mut sink) = self.lines.take() {
            let recorded = sink.record(metrics).map(|()| sink);
            self.lines = self.working("metrics.jsonl", recorded);
        }
    }

    /// Returns the smallest last round of the working sinks. When a run is opened, all later rounds are recorded again.
    pub(crate) fn behind(&self) -> Option<u32> {
        let tensorboard = self.tensorboard.as_ref().map(TensorBoardSink::recorded);
        let lines = self.lines.as_ref().map(JsonLinesSink::recorded);
        tensorboard.into_iter().chain(lines).map(|recorded| recorded.round).min().flatten()
    }

    /// Returns a message for each sink that was disabled.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    fn working<S>(&mut self, name: &str, sink: Result<S>) -> Option<S> {
        let report = |error| {
            let message = format!("metrics no longer go to {name}: {error}");
            tracing::warn!("{message}");
            self.failures.push(message);
        };
        sink.map_err(report).ok()
    }
}
