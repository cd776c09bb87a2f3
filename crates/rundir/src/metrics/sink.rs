//! Sinks of a run's metrics.

use super::{MetricKind, MetricValues};
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
    pub(super) fn of(self, kind: MetricKind) -> Option<u32> {
        match kind {
            MetricKind::Round => self.round,
            MetricKind::Evaluation => self.evaluation,
        }
    }

    pub(super) fn note(&mut self, kind: MetricKind, number: u32) {
        let last = match kind {
            MetricKind::Round => &mut self.round,
            MetricKind::Evaluation => &mut self.evaluation,
        };
        *last = (*last).max(Some(number));
    }
}

/// A destination of metrics in addition to the round's directory.
pub trait MetricSink: Send {
    /// Returns the sink's name for messages.
    fn name(&self) -> &str;

    /// Returns the last round or evaluation that was recorded completely.
    fn last(&self, kind: MetricKind) -> Option<u32>;

    /// Records a round or evaluation. A sink that may block must have a timeout.
    ///
    /// # Errors
    /// Returns an error if the sink fails. It is then disabled.
    fn record(&mut self, metrics: &MetricValues) -> Result<()>;
}

/// A set of sinks. A sink that fails is logged once and disabled, and the run continues.
#[derive(Default)]
pub struct MetricSinks {
    sinks: Vec<Box<dyn MetricSink>>,
    failures: Vec<String>,
}

impl MetricSinks {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sink, or logs why it could not be opened.
    pub fn add<S: MetricSink + 'static>(&mut self, name: &str, sink: Result<S>) {
        match sink {
            Ok(sink) => self.sinks.push(Box::new(sink)),
            Err(error) => self.report(name, &error),
        }
    }

    /// Records a round or evaluation in every sink that does not have it yet.
    pub fn record(&mut self, metrics: &MetricValues) {
        for mut sink in std::mem::take(&mut self.sinks) {
            let new = sink.last(metrics.kind).is_none_or(|last| metrics.round > last);
            let outcome = if new { sink.record(metrics) } else { Ok(()) };
            match outcome {
                Ok(()) => self.sinks.push(sink),
                Err(error) => self.report(sink.name(), &error),
            }
        }
    }

    /// Returns a message for each sink that was disabled.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Returns the number of working sinks.
    pub fn active(&self) -> usize {
        self.sinks.len()
    }

    /// Returns the smallest last round among the working sinks. When a run is opened, all later rounds are recorded again.
    pub fn behind(&self) -> Option<u32> {
        self.sinks.iter().map(|s| s.last(MetricKind::Round)).min().flatten()
    }

    fn report(&mut self, name: &str, error: &crate::error::Error) {
        let message = format!("metrics no longer go to {name}: {error}");
        tracing::warn!("{message}");
        self.failures.push(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::sync::{Arc, Mutex};

    struct Recorder {
        rounds: Arc<Mutex<Vec<u32>>>,
        fails_at: u32,
    }

    impl MetricSink for Recorder {
        fn name(&self) -> &str {
            "recorder"
        }

        fn last(&self, _: MetricKind) -> Option<u32> {
            self.rounds.lock().unwrap().last().copied()
        }

        fn record(&mut self, metrics: &MetricValues) -> Result<()> {
            if metrics.round >= self.fails_at {
                return Err(Error::Schema("broken".into()));
            }
            self.rounds.lock().unwrap().push(metrics.round);
            Ok(())
        }
    }

    #[test]
    fn a_failing_sink_is_disabled_and_the_others_continue() {
        let (bad, good) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let mut sinks = MetricSinks::new();
        sinks.add("bad", Ok(Recorder { rounds: Arc::clone(&bad), fails_at: 3 }));
        sinks.add("good", Ok(Recorder { rounds: Arc::clone(&good), fails_at: 99 }));
        sinks.add::<Recorder>("absent", Err(Error::Schema("no such place".into())));
        for round in [1, 2, 2, 3, 4] {
            sinks.record(&MetricValues::new(round));
        }
        assert_eq!(*bad.lock().unwrap(), [1, 2]);
        assert_eq!(*good.lock().unwrap(), [1, 2, 3, 4]);
        assert_eq!((sinks.active(), sinks.failures().len()), (1, 2));
        assert!(sinks.failures()[1].contains("recorder") && sinks.failures()[1].contains("broken"));
    }
}
