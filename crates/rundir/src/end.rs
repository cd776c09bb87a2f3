//! The record of a run's end.

use serde::{Deserialize, Serialize};
use toml::Table;

/// The content of `ended.json`, which is written when the run ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// Why the run ended.
    pub by: EndReason,
    /// Number of completed rounds.
    pub rounds: u32,
    /// Time of the end, in seconds since 1970.
    pub unix_time: f64,
}

/// The reason for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// All rounds are done.
    Rounds,
    /// The time limit has expired.
    Minutes,
    /// The limit on generations is reached.
    Generations,
}

impl RunEnd {
    /// Says why the run ended, with the limit from its configuration; `None` if the configuration lacks that limit.
    pub(crate) fn describe(&self, config: &Table) -> Option<String> {
        let (rounds, all) = (self.rounds, config.get("rounds")?.as_integer()?);
        let limit = match self.by {
            EndReason::Rounds => return Some(format!("all rounds are done ({rounds} of {all})")),
            EndReason::Minutes => format!("{}-minute time limit", config.get("minutes")?.as_float()?),
            EndReason::Generations => {
                format!("limit of {} generations", config.get("generations")?.as_integer()?)
            }
        };
        Some(format!("{limit}, after {rounds} of {all} rounds"))
    }
}
