//! The data that is stored with the marker of a round's update.

use crate::train::update::UpdateReport;
use serde::{Deserialize, Serialize};
use sgs_selfplay::stp::Matching;

/// The data that is stored with the marker of the update, so that a crash before the tables are written loses no
/// measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct UpdateRecord {
    pub(crate) update: UpdateReport,
    /// Weights of the conjectures, computed before the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) matching: Option<Matching>,
    pub(crate) times: RoundTimes,
}

/// Wall times of a round in seconds, and counts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RoundTimes {
    pub(crate) sampling: f64,
    /// Time spent in the samplers of the Solver, the Conjecturer and the Guide.
    pub(crate) sampler: [f64; 3],
    pub(crate) dispatcher: f64,
    /// Publication of the previous round, which runs in parallel with this one.
    pub(crate) publishing: PublishTimes,
    /// Time the round waited for that publication.
    pub(crate) publish_wait: f64,
    pub(crate) update: f64,
    /// Embedding statements and matching them.
    pub(crate) matching: f64,
    /// Copying the weights to the host.
    pub(crate) snapshot: f64,
    pub(crate) sampled_tokens: u64,
}

/// Wall times of a publication, seconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PublishTimes {
    pub all: f64,
    /// Preparing the checkpoint, in parallel with the tables.
    pub checkpoint: f64,
    pub tables: f64,
}
