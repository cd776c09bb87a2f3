//! The metrics of a round, and the sinks that receive them in addition to the round's `metrics.json`.
//!
//! The files of the rounds are authoritative: sinks are brought up to date from them when a run is opened, and a failing
//! sink does not affect the run.

pub(crate) mod json_lines;
pub mod names;
mod sink;
mod tags;
mod tensorboard;

pub use json_lines::JsonLinesSink;
pub use sink::{LastRecorded, MetricSinks};
pub use tensorboard::TensorBoardSink;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// A histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Bounds of the bins in ascending order, one more than there are counts. Bin `i` counts the values from `edges[i]` up
    /// to, but excluding, `edges[i + 1]`; the last bin includes its upper bound.
    pub edges: Vec<f64>,
    /// Number of values in each bin.
    pub counts: Vec<u64>,
}

impl Histogram {
    /// Creates a histogram whose bins have equal widths and begin at `first`.
    pub fn equal_width(first: f64, width: f64, counts: Vec<u64>) -> Self {
        Self { edges: (0..=counts.len()).map(|i| first + width * i as f64).collect(), counts }
    }

    /// Returns whether there is one more edge than counts and the edges ascend.
    pub fn is_valid(&self) -> bool {
        self.edges.len() == self.counts.len() + 1 && self.edges.windows(2).all(|pair| pair[0] < pair[1])
    }
}

/// The subject of a set of metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricKind {
    /// A round.
    #[default]
    Round,
    /// An evaluation; its `round` is the number of rounds before it.
    Evaluation,
}

impl MetricKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Round, Self::Evaluation];

    fn is_round(&self) -> bool {
        *self == Self::Round
    }
}

/// All metrics of a round or an evaluation. `docs/formats.md` lists the names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricValues {
    /// The round; for an evaluation, the number of rounds before it.
    pub round: u32,
    /// The subject. It is omitted from the files for a round.
    #[serde(default, skip_serializing_if = "MetricKind::is_round")]
    pub kind: MetricKind,
    /// Time of publication, in seconds since 1970.
    pub unix_time: f64,
    /// Numbers by name. A number that could not be computed is NaN, and `null` in the file.
    #[serde(serialize_with = "write_scalars", deserialize_with = "read_scalars")]
    pub scalars: BTreeMap<String, f64>,
    /// Histograms by name.
    pub histograms: BTreeMap<String, Histogram>,
}

impl MetricValues {
    /// Creates an empty set of metrics of a round, with the current time.
    pub fn new(round: u32) -> Self {
        Self { round, unix_time: unix_time(), ..Self::default() }
    }

    /// Creates an empty set of metrics of an evaluation after `after` rounds.
    pub fn of_evaluation(after: u32) -> Self {
        Self { kind: MetricKind::Evaluation, ..Self::new(after) }
    }

    /// Sets a number.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.scalars.insert(name.into(), value);
    }

    /// Sets a histogram.
    pub fn set_histogram(&mut self, name: impl Into<String>, histogram: Histogram) {
        self.histograms.insert(name.into(), histogram);
    }
}

/// Returns the current time in seconds since 1970, or 0 if the clock is set before that.
pub(crate) fn unix_time() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map(|d| d.as_secs_f64()).unwrap_or_default()
}

fn write_scalars<S: Serializer>(scalars: &BTreeMap<String, f64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(scalars.iter().map(|(name, &x)| (name, x.is_finite().then_some(x))))
}

fn read_scalars<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let scalars = BTreeMap::<String, Option<f64>>::deserialize(deserializer)?;
    Ok(scalars.into_iter().map(|(name, x)| (name, x.unwrap_or(f64::NAN))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_json_bit_for_bit_and_nan_is_null() {
        let mut metrics = MetricValues::new(3);
        metrics.set("a/b", 0.1 + 0.2);
        metrics.set("a/none", f64::NAN);
        metrics.set_histogram("h", Histogram::equal_width(-0.25, 0.5, vec![0, 1, 0]));
        let text = serde_json::to_string(&metrics).unwrap();
        assert!(text.contains("\"a/none\":null"), "{text}");
        let back: MetricValues = serde_json::from_str(&text).unwrap();
        assert_eq!(back.scalars["a/b"].to_bits(), metrics.scalars["a/b"].to_bits());
        assert!(back.scalars["a/none"].is_nan());
        assert_eq!(back.histograms, metrics.histograms);
        assert_eq!(back.unix_time.to_bits(), metrics.unix_time.to_bits());
    }
}
