//! Which models play: those that a run has trained, a folder, or the one that ships.

use crate::args::PlayArgs;
use crate::exit::Usage;
use anyhow::{Result, bail};
use sgs_lean::LeanSettings;
use sgs_lean::prompt::SolverForm;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::weights::HostWeights;
use sgs_run::config::{RunConfig, SystemName};
use sgs_run::endpoint::EndpointConfig;
use sgs_run::recipe::Recipe;
use sgs_run::{base_model, folder, policies};
use sgs_rundir::RunView;
use sgs_selfplay::config::GuideKind;
use sgs_selfplay::{Role, Weights};
use std::path::PathBuf;

/// The models of the three roles, and the formal system that they speak.
pub struct Players {
    system: SystemName,
    /// Solver, Conjecturer and Guide; `None` if nothing is named.
    folders: Option<[PathBuf; 3]>,
    run: Option<Trained>,
}

/// A run and the round whose weights are taken.
struct Trained {
    config: RunConfig,
    round: Option<u32>,
}

/// The paper's context window, tokens.
const LEAN_WINDOW: usize = 8192;

impl Players {
    /// Those of a run, else of a folder, else the model that ships.
    ///
    /// # Errors
    /// The run cannot be read, or it is one of another formal system.
    pub fn choose(args: &PlayArgs) -> Result<Self> {
        let Some(path) = &args.run else {
            let folders = args.model.as_ref().map(|model| [(); 3].map(|()| model.clone()));
            return Ok(Self { system: args.system.unwrap_or(SystemName::Metamath), folders, run: None });
        };
        let view = RunView::open(path)?;
        let config = folder::config_of(&view)?;
        let own = config.problems.system;
        if args.system.is_some_and(|asked| asked != own) {
            return Err(Usage(format!("--system: {} is a run of {own:?}", path.display())).into());
        }
        let checkpoint = view.checkpoints().newest_valid(u32::MAX)?;
        // A model that was made for the run stands in it; the one that ships need not be unpacked there.
        let place = match Recipe::of(&config.model.base) {
            Some(_) => path.join("base"),
            None => base_model::cache_folder(own),
        };
        let base = policies::base_folder(&config, &place)?;
        let at = checkpoint.as_ref().map(|checkpoint| checkpoint.directory.as_path());
        let folders = Some(policies::folders(&config, &base, at));
        let round = checkpoint.map(|checkpoint| checkpoint.round);
        Ok(Self { system: own, folders, run: Some(Trained { config, round }) })
    }

    /// The formal system.
    pub fn system(&self) -> SystemName {
        self.system
    }

    /// Lean as the run has it, or as the model that ships is asked.
    pub fn lean(&self) -> LeanSettings {
        match &self.run {
            Some(run) => run.config.lean.clone().unwrap_or_default(),
            // The model that ships knows the short form only.
            None if self.folders.is_none() => {
                LeanSettings { form: SolverForm::Compact, ..LeanSettings::default() }
            }
            None => LeanSettings::default(),
        }
    }

    /// The run's problems.
    pub fn problems(&self) -> Option<&str> {
        self.run.as_ref().map(|run| run.config.problems.set.as_str())
    }

    /// The longest completion of a role, in tokens: as in the run, else as by default. Of a model for Lean the paper's
    /// whole window, which prompt and completion share.
    pub fn tokens(&self, role: Role) -> usize {
        match (&self.run, self.system) {
            (Some(run), _) => run.config.sampling.tokens(role),
            (None, SystemName::Metamath) => RunConfig::default().sampling.tokens(role),
            (None, SystemName::Lean) => LEAN_WINDOW,
        }
    }

    /// Positions that a model is loaded with, where its own are not fewer: as in the run.
    pub fn positions(&self) -> usize {
        self.run.as_ref().map_or(usize::MAX, |run| run.config.model.positions())
    }

    /// Whether no model reviews in the run, but the formal system.
    pub fn guide_is_rubric(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.config.algorithm.guide.kind == GuideKind::Rubric)
    }

    /// The round whose update produced the weights, if a run has trained them.
    pub fn round(&self) -> Option<u32> {
        self.run.as_ref().and_then(|run| run.round)
    }

    /// The server that plays a role of the run with weights of its own, if one does.
    pub fn served(&self, role: Role) -> Option<EndpointConfig> {
        let run = self.run.as_ref().filter(|run| run.config.weights_of(role) == Weights::Served)?;
        let endpoint = &run.config.sampling.endpoint;
        endpoint.urls_of(role).first().map(|url| endpoint.at(url))
    }

    /// The tokenizer of the Solver's model; of one that is served, that of the model it was begun with.
    ///
    /// # Errors
    /// As [`Players::solver`], or it is missing or damaged.
    pub fn solver_tokenizer(&self) -> Result<Tokenizer> {
        let named = self.folders.as_ref().map(|[solver, ..]| solver.as_path());
        Ok(Tokenizer::load(&base_model::folder_for(self.system, named)?)?)
    }

    /// The folder of the Solver's model.
    ///
    /// # Errors
    /// The shipped model is meant, and cannot be unpacked.
    pub fn solver(&self) -> Result<PathBuf> {
        self.of(Role::Solver)
    }

    /// The folder of a role's model.
    ///
    /// # Errors
    /// As [`Players::solver`].
    pub fn of(&self, role: Role) -> Result<PathBuf> {
        if let Some(endpoint) = self.served(role) {
            let (role, url) = (role.as_str(), &endpoint.url);
            bail!("the {role} of this run is played by the server at {url}: its weights are not here");
        }
        let named = self.folders.as_ref().map(|[solver, conjecturer, guide]| match role {
            Role::Solver => solver,
            Role::Conjecturer => conjecturer,
            Role::Guide => guide,
        });
        base_model::folder_for(self.system, named.map(PathBuf::as_path))
    }

    /// A role's model and its tokenizer, read.
    ///
    /// # Errors
    /// As [`Players::solver`], or something of it is missing or damaged.
    pub fn load(&self, role: Role) -> Result<(Tokenizer, HostWeights)> {
        let folder = self.of(role)?;
        let (tokenizer, weights) = (Tokenizer::load(&folder)?, HostWeights::load(&folder)?);
        tokenizer.check_model(&weights.config)?;
        Ok((tokenizer, weights))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_for_lean_is_asked_for_as_much_as_the_paper_asks_for() {
        let players = |system| Players { system, folders: None, run: None };
        let [solver, guide] = [Role::Solver, Role::Guide].map(|role| players(SystemName::Lean).tokens(role));
        assert_eq!((solver, guide), (8192, 8192));
        assert_eq!(
            players(SystemName::Metamath).tokens(Role::Solver),
            RunConfig::default().sampling.solver_tokens
        );
    }
}
