//! The weights of the three roles, shared between the sampling and the training thread.

use super::ranks::command::RankCommand;
use crate::config::base_model::is_model;
use crate::config::{BaseSource, RunConfig};
use crate::error::{Context, Result, RunError, bail};
use sgs_base::parallel;
use sgs_lm::checkpoint::{self, SaveOptions, Snapshot};
use sgs_lm::model::Model;
use sgs_lm::ranks::{CommandChannel, ProcessGroup};
use sgs_lm::shard::Shard;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::Policy;
use sgs_lm::weights::{FileType, Flush, Sums};
use sgs_lm::{Device, ModelConfig};
use sgs_rundir::directories::{CHECKSUMS, check_directory, listed_checksums};
use sgs_selfplay::{Role, Weights};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The models that a process of the run loads to train and to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedModels {
    /// The weights of Solver and Conjecturer.
    of: [Weights; 2],
    roles: SampledRoles,
    /// Whether the base model is loaded.
    pub base: bool,
    /// Whether a separate Guide is loaded.
    pub guide: bool,
}

impl LoadedModels {
    /// Returns the models of a rank. `samples` says whether the ranks sample.
    pub fn of_rank(config: &RunConfig, rank: usize, samples: bool) -> Self {
        let algorithm = &config.algorithm;
        let backend_of = |role| config.sampling.endpoint.backend_of(role);
        Self {
            of: [Role::Solver, Role::Conjecturer].map(|role| config.weights_of(role)),
            roles: SampledRoles::of(config),
            base: samples && algorithm.samples_with_base(backend_of, config.model.guide != "base")
                || rank == 0 && algorithm.updates_with_base(backend_of),
            guide: samples && config.has_own_guide(),
        }
    }

    /// Returns the trained sets of weights with their folders in a checkpoint.
    pub fn trained(&self) -> BTreeMap<Weights, &'static str> {
        self.of.iter().filter_map(|w| Some((*w, w.folder()?))).collect()
    }

    /// Returns the weights with which the run's own samplers sample a role, or `None` if they do not sample it or the
    /// weights are not loaded.
    pub fn sampled(&self, role: Role) -> Option<Weights> {
        if !self.roles.contains(role) {
            return None;
        }
        let own = match role {
            Role::Solver => Some(self.of[0]).filter(|w| w.is_trained()),
            Role::Conjecturer => Some(self.of[1]).filter(|w| w.is_trained()),
            Role::Guide => self.guide.then_some(Weights::Guide),
        };
        own.or(self.base.then_some(Weights::Base))
    }
}

/// The roles that the run's own samplers sample ([`RunConfig::samples_itself`]). The others need no sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledRoles([bool; 3]);

impl SampledRoles {
    pub fn of(config: &RunConfig) -> Self {
        Self([Role::Solver, Role::Conjecturer, Role::Guide].map(|role| config.samples_itself(role)))
    }

    pub fn contains(self, role: Role) -> bool {
        self.0[role as usize]
    }
}

/// Checks that the window and the vocabulary of a separate Guide suit the run.
fn check_guide(config: &RunConfig, base: &ModelConfig) -> Result<()> {
    let guide = ModelConfig::load(Path::new(&config.model.guide))?;
    config.model.check_window(&guide, "the Guide's model")?;
    if guide.vocab_size != base.vocab_size {
        bail!(
            "{}: the Guide's model has a vocabulary of {} tokens and the base model one of {}; all roles use the base \
             model's tokenizer: train the Guide from the base model (`sgs sft --model`)",
            config.model.guide,
            guide.vocab_size,
            base.vocab_size
        );
    }
    Ok(())
}

/// The sets of weights that a run trains, as `AlgorithmConfig::weights_of` defines them.
pub struct TrainablePolicies<D: Device> {
    policies: BTreeMap<Weights, Policy<D>>,
    /// The weights of Solver and Conjecturer.
    of: [Weights; 2],
}

impl<D: Device> TrainablePolicies<D> {
    /// Loads the base model or a checkpoint for one training rank; `place` is `(rank, ranks)`.
    pub fn load(
        config: &RunConfig,
        device: &Arc<D>,
        base: &Path,
        at: Option<&Path>,
        place: (usize, usize),
    ) -> Result<Self> {
        let models = LoadedModels::of_rank(config, place.0, false);
        let (of, sets) = (models.of, models.trained());
        if let (Some(folder), (_, 1)) = (at, place) {
            for name in sets.values() {
                checkpoint::exists(&folder.join(name))?;
            }
        }
        let positions = config.model.positions();
        let load = |name: &str| -> Result<Policy<D>> {
            if let Some(folder) = at {
                let folder = folder.join(name);
                return Ok(checkpoint::load_for_rank(&folder, Arc::clone(device), positions, place)?.0);
            }
            let model = Model::load(Arc::clone(device), base, positions)?;
            let shard = Shard::of(&model.layout, place.0, place.1);
            Ok(Policy::of_shard(model, shard)?)
        };
        let policies = sets.into_iter().map(|(set, name)| Ok((set, load(name)?))).collect::<Result<_>>()?;
        Ok(Self { policies, of })
    }

    /// Returns the policy that an update of a role trains, or `None` if its weights are not trained.
    pub fn policy(&mut self, role: Role) -> Option<&mut Policy<D>> {
        self.policies.get_mut(&self.weights_of(role))
    }

    /// Returns the trained model of a role, or `None` if its weights are not trained.
    pub fn model(&self, role: Role) -> Option<&Model<D>> {
        self.policies.get(&self.weights_of(role)).map(|policy| &*policy.model)
    }

    fn weights_of(&self, role: Role) -> Weights {
        match role {
            Role::Solver => self.of[0],
            Role::Conjecturer => self.of[1],
            Role::Guide => Weights::Guide,
        }
    }

    /// Returns the policies with their folder names in a checkpoint.
    fn named(&self) -> impl Iterator<Item = (&'static str, &Policy<D>)> {
        self.policies.iter().filter_map(|(weights, policy)| Some((weights.folder()?, policy)))
    }

    /// Writes each policy into its own folder below `folder`. A folder appears complete and replaces an older one. If there
    /// are several ranks, each writes its part.
    ///
    /// # Errors
    /// Returns an error as [`HostSnapshots::write`] does on any rank, or if a rank is lost.
    pub fn save(
        &self,
        folder: &Path,
        companions: &[PathBuf],
        mut process_group: Option<&mut ProcessGroup>,
    ) -> Result<()> {
        for (name, policy) in self.named() {
            let options = save_options(companions, file_type(policy));
            match process_group.as_deref_mut() {
                Some(process_group) => {
                    checkpoint::save_together(&folder.join(name), policy, &options, process_group)?
                }
                None => checkpoint::save(&folder.join(name), policy, &options)?,
            }
        }
        Ok(())
    }

    /// Writes this rank's part into the folders that rank 0 has created.
    pub(crate) fn save_part(&self, folder: &Path) -> Result<()> {
        for (name, policy) in self.named() {
            checkpoint::save_part(&folder.join(name), policy, &save_options(&[], file_type(policy)))?;
        }
        Ok(())
    }

    /// Copies this rank's part of the policies to the host, into the memory of an older copy if there is one. Training
    /// can continue while the copy is being written. `commands` tells the other ranks to write their parts.
    pub fn snapshot(
        &self,
        commands: Option<CommandChannel>,
        older: Option<HostSnapshots>,
    ) -> Result<HostSnapshots> {
        let mut older = older.map_or_else(Vec::new, |o| o.copies).into_iter();
        let copy = |(name, policy): (&'static str, &Policy<D>)| {
            let older = older.next().map(|(_, copy)| copy);
            Ok((name, Snapshot::over(older, policy)?))
        };
        let file_type = self.named().next().map_or(FileType::F32, |(_, policy)| file_type(policy));
        Ok(HostSnapshots { copies: self.named().map(copy).collect::<Result<_>>()?, file_type, commands })
    }
}

/// The models of Solver, Conjecturer and Guide.
pub struct PolicySet<D: Device> {
    /// Number of rounds whose updates the weights have seen.
    pub policy_version: u32,
    /// Marks samples of these weights by a process of the run itself. Empty until a process begins to sample.
    pub mark: String,
    /// Solver and Conjecturer.
    pub trained: TrainablePolicies<D>,
    /// The base model, if this process uses it: for the Guide, a frozen Conjecturer or the KL penalty.
    pub base: Option<Arc<Model<D>>>,
    /// The Guide's model, if it is used and not the base model.
    pub guide: Option<Model<D>>,
    /// The roles that need a sampler in a process that samples.
    pub roles: SampledRoles,
    shape: ModelConfig,
}

impl<D: Device> PolicySet<D> {
    /// Loads the base model in all roles, or a checkpoint, for one training rank; `place` is `(rank, ranks)`. `samples`
    /// says whether the ranks sample.
    pub fn load(
        config: &RunConfig,
        device: &Arc<D>,
        base: &Path,
        at: Option<&Path>,
        policy_version: u32,
        place: (usize, usize),
        samples: bool,
    ) -> Result<Self> {
        let trained = TrainablePolicies::load(config, device, base, at, place)?;
        let shape = ModelConfig::load(base)?;
        config.model.check_window(&shape, "the base model")?;
        if config.has_own_guide() {
            // Check this even if only workers load the Guide, because a worker's error comes later.
            check_guide(config, &shape).context("the Guide's model")?;
        }
        let model = |folder: &Path| Model::load(Arc::clone(device), folder, config.model.positions());
        let wanted = LoadedModels::of_rank(config, place.0, samples);
        let guide = wanted.guide.then(|| model(Path::new(&config.model.guide)).context("the Guide's model"));
        let base = wanted.base.then(|| model(base).map(Arc::new)).transpose()?;
        let (mark, guide, roles) = (String::new(), guide.transpose()?, SampledRoles::of(config));
        Ok(Self { policy_version, mark, trained, base, guide, roles, shape })
    }

    /// Returns the model of a role, or `None` if this process does not have it.
    pub fn model(&self, role: Role) -> Option<&Model<D>> {
        let kept = if role == Role::Guide { self.guide.as_ref() } else { self.trained.model(role) };
        kept.or(self.base.as_deref())
    }

    pub fn config(&self) -> &ModelConfig {
        &self.shape
    }
}

/// Returns the element type of a policy's model file. This is the type of the device, in which workers sample. The f32
/// master weights of a device with bfloat16 parameters belong to the optimizer's state.
fn file_type<D: Device>(policy: &Policy<D>) -> FileType {
    match policy.model.device.footprint().bytes_per_parameter() {
        (2, ..) => FileType::Bf16,
        _ => FileType::F32,
    }
}

fn save_options(companions: &[PathBuf], file_type: FileType) -> SaveOptions {
    SaveOptions { file_type, companions: companions.to_vec(), ..SaveOptions::default() }
}

/// Copies of this process's part of the policies, to be written to a checkpoint.
pub struct HostSnapshots {
    copies: Vec<(&'static str, Snapshot)>,
    /// Element type of the model files.
    file_type: FileType,
    /// Tells the other ranks to write their parts.
    commands: Option<CommandChannel>,
}

impl HostSnapshots {
    /// Writes the weights of the policies alone, each into its own folder below `folder`. The caller flushes and publishes
    /// the folder. Returns the checksums of the large files.
    ///
    /// # Errors
    /// Returns an error if the file system fails or a weight is not finite.
    pub fn write_weights(&self, folder: &Path) -> Result<Sums> {
        let options = SaveOptions { flush: Flush::Later, ..save_options(&[], self.file_type) };
        let folders = self.make_folders(folder)?;
        let written =
            parallel::try_map(folders.len(), &folders, |(folder, copy)| copy.save_model(folder, &options))?;
        Ok(written.concat())
    }

    fn make_folders(&self, folder: &Path) -> Result<Vec<(PathBuf, &Snapshot)>> {
        let folders = self.copies.iter().map(|(name, copy)| (folder.join(name), copy));
        folders
            .map(|(folder, copy)| {
                std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
                Ok((folder, copy))
            })
            .collect()
    }

    /// Writes the policies into a checkpoint's folder, all files in parallel, while the other ranks write their parts.
    /// The files of `weights`, if given, become part of the checkpoint. The caller flushes and publishes the folder.
    /// Returns the checksums of the large files.
    ///
    /// # Errors
    /// Returns an error if the file system fails, a weight is not finite, or another rank fails or is lost.
    pub fn write(
        &self,
        folder: &Path,
        companions: &[PathBuf],
        weights: Option<&HandedWeights>,
    ) -> Result<Sums> {
        let options = SaveOptions { flush: Flush::Later, ..save_options(companions, self.file_type) };
        let folders = self.make_folders(folder)?;
        if let Some(commands) = &self.commands {
            commands.send(&RankCommand::Save { folder: std::path::absolute(folder)? }.encode()?)?;
        }
        let written = parallel::try_map(folders.len(), &folders, |(folder, copy)| match weights {
            Some(_) => copy.save_state(folder, &options),
            None => copy.save_part(folder, &options),
        });
        if let Some(commands) = &self.commands {
            // Wait for the other ranks even after an error, because the caller may delete the folder.
            commands.wait()?;
        }
        let mut sums = written?.concat();
        if let Some(weights) = weights {
            sums.extend(weights.link(folder)?);
        }
        folders.iter().try_for_each(|(folder, copy)| copy.complete(folder, &options))?;
        Ok(sums)
    }
}

/// Weights of an update that are published for workers before their checkpoint is complete.
pub struct HandedWeights {
    /// The folder, laid out like a checkpoint.
    pub folder: PathBuf,
    /// Checksums of the large files, by path within the folder.
    sums: Sums,
}

impl HandedWeights {
    /// Describes a folder that `sums` of [`HostSnapshots::write_weights`] were computed for when it was named `staged`.
    pub fn new(folder: PathBuf, staged: &Path, sums: Sums) -> Self {
        let within =
            |(path, sum): (PathBuf, [u8; 32])| Some((path.strip_prefix(staged).ok()?.to_owned(), sum));
        Self { folder, sums: sums.into_iter().filter_map(within).collect() }
    }

    /// Gives the files a second name below `to`, or copies them if the file system has no hard links. Returns the
    /// checksums of the large files.
    fn link(&self, to: &Path) -> Result<Sums> {
        for (name, _) in listed_checksums(&self.folder)? {
            let (from, to) = (self.folder.join(&name), to.join(&name));
            if std::fs::hard_link(&from, &to).is_err() {
                std::fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
            }
        }
        Ok(self.sums.iter().map(|(path, sum)| (to.join(path), *sum)).collect())
    }
}

/// Runs `other` in a thread while `own` runs in this one. Returns both results.
pub(crate) fn beside<A: Send, B>(
    other: impl FnOnce() -> A + Send,
    own: impl FnOnce() -> B,
) -> Result<(B, A)> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("publish".into()).spawn_scoped(scope, other)?;
        let own = own();
        Ok((own, thread.join().map_err(|_| RunError::Failed("a publishing thread panicked".into()))?))
    })
}

/// Locks weights that threads share, to sample or copy them.
#[allow(clippy::expect_used, reason = "a panic during an update leaves weights that must not be used")]
pub fn read<T>(weights: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    weights.read().expect(NO_PANIC)
}

/// Locks weights that threads share, to update them.
#[allow(clippy::expect_used, reason = "a panic during an update leaves weights that must not be used")]
pub fn write<T>(weights: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    weights.write().expect(NO_PANIC)
}

const NO_PANIC: &str = "invariant: no update of the weights panics";

/// Returns the model folders of Solver, Conjecturer and Guide, as [`PolicySet::load`] reads them.
pub fn folders(config: &RunConfig, base: &Path, at: Option<&Path>) -> [PathBuf; 3] {
    [Role::Solver, Role::Conjecturer, Role::Guide].map(|role| match (config.weights_of(role), at) {
        (Weights::Guide, _) if config.model.guide != "base" => PathBuf::from(&config.model.guide),
        (weights, Some(folder)) => weights.folder().map_or_else(|| base.to_owned(), |name| folder.join(name)),
        _ => base.to_owned(),
    })
}

/// Returns the model folders of the roles that the run's own samplers sample.
pub fn sampled_folders(config: &RunConfig, base: &Path, at: Option<&Path>) -> BTreeMap<Role, PathBuf> {
    let [solver, conjecturer, guide] = folders(config, base, at);
    let all = [(Role::Solver, solver), (Role::Conjecturer, conjecturer), (Role::Guide, guide)];
    all.into_iter().filter(|(role, _)| config.samples_itself(*role)).collect()
}

/// Returns the base model's folder: the configured one, or `own` for a shipped or made model. Unpacks the shipped
/// model there if it is missing.
///
/// # Errors
/// Returns an error if a made model is not in `own` or is damaged there, or if the shipped one cannot be unpacked.
pub fn base_folder(config: &RunConfig, own: &Path) -> Result<PathBuf> {
    match config.model.base_source() {
        BaseSource::Shipped => crate::config::base_model::unpack(config.problems.system, own),
        BaseSource::Folder(folder) => Ok(folder.to_owned()),
        BaseSource::Made(_) => {
            if !is_model(own) {
                bail!(
                    "{} is missing: `sgs resume` of a run with model.base={} makes it",
                    own.display(),
                    config.model.base
                );
            }
            // Copies of early versions have no checksums; compare the weights with the frozen hash.
            if own.join(CHECKSUMS).exists() {
                check_directory(own).context("the run's copy of its base model")?;
            }
            Ok(own.to_owned())
        }
    }
}

/// Loads the tokenizer of a model folder and checks that it fits the model.
///
/// # Errors
/// Returns an error if it is missing, invalid, or has a different vocabulary.
pub fn tokenizer(folder: &Path, config: &ModelConfig) -> Result<Tokenizer> {
    let tokenizer = Tokenizer::load(folder)?;
    tokenizer.check_model(config)?;
    Ok(tokenizer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "no update of the weights panics")]
    fn weights_whose_update_panicked_are_not_read() {
        let weights = RwLock::new(0);
        std::thread::scope(|scope| {
            let update = scope.spawn(|| {
                let _weights = write(&weights);
                panic!("the update fails");
            });
            assert!(update.join().is_err());
        });
        drop(read(&weights));
    }
}
