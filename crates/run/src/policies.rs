//! The three roles' weights, shared between the thread that samples and the one that trains.

use super::config::{RunConfig, model_folder};
use super::ranks::Order;
use crate::recipe::Recipe;
use anyhow::{Context, Result, anyhow, bail};
use sgs_lm::checkpoint::{self, SaveOptions, Snapshot};
use sgs_lm::model::Model;
use sgs_lm::ranks::{Meeting, Orders, Shard};
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::Policy;
use sgs_lm::weights::{FileType, Flush, Sums};
use sgs_lm::{Device, ModelConfig};
use sgs_selfplay::{Role, Weights};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The models that a generation worker samples with: those of the run in its own process, or copies that follow them.
pub trait RoleModels<D: Device> {
    /// Number of rounds whose updates the weights have seen.
    fn policy_version(&self) -> u32;

    /// The model that plays a role; `None` if it could not be had.
    fn model(&self, role: Role) -> Option<&Model<D>>;

    /// What tells these weights from all others: see [`GenerateResult`](crate::tasks::GenerateResult).
    fn policy_id(&self) -> String;
}

/// What a run trains: the sets of weights that `AlgorithmConfig::weights_of` calls trained, and no others.
pub struct Trained<D: Device> {
    policies: BTreeMap<Weights, Policy<D>>,
    /// The weights of Solver and Conjecturer.
    of: [Weights; 2],
}

impl<D: Device> Trained<D> {
    /// The base model, or a checkpoint of a run, for one of some ranks that train, `(rank, ranks)`.
    ///
    /// # Errors
    /// A model cannot be read or does not fit the device.
    pub fn load(
        config: &RunConfig,
        device: &Arc<D>,
        base: &Path,
        at: Option<&Path>,
        place: (usize, usize),
    ) -> Result<Self> {
        let of = [Role::Solver, Role::Conjecturer].map(|role| config.weights_of(role));
        let sets: BTreeMap<Weights, &str> = of.iter().filter_map(|w| Some((*w, w.folder()?))).collect();
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

    /// The policy that an update of a role trains; `None` if nothing trains its weights.
    pub fn policy(&mut self, role: Role) -> Option<&mut Policy<D>> {
        self.policies.get_mut(&self.weights_of(role))
    }

    /// The trained model that plays a role; `None` if nothing trains its weights.
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

    /// The policies with the names of their folders in a checkpoint.
    fn named(&self) -> impl Iterator<Item = (&'static str, &Policy<D>)> {
        self.policies.iter().filter_map(|(weights, policy)| Some((weights.folder()?, policy)))
    }

    /// Writes what is trained, each of several ranks its part.
    ///
    /// # Errors
    /// As [`Snapshots::write`], on any rank; or a rank is lost.
    pub fn save_together(&self, folder: &Path, companions: &[PathBuf], meeting: &mut Meeting) -> Result<()> {
        let options = save_options(companions);
        for (name, policy) in self.named() {
            checkpoint::save_together(&folder.join(name), policy, &options, meeting)?;
        }
        Ok(())
    }

    /// Writes what a rank but the first keeps, into the folders that rank 0 has made.
    ///
    /// # Errors
    /// The file system refuses, or a number is not finite.
    pub fn save_part(&self, folder: &Path) -> Result<()> {
        for (name, policy) in self.named() {
            checkpoint::save_part(&folder.join(name), policy, &save_options(&[]))?;
        }
        Ok(())
    }

    /// Copies what this rank keeps of what is trained to the host, to be written while the run goes on, into the memory
    /// of an older copy if there is one; the ranks that keep the rest are told by `orders` to write it.
    ///
    /// # Errors
    /// The device fails.
    pub fn snapshot(&self, orders: Option<Orders>, older: Option<Snapshots>) -> Result<Snapshots> {
        let mut older = older.map_or_else(Vec::new, |o| o.copies).into_iter();
        let copy = |(name, policy): (&'static str, &Policy<D>)| {
            let older = older.next().map(|(_, copy)| copy);
            Ok((name, Snapshot::over(older, policy)?))
        };
        Ok(Snapshots { copies: self.named().map(copy).collect::<Result<_>>()?, orders })
    }
}

/// Solver, Conjecturer and Guide.
pub struct Policies<D: Device> {
    /// Number of rounds whose updates the weights have seen.
    pub policy_version: u32,
    /// Solver and Conjecturer.
    pub trained: Trained<D>,
    /// The base model: the Guide, the frozen Conjecturer, the reference of the KL penalty.
    pub base: Arc<Model<D>>,
    /// The Guide's own model, if it is not the base.
    pub guide: Option<Model<D>>,
}

impl<D: Device> Policies<D> {
    /// The base model in all roles, or a checkpoint of a run, for one of some ranks that train, `(rank, ranks)`.
    ///
    /// # Errors
    /// A model cannot be read or does not fit the device.
    pub fn load(
        config: &RunConfig,
        device: &Arc<D>,
        base: &Path,
        at: Option<&Path>,
        policy_version: u32,
        place: (usize, usize),
    ) -> Result<Self> {
        let model = |folder: &Path, what| -> Result<Model<D>> {
            let model = Model::load(Arc::clone(device), folder, config.model.positions())?;
            config.model.check_window(&model.config, what)?;
            Ok(model)
        };
        let guide = match config.model.guide.as_str() {
            "base" => None,
            folder => Some(model(Path::new(folder), "the Guide's model").context("the Guide's model")?),
        };
        let trained = Trained::load(config, device, base, at, place)?;
        let base = Arc::new(model(base, "the base model")?);
        if let Some(guide) = guide.as_ref().filter(|guide| guide.config.vocab_size != base.config.vocab_size)
        {
            bail!(
                "{}: the Guide's model has a vocabulary of {} tokens and the base model one of {}; all roles speak with the \
                 base model's tokenizer, so the Guide has to be trained from it (`sgs sft --model`)",
                config.model.guide,
                guide.config.vocab_size,
                base.config.vocab_size
            );
        }
        Ok(Self { policy_version, trained, base, guide })
    }

    /// The model that plays a role.
    pub fn model(&self, role: Role) -> &Model<D> {
        let kept = if role == Role::Guide { self.guide.as_ref() } else { self.trained.model(role) };
        kept.unwrap_or(&self.base)
    }

    /// The models' shape.
    pub fn config(&self) -> &ModelConfig {
        &self.base.config
    }
}

fn save_options(companions: &[PathBuf]) -> SaveOptions {
    SaveOptions { file_type: FileType::F32, companions: companions.to_vec(), ..SaveOptions::default() }
}

/// What a checkpoint holds of a run's policies, as far as this process keeps it.
pub struct Snapshots {
    copies: Vec<(&'static str, Snapshot)>,
    /// How the ranks that keep the rest are told to write it.
    orders: Option<Orders>,
}

impl Snapshots {
    /// Writes each into a folder of its own below `folder`, which appears whole and replaces an older one.
    ///
    /// # Errors
    /// The file system refuses, a weight is not finite, or other ranks keep a part.
    pub fn save(&self, folder: &Path, companions: &[PathBuf]) -> Result<()> {
        let options = save_options(companions);
        self.copies.iter().try_for_each(|(name, copy)| Ok(copy.save(&folder.join(name), &options)?))
    }

    /// Writes them into a checkpoint's folder, which the caller flushes and publishes: all files side by side. The
    /// other ranks, if there are any, write their parts meanwhile. Gives the sums of the large files.
    ///
    /// # Errors
    /// The file system refuses, a weight is not finite, or another rank cannot write its part or is lost.
    pub fn write(&self, folder: &Path, companions: &[PathBuf]) -> Result<Sums> {
        let options = SaveOptions { flush: Flush::Later, ..save_options(companions) };
        let folders = || self.copies.iter().map(|(name, copy)| (folder.join(name), copy));
        for (folder, _) in folders() {
            std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        if let Some(orders) = &self.orders {
            orders.give(&Order::Save { folder: std::path::absolute(folder)? }.encode()?)?;
        }
        let written = all_beside(folders().map(|(folder, copy)| {
            let options = &options;
            move || Ok(copy.save_part(&folder, options)?)
        }));
        if let Some(orders) = &self.orders {
            // Nobody writes into the folder any more when this returns.
            orders.answers()?;
        }
        let sums = written?;
        folders().try_for_each(|(folder, copy)| copy.complete(&folder, &options))?;
        Ok(sums.concat())
    }
}

/// Runs each in a thread of its own and waits for all; gives what they come to, in their order.
///
/// # Errors
/// Those of the first that failed; or there is no thread to be had, or one panicked.
fn all_beside<T: Send>(parts: impl Iterator<Item = impl FnOnce() -> Result<T> + Send>) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let builder = || std::thread::Builder::new().name("publish".into());
        let threads: Vec<_> = parts.map(|part| builder().spawn_scoped(scope, part)).collect();
        let joined: Vec<Result<T>> = threads
            .into_iter()
            .map(|thread| thread?.join().map_err(|_| anyhow!("a publishing thread panicked"))?)
            .collect();
        joined.into_iter().collect()
    })
}

/// Runs `other` in a thread beside `own`; returns what `own` and `other` come to.
///
/// # Errors
/// There is no thread to be had, or it panicked.
pub fn beside<A: Send, B>(other: impl FnOnce() -> A + Send, own: impl FnOnce() -> B) -> Result<(B, A)> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("publish".into()).spawn_scoped(scope, other)?;
        let own = own();
        Ok((own, thread.join().map_err(|_| anyhow!("a publishing thread panicked"))?))
    })
}

impl<D: Device> RoleModels<D> for Policies<D> {
    fn policy_version(&self) -> u32 {
        self.policy_version
    }

    fn model(&self, role: Role) -> Option<&Model<D>> {
        Some(self.model(role))
    }

    fn policy_id(&self) -> String {
        crate::tasks::own_mark().to_owned()
    }
}

/// The folders of the models that [`Policies::load`] reads for Solver, Conjecturer and Guide.
pub fn folders(config: &RunConfig, base: &Path, at: Option<&Path>) -> [PathBuf; 3] {
    [Role::Solver, Role::Conjecturer, Role::Guide].map(|role| match (config.weights_of(role), at) {
        (Weights::Guide, _) if config.model.guide != "base" => PathBuf::from(&config.model.guide),
        (weights, Some(folder)) => weights.folder().map_or_else(|| base.to_owned(), |name| folder.join(name)),
        _ => base.to_owned(),
    })
}

/// The folder of the base model: the one of the configuration, or `own` with a copy of one that was made or that ships.
///
/// # Errors
/// The copy cannot be made.
pub fn base_folder(config: &RunConfig, own: &Path) -> Result<PathBuf> {
    if let Some(recipe) = Recipe::of(&config.model.base) {
        return recipe.copied_to(own);
    }
    match model_folder(&config.model.base) {
        Some(folder) => Ok(folder),
        None => crate::base_model::unpack(config.problems.system, own),
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
