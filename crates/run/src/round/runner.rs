//! The inputs of a run.

use crate::StopFlag;
use crate::config::RunConfig;
use crate::workers::config::{By, FleetConfig};
use sgs_formal::FormalSystem;
use sgs_lm::ranks::ProcessGroup;
use sgs_lm_sampler::Decode;
use sgs_rundir::RunDir;
use sgs_selfplay::Problem;
use std::path::PathBuf;
use std::sync::Arc;

/// Everything that a run works with. [`Runner::work`] runs it.
pub struct Runner<D: Decode> {
    pub config: Arc<RunConfig>,
    pub system: Arc<dyn FormalSystem>,
    /// The targets, in order.
    pub targets: Vec<Arc<Problem>>,
    /// Problems that the run is evaluated on and never trained on. Can be empty.
    pub held_out: Vec<Arc<Problem>>,
    pub run: Arc<RunDir>,
    /// The device that the model computes on.
    pub device: Arc<D>,
    /// Folder of the base model.
    pub base: PathBuf,
    /// Set it to interrupt the run.
    pub interrupt: StopFlag,
    /// How workers outside of this process are started and reached; `None` if there are none.
    pub fleet: Option<FleetConfig>,
    /// The process group of the training ranks; `None` if this process trains alone.
    pub process_group: Option<ProcessGroup>,
}

impl<D: Decode> Runner<D> {
    /// Returns true if this process samples. Then the other ranks sample as well.
    pub(crate) fn samples(&self) -> bool {
        self.fleet.as_ref().is_none_or(|fleet| fleet.generate.by == By::Embedded)
    }
}
