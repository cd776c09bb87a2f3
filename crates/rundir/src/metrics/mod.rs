//! The numbers of a round, and where they go besides the round's own `metrics.json`.
//!
//! The run's own files are the truth: sinks follow them, catch up on what they lack when a run is opened, and may
//! fail without harm to the run.

mod json_lines;
pub mod names;
mod sink;
mod tags;
mod tensorboard;

pub use json_lines::JsonLinesSink;
pub use sink::{MetricSink, MetricSinks};
pub use tensorboard::{TensorBoardEvent, TensorBoardSink, TensorBoardValue, read_events};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// Counts of values in adjoining intervals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Ascending bounds of the intervals: one more than there are counts. Interval `i` holds the values from
    /// `edges[i]` to below `edges[i + 1]`; the last one includes its upper bound.
    pub edges: Vec<f64>,
    /// How many values lie in each interval.
    pub counts: Vec<u64>,
}

impl Histogram {
    /// Counts `values` into `bins` intervals of equal width from `low` to `high`; values outside count into the
    /// first or last interval, those that are not numbers are left out.
    pub fn equal_width(values: impl IntoIterator<Item = f64>, low: f64, high: f64, bins: usize) -> Self {
        let bins = bins.max(1);
        let width = (high - low) / bins as f64;
        let mut counts = vec![0u64; bins];
        for value in values.into_iter().filter(|v| !v.is_nan()) {
            // The cast saturates, so that what lies below or above ends in the first or last interval.
            let bin = ((value - low) / width) as usize;
            counts[bin.min(bins - 1)] += 1;
        }
        Self { edges: (0..=bins).map(|i| low + width * i as f64).collect(), counts }
    }

    /// Counts solve rates of problems with `k` rollouts each: interval `i` is centred on `i / k`.
    pub fn of_rates(rates: impl IntoIterator<Item = f64>, k: u32) -> Self {
        let half = 0.5 / f64::from(k.max(1));
        Self::equal_width(rates, -half, 1.0 + half, k.max(1) as usize + 1)
    }

    /// Whether there is one more edge than counts and the edges ascend.
    pub fn is_valid(&self) -> bool {
        self.edges.len() == self.counts.len() + 1 && self.edges.windows(2).all(|pair| pair[0] < pair[1])
    }
}

/// What numbers are of.
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
    /// Both.
    pub const ALL: [Self; 2] = [Self::Round, Self::Evaluation];

    fn is_round(&self) -> bool {
        *self == Self::Round
    }
}

/// All numbers of one round, or of an evaluation. Names are those of `docs/formats.md`, with `/` between their parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricValues {
    pub round: u32,
    /// What the numbers are of; a round's do not say so.
    #[serde(default, skip_serializing_if = "MetricKind::is_round")]
    pub kind: MetricKind,
    /// When the round was published, seconds since 1970.
    pub unix_time: f64,
    /// Numbers by name; one that could not be computed is not a number, and `null` in the file.
    #[serde(serialize_with = "write_scalars", deserialize_with = "read_scalars")]
    pub scalars: BTreeMap<String, f64>,
    pub histograms: BTreeMap<String, Histogram>,
}

impl MetricValues {
    /// No numbers yet, as of now.
    pub fn new(round: u32) -> Self {
        Self { round, unix_time: unix_time(), ..Self::default() }
    }

    /// No numbers yet of an evaluation after so many rounds.
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

/// Seconds since 1970 now.
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
    fn rates_fall_into_their_own_bins() {
        let histogram = Histogram::of_rates([0.0, 0.125, 0.125, 0.5, 1.0, f64::NAN], 8);
        assert_eq!(histogram.counts, [1, 2, 0, 0, 1, 0, 0, 0, 1]);
        assert!(histogram.is_valid());
        let outside = Histogram::equal_width([-5.0, 0.5, 2.0, f64::INFINITY], 0.0, 1.0, 2);
        assert_eq!(outside.counts, [1, 3]);
    }

    #[test]
    fn numbers_survive_json_bit_for_bit_and_the_rest_is_null() {
        let mut metrics = MetricValues::new(3);
        metrics.set("a/b", 0.1 + 0.2);
        metrics.set("a/none", f64::NAN);
        metrics.set_histogram("h", Histogram::of_rates([0.5], 2));
        let text = serde_json::to_string(&metrics).unwrap();
        assert!(text.contains("\"a/none\":null"), "{text}");
        let back: MetricValues = serde_json::from_str(&text).unwrap();
        assert_eq!(back.scalars["a/b"].to_bits(), metrics.scalars["a/b"].to_bits());
        assert!(back.scalars["a/none"].is_nan());
        assert_eq!(back.histograms, metrics.histograms);
        assert_eq!(back.unix_time.to_bits(), metrics.unix_time.to_bits());
    }
}
