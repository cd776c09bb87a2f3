//! Selects the models to sample from: those of a run, a folder, or the shipped model.

use crate::args::PlayArgs;
use crate::exit::{Usage, usage};
use anyhow::{Context, Result, bail};
use sgs_data::base::made::base_folder;
use sgs_data::base::recipe::Recipe;
use sgs_formal::Prompt;
use sgs_lean::LeanSettings;
use sgs_lean::prompt::SolverForm;
use sgs_lm::footprint::Footprint;
use sgs_lm::model::Model;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::weights::HostWeights;
use sgs_lm::{Device, ModelConfig};
use sgs_lm_sampler::{Decode, SamplerError, SamplerOptions};
use sgs_run::config::base_model;
use sgs_run::config::endpoint::EndpointConfig;
use sgs_run::config::folder;
use sgs_run::config::{BaseSource, Layers, RunConfig, SHIPPED, SystemName, resolve};
use sgs_run::train::policies;
use sgs_run::with_device;
use sgs_run::workers::sampling::{self, TextSampler};
use sgs_rundir::RunView;
use sgs_selfplay::config::{ConjecturerConfig, GuideKind};
use sgs_selfplay::{Role, Weights};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The models of the three roles and their formal system.
pub struct ModelSource {
    system: SystemName,
    /// Folders of Solver, Conjecturer and Guide; `None` for the shipped model.
    folders: Option<[PathBuf; 3]>,
    run: Option<TrainedRun>,
}

/// A run and the round whose weights are used.
struct TrainedRun {
    config: RunConfig,
    round: Option<u32>,
}

/// Returns the folder of a model that a run makes.
fn made_folder(path: &Path, base: &str) -> Result<PathBuf> {
    let folder = Recipe::of(base).with_context(|| format!("unknown model {base}"))?.model()?;
    if !base_model::is_model(&folder) {
        let path = path.display();
        return Err(Usage(format!("{base} has not been made yet: `sgs run {path}` makes it first")).into());
    }
    Ok(folder)
}

/// Returns whether a path names the configuration of a run, and not the folder of one.
pub fn is_configuration(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml") && !path.is_dir()
}

/// Reads the configuration of a run that has not begun, as `sgs run` does. `set` contains `KEY=VALUE` settings.
pub fn configuration(path: &Path, set: &[String]) -> Result<RunConfig> {
    let layers = Layers { method: Some(path.display().to_string()), set: set.to_vec(), ..Layers::default() };
    Ok(resolve(&layers, std::env::vars())?.config)
}

/// The paper's context window, in tokens.
const LEAN_WINDOW: usize = 8192;

impl ModelSource {
    /// Selects the models of a run, of a folder, or the shipped model.
    /// Returns an error if the run cannot be read or has another formal system than requested.
    pub fn choose(args: &PlayArgs) -> Result<Self> {
        let source = Self::find(args)?;
        if source.system != SystemName::Lean {
            crate::lean::note_unused(&args.lean);
        }
        Ok(source)
    }

    fn find(args: &PlayArgs) -> Result<Self> {
        let Some(path) = &args.run else {
            let folders = args.model.as_ref().map(|model| [(); 3].map(|()| model.clone()));
            return Ok(Self { system: args.system.unwrap_or(SystemName::Metamath), folders, run: None });
        };
        crate::run_folder::check("--run", path)?;
        let view = if is_configuration(path) { None } else { Some(RunView::open(path)?) };
        let config = match &view {
            Some(view) => {
                let config = folder::config_of(view)?;
                folder::check_system(path, &config)?;
                config
            }
            None => configuration(path, &[])?,
        };
        let own = config.problems.system;
        if args.system.is_some_and(|asked| asked != own) {
            return Err(Usage(format!(
                "--system: {} is a run with the formal system {own:?}",
                path.display()
            ))
            .into());
        }
        let Some(view) = view else {
            let base = match config.model.base_source() {
                BaseSource::Folder(folder) => folder.to_owned(),
                BaseSource::Made(_) => made_folder(path, &config.model.base)?,
                BaseSource::Shipped => policies::base_folder(&config, &base_model::cache_folder(own)?)?,
            };
            let folders = Some(policies::folders(&config, &base, None));
            return Ok(Self { system: own, folders, run: Some(TrainedRun { config, round: None }) });
        };
        let checkpoint = match view.checkpoints().newest_valid(u32::MAX)? {
            Some(newest) => Some(newest),
            // The base model is right only if the run has not trained yet: a lost checkpoint is an error.
            None => view.plan(0)?.checkpoint,
        };
        // A model that was made for the run is in its folder; the shipped one is in the cache.
        let place = match config.model.base_source() {
            BaseSource::Made(_) | BaseSource::Folder(_) => path.join("base"),
            BaseSource::Shipped => base_model::cache_folder(own)?,
        };
        let base = base_folder(&config, &place)?;
        let at = checkpoint.as_ref().map(|checkpoint| checkpoint.directory.as_path());
        let folders = Some(policies::folders(&config, &base, at));
        let round = checkpoint.map(|checkpoint| checkpoint.round);
        Ok(Self { system: own, folders, run: Some(TrainedRun { config, round }) })
    }

    /// Describes the Solver, whose folder or address is `name`.
    pub fn described<'a>(&self, name: &'a str) -> &'a str {
        if !Path::new(name).is_dir() {
            return name;
        }
        match &self.run {
            None if self.folders.is_none() => "the shipped base model",
            Some(TrainedRun { round: None, .. }) => "the base model (no checkpoint exists)",
            _ => name,
        }
    }

    pub fn system(&self) -> SystemName {
        self.system
    }

    /// Returns the run's configuration, if the models are those of a run.
    pub fn config(&self) -> Option<&RunConfig> {
        self.run.as_ref().map(|run| &run.config)
    }

    /// Returns the run's Lean settings, or those of the shipped model.
    pub fn lean(&self) -> LeanSettings {
        match &self.run {
            Some(run) => run.config.lean.clone().unwrap_or_default(),
            // The shipped model was trained on compact prompts only.
            None if self.folders.is_none() => {
                LeanSettings { form: SolverForm::Compact, ..LeanSettings::default() }
            }
            None => LeanSettings::default(),
        }
    }

    /// Returns the Metamath database of the run, or the shipped one.
    pub fn database(&self) -> &str {
        self.run.as_ref().map_or(SHIPPED, |run| run.config.problems.database.as_str())
    }

    /// Returns the run's problem set.
    pub fn problems(&self) -> Option<&str> {
        self.run.as_ref().map(|run| run.config.problems.set.as_str())
    }

    /// Returns the maximum length of a role's completions, in tokens: that of the run, or the default. For a Lean model
    /// without a run, it is the paper's context window, which prompt and completion share.
    pub fn tokens(&self, role: Role) -> usize {
        match (&self.run, self.system) {
            (Some(run), _) => run.config.sampling.tokens(role),
            (None, SystemName::Lean) => LEAN_WINDOW,
            (None, _) => RunConfig::default().sampling.tokens(role),
        }
    }

    /// Returns the maximum context window to load a model with: that of the run, otherwise the model's sliding window.
    pub fn positions(&self, model: &ModelConfig) -> usize {
        let own = model.sliding_window.unwrap_or(usize::MAX);
        self.run.as_ref().map_or(own, |run| run.config.model.positions())
    }

    /// Returns the configuration of the run's Conjecturer; without a run, the default.
    pub fn conjecturer(&self) -> ConjecturerConfig {
        self.run.as_ref().map(|run| run.config.algorithm.conjecturer.clone()).unwrap_or_default()
    }

    /// Returns whether the run's Guide is the formal system's rubric instead of a model.
    pub fn guide_is_rubric(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.config.algorithm.guide.kind == GuideKind::Rubric)
    }

    /// Returns the round whose update produced the weights, if a run trained them.
    pub fn round(&self) -> Option<u32> {
        self.run.as_ref().and_then(|run| run.round)
    }

    /// Returns the name of a role's weights: the round that trained them, or the frozen model.
    pub fn weights_name(&self, role: Role) -> String {
        let config = self.config();
        match (self.round(), config.map_or(Weights::Base, |config| config.weights_of(role))) {
            (Some(round), weights) if weights.is_trained() => format!("round-{round}"),
            (_, Weights::Guide) if config.is_some_and(|config| config.model.guide != "base") => {
                "guide".to_owned()
            }
            _ => "base".to_owned(),
        }
    }

    /// Returns the endpoint that serves a role of the run with its own weights, if there is one.
    pub fn served(&self, role: Role) -> Option<EndpointConfig> {
        let run = self.run.as_ref().filter(|run| run.config.weights_of(role) == Weights::Served)?;
        let endpoint = &run.config.sampling.endpoint;
        endpoint.urls_of(role).first().map(|url| endpoint.at(url))
    }

    /// Loads the tokenizer of the Solver's model; for a served model, the tokenizer of the base model.
    pub fn solver_tokenizer(&self) -> Result<Tokenizer> {
        let named = self.folders.as_ref().map(|[solver, ..]| solver.as_path());
        Ok(Tokenizer::load(&base_model::folder_for(self.system, named)?)?)
    }

    /// Returns the folder of the Solver's model.
    pub fn solver(&self) -> Result<PathBuf> {
        self.of(Role::Solver)
    }

    /// Returns the folder of a role's model.
    pub fn of(&self, role: Role) -> Result<PathBuf> {
        if let Some(endpoint) = self.served(role) {
            let (role, url) = (role.as_str(), &endpoint.url);
            bail!("the {role} of this run is served at {url}: its weights are not in the run's folder");
        }
        let named = self.folders.as_ref().map(|[solver, conjecturer, guide]| match role {
            Role::Solver => solver,
            Role::Conjecturer => conjecturer,
            Role::Guide => guide,
        });
        Ok(base_model::folder_for(self.system, named.map(PathBuf::as_path))?)
    }

    /// Samples a prompt of a role once per seed, and returns the texts.
    pub fn sample(
        &self,
        play: &PlayArgs,
        role: Role,
        prompt: &Prompt,
        seeds: impl IntoIterator<Item = u64>,
    ) -> Result<Vec<String>> {
        let answers = with_device!(play.device, 0, device => {
            let model = RoleModel::load(self, role, &device)?;
            let asks = sampling::asks(&model.tokenizer, prompt, seeds)?;
            let options = sampling::options(asks.len().min(256), play.memory_mib);
            model.sampler(self.tokens(role), options, "--samples")?.answers(&asks, || ())?
        });
        Ok(answers.iter().map(|answer| answer.text().to_owned()).collect())
    }

    pub fn load(&self, role: Role) -> Result<(Tokenizer, HostWeights)> {
        let folder = self.model_folder(role)?;
        let tokenizer = Tokenizer::load(&folder).map_err(usage)?;
        let weights = HostWeights::load(&folder).map_err(usage)?;
        tokenizer.check_model(&weights.config).map_err(usage)?;
        Ok((tokenizer, weights))
    }

    /// Checks without loading a role's weights that completions of `longest` tokens can be sampled. `batch` is the option
    /// that limits the batch.
    pub fn check<D: Device + Decode>(
        &self,
        role: Role,
        device: &D,
        longest: usize,
        options: &SamplerOptions,
        batch: &str,
    ) -> Result<()> {
        let config = ModelConfig::load(&self.model_folder(role)?).map_err(usage)?;
        let context = config.positions(self.positions(&config))?;
        SamplingMemory { footprint: device.footprint(), config: &config, context, longest }
            .check(options, batch)
    }

    /// Returns the folder of a role's model, which has the files of one.
    fn model_folder(&self, role: Role) -> Result<PathBuf> {
        let folder = self.of(role)?;
        for file in ["config.json", "tokenizer.json"] {
            if !folder.join(file).is_file() {
                let folder = folder.display();
                return Err(Usage(format!("{folder} is not a model folder: {file} not found")).into());
            }
        }
        Ok(folder)
    }
}

/// A role's model on a device.
pub struct RoleModel<D: Device> {
    pub tokenizer: Tokenizer,
    pub model: Model<D>,
}

impl<D: Device + Decode> RoleModel<D> {
    pub fn load(source: &ModelSource, role: Role, device: &Arc<D>) -> Result<Self> {
        let (tokenizer, weights) = source.load(role)?;
        let positions = source.positions(&weights.config);
        Ok(Self { tokenizer, model: Model::new(Arc::clone(device), weights, positions)? })
    }

    /// Returns a sampler at temperature 1. `batch` is the option that limits the batch.
    pub fn sampler(
        &self,
        max_new_tokens: usize,
        options: SamplerOptions,
        batch: &str,
    ) -> Result<TextSampler<'_, D>> {
        let Self { tokenizer, model } = self;
        let memory = SamplingMemory {
            footprint: model.device.footprint(),
            config: &model.config,
            context: model.max_positions,
            longest: max_new_tokens,
        };
        memory.check(&options, batch)?;
        Ok(TextSampler { model, tokenizer, max_new_tokens, temperature: 1.0, options })
    }
}

/// What decides how much memory a sampler needs.
pub struct SamplingMemory<'a> {
    pub footprint: &'a dyn Footprint,
    pub config: &'a ModelConfig,
    /// Context window, in tokens.
    pub context: usize,
    /// Maximum length of a completion, in tokens.
    pub longest: usize,
}

impl SamplingMemory<'_> {
    /// Checks that the cache can hold one completion. `batch` is the option that limits the batch.
    /// Returns an error with an amount of memory that is enough for the longest completion.
    pub fn check(&self, options: &SamplerOptions, batch: &str) -> Result<()> {
        let (work, page) = match options.plan(self.footprint, self.config, self.context) {
            Ok((_, memory)) if memory.positions >= self.longest.min(self.context) => return Ok(()),
            Ok((_, memory)) => (memory.work_bytes, memory.cache_bytes / memory.pages as u64),
            Err(SamplerError::Budget { work, page, .. }) => (work, page),
            Err(error) => return Err(error.into()),
        };
        let cache = page * (self.longest.min(self.context).div_ceil(options.page_len) as u64 + 1);
        // With more memory, the plan may choose working buffers that take up to a quarter of it.
        let mib = (work + cache).max(cache.div_ceil(3) * 4).div_ceil(1 << 20);
        let told = "the sampling buffers and the cache of one completion do not fit into --memory-mib";
        Err(Usage(format!("{told}: raise --memory-mib to {mib} or lower {batch}")).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trained_weights_are_named_after_a_round() {
        let mut run = TrainedRun { config: RunConfig::default(), round: Some(9) };
        run.config.model.guide = "reviewers/model".to_owned();
        let mut players = ModelSource { system: SystemName::Metamath, folders: None, run: Some(run) };
        let names = |players: &ModelSource| {
            [Role::Solver, Role::Conjecturer, Role::Guide].map(|role| players.weights_name(role))
        };
        assert_eq!(names(&players), ["round-9", "round-9", "guide"]);
        players.run.as_mut().unwrap().config.model.guide = "base".to_owned();
        assert_eq!(names(&players), ["round-9", "round-9", "base"]);
        players.run = None;
        assert_eq!(names(&players), ["base"; 3]);
    }

    #[test]
    fn lean_models_get_the_context_window_of_the_paper() {
        let players = |system| ModelSource { system, folders: None, run: None };
        let [solver, guide] = [Role::Solver, Role::Guide].map(|role| players(SystemName::Lean).tokens(role));
        assert_eq!((solver, guide), (8192, 8192));
        assert_eq!(
            players(SystemName::Metamath).tokens(Role::Solver),
            RunConfig::default().sampling.solver_tokens
        );
    }
}
