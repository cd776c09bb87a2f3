//! The three roles' weights, shared between the thread that samples and the one that trains.

use super::config::{RunConfig, model_folder};
use anyhow::{Context, Result};
use sgs_lm::checkpoint::{self, SaveOptions, Snapshot};
use sgs_lm::model::Model;
use sgs_lm::ranks::{Meeting, Shard};
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::Policy;
use sgs_lm::weights::FileType;
use sgs_lm::{Device, ModelConfig};
use sgs_selfplay::Role;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The models that a generation worker samples with: those of the run in its own process, or copies that follow them.
pub trait RoleModels<D: Device> {
    /// Number of rounds whose updates the weights have seen.
    fn version(&self) -> u32;

    /// The model that plays a role; `None` if it could not be had.
    fn model(&self, role: Role) -> Option<&Model<D>>;

    /// What tells these weights from all others; `None` for the run's own.
    fn fingerprint(&self) -> Option<String>;
}

/// Solver, Conjecturer and Guide.
pub struct Policies<D: Device> {
    /// Number of rounds whose updates the weights have seen.
    pub version: u32,
    /// The Solver; under tied weights also the Conjecturer.
    pub solver: Policy<D>,
    /// The Conjecturer, unless the weights are tied or it is frozen.
    pub conjecturer: Option<Policy<D>>,
    /// The base model: the Guide, the frozen Conjecturer, the reference of the KL penalty.
    pub base: Arc<Model<D>>,
    /// The Guide's own model, if it is not the base.
    pub guide: Option<Model<D>>,
    tied: bool,
}

impl<D: Device> Policies<D> {
    /// The base model in all roles, or a checkpoint of a run.
    ///
    /// # Errors
    /// A model cannot be read or does not fit the device.
    pub fn load(
        config: &RunConfig,
        device: &Arc<D>,
        base: &Path,
        at: Option<&Path>,
        version: u32,
    ) -> Result<Self> {
        if let Some(folder) = at {
            for name in ["solver", "conjecturer"] {
                checkpoint::exists(&folder.join(name))?;
            }
        }
        Self::load_for_rank(config, device, base, at, version, (0, 1))
    }

    /// The same for one of several ranks that train, `(rank, ranks)`.
    ///
    /// # Errors
    /// As [`Policies::load`].
    pub fn load_for_rank(
        config: &RunConfig,
        device: &Arc<D>,
        base: &Path,
        at: Option<&Path>,
        version: u32,
        place: (usize, usize),
    ) -> Result<Self> {
        let a = &config.algorithm;
        let model = |folder: &Path| Model::load(Arc::clone(device), folder, usize::MAX);
        let fresh = || -> Result<Policy<D>> {
            let model = model(base)?;
            let shard = Shard::of(&model.layout, place.0, place.1);
            Ok(Policy::of_shard(model, shard)?)
        };
        let trained = |name: &str| -> Result<Policy<D>> {
            match at {
                Some(folder) => {
                    let folder = folder.join(name);
                    Ok(checkpoint::load_for_rank(&folder, Arc::clone(device), usize::MAX, place)?.0)
                }
                None => fresh(),
            }
        };
        let own_conjecturer = a.conjecturer.on && !a.conjecturer.frozen && !a.tied_weights;
        let guide = match config.model.guide.as_str() {
            "base" => None,
            folder => Some(model(Path::new(folder)).context("the Guide's model")?),
        };
        Ok(Self {
            version,
            solver: if a.solver.train { trained("solver")? } else { fresh()? },
            conjecturer: if own_conjecturer { Some(trained("conjecturer")?) } else { None },
            base: Arc::new(model(base)?),
            guide,
            tied: a.tied_weights,
        })
    }

    /// The model that plays a role.
    pub fn model(&self, role: Role) -> &Model<D> {
        match role {
            Role::Solver => &self.solver.model,
            Role::Conjecturer => match &self.conjecturer {
                Some(policy) => &policy.model,
                None if self.tied => &self.solver.model,
                None => &self.base,
            },
            Role::Guide => self.guide.as_ref().unwrap_or(&self.base),
        }
    }

    /// The models' shape.
    pub fn config(&self) -> &ModelConfig {
        &self.base.config
    }

    /// Writes what is trained, each of several ranks its part.
    ///
    /// # Errors
    /// As [`Snapshots::save`], on any rank; or a rank is lost.
    pub fn save_together(&self, folder: &Path, companions: &[PathBuf], meeting: &mut Meeting) -> Result<()> {
        let options = save_options(companions);
        checkpoint::save_together(&folder.join("solver"), &self.solver, &options, meeting)?;
        if let Some(conjecturer) = &self.conjecturer {
            checkpoint::save_together(&folder.join("conjecturer"), conjecturer, &options, meeting)?;
        }
        Ok(())
    }

    /// Copies what is trained to the host, to be written while the run goes on.
    ///
    /// # Errors
    /// The device fails.
    pub fn snapshot(&self) -> Result<Snapshots> {
        let conjecturer = self.conjecturer.as_ref().map(Snapshot::of).transpose()?;
        Ok(Snapshots { solver: Snapshot::of(&self.solver)?, conjecturer })
    }
}

fn save_options(companions: &[PathBuf]) -> SaveOptions {
    SaveOptions { file_type: FileType::F32, companions: companions.to_vec(), ..SaveOptions::default() }
}

/// What a checkpoint holds of a run's policies.
pub struct Snapshots {
    solver: Snapshot,
    conjecturer: Option<Snapshot>,
}

impl Snapshots {
    /// Writes them into a checkpoint's folder.
    ///
    /// # Errors
    /// The file system refuses, or a weight is not finite.
    pub fn save(&self, folder: &Path, companions: &[PathBuf]) -> Result<()> {
        let options = save_options(companions);
        self.solver.save(&folder.join("solver"), &options)?;
        if let Some(conjecturer) = &self.conjecturer {
            conjecturer.save(&folder.join("conjecturer"), &options)?;
        }
        Ok(())
    }
}

impl<D: Device> RoleModels<D> for Policies<D> {
    fn version(&self) -> u32 {
        self.version
    }

    fn model(&self, role: Role) -> Option<&Model<D>> {
        Some(self.model(role))
    }

    fn fingerprint(&self) -> Option<String> {
        None
    }
}

/// The folders of the models that [`Policies::load`] reads for Solver, Conjecturer and Guide.
pub fn folders(config: &RunConfig, base: &Path, at: Option<&Path>) -> [PathBuf; 3] {
    let a = &config.algorithm;
    let trained = |name: &str| at.map_or_else(|| base.to_owned(), |folder| folder.join(name));
    let solver = if a.solver.train { trained("solver") } else { base.to_owned() };
    let conjecturer = match (a.tied_weights, a.conjecturer.on && !a.conjecturer.frozen) {
        (true, _) => solver.clone(),
        (false, true) => trained("conjecturer"),
        (false, false) => base.to_owned(),
    };
    let guide = match config.model.guide.as_str() {
        "base" => base.to_owned(),
        folder => PathBuf::from(folder),
    };
    [solver, conjecturer, guide]
}

/// The folder of the base model: the one of the configuration, or the shipped one, unpacked.
///
/// # Errors
/// The shipped model cannot be unpacked.
pub fn base_folder(config: &RunConfig, unpack_to: &Path) -> Result<PathBuf> {
    match model_folder(&config.model.base) {
        Some(folder) => Ok(folder),
        None => crate::base_model::unpack(unpack_to),
    }
}

/// Reads the tokenizer of a model folder and checks that it fits.
///
/// # Errors
/// It is missing, broken, or of another vocabulary.
pub fn tokenizer(folder: &Path, config: &ModelConfig) -> Result<Tokenizer> {
    let tokenizer = Tokenizer::load(folder)?;
    tokenizer.check_model(config)?;
    Ok(tokenizer)
}
