//! Makes the base models named `made:RECIPE` in the user's cache: corpora first, then two trainings.
//!
//! A finished step is never repeated, and an interrupted training continues from its last checkpoint. The model's folder
//! is renamed into place when it is complete; its name is derived from the recipe.

use super::config::PretrainConfig;
use super::pretrain::{self, TrainingEnd, TrainingObserver};
use super::recipe::Recipe;
use crate::metamath::{BuildOptions, build};
use serde_json::Value;
use sgs_base::digest::checksum_of;
use sgs_keys::KeyFile;
use sgs_lm::ModelConfig;
use sgs_metamath::system::Metamath;
use sgs_metamath::tokens;
use sgs_run::config::RunConfig;
use sgs_run::config::base_model::{CONFIG, is_model};
use sgs_run::config::device::{self, DeviceKind};
use sgs_run::error::{Context, Result, bail};
use sgs_run::train::launcher::RankPlan;
use sgs_run::train::policies;
use sgs_run::train::ranks::rank_group::RankGroup;
use sgs_rundir::directories::{CHECKSUMS, checksum, listed_checksums};
use sgs_rundir::files::write_file;
use sgs_rundir::lock::RunLock;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// An event that [`ensure`] reports while it makes the model of a recipe. `elapsed` is the time since the beginning of
/// the call.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the text of a variant names its fields")]
pub enum MakeEvent<'a> {
    /// The process `holder` makes the model; this one waits for it.
    Waiting { holder: &'a str, recipe: &'a str },
    /// The model is not in the cache and is made now, in the folder `home`.
    Begun { recipe: &'a str, home: &'a Path },
    /// The corpora are built, with this many random theorems.
    Corpora { composed: usize },
    /// The training with this `number`, from 1, begins.
    Training { number: usize, of: usize, elapsed: Duration },
    /// A training is complete.
    Trained(&'a TrainingEnd),
    /// The folder `model` is complete.
    Made { elapsed: Duration, model: &'a Path },
}

/// Follows the making of a base model and may stop it.
pub trait MakeObserver: TrainingObserver {
    /// Called for each event.
    fn on_make(&mut self, event: MakeEvent<'_>);
}

/// The base model of a configuration, as far as runs make it themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MadeBase {
    /// The configuration names another kind of base model.
    NotMade,
    /// The model is in this folder.
    Ready(PathBuf),
    /// The observer stopped the making. Another call continues it.
    Interrupted,
}

/// Makes the base model of a configuration if its name is `made:RECIPE` and the model is not in the user's cache.
pub fn ensure(config: &RunConfig, observer: &mut dyn MakeObserver) -> Result<MadeBase> {
    let base = &config.model.base;
    super::recipe::check(base)?;
    let Some(recipe) = Recipe::of(base) else { return Ok(MadeBase::NotMade) };
    let (home, model) = (recipe.home()?, recipe.model()?);
    let ready = || check(&model).map(|()| MadeBase::Ready(model.clone()));
    // The folder of a complete model may be read-only, so look for the model before taking the lock.
    if model.exists() {
        return ready();
    }
    let _lock = wait_for_turn(recipe, observer)?;
    if model.exists() {
        return ready();
    }
    make(recipe, device::kind(&config.model.device)?, observer)
        .with_context(|| format!("making the base model {base} in {}", home.display()))
}

/// Takes the lock on a recipe's folder. If several runs begin at the same time, the first makes the model and the others
/// wait for it.
fn wait_for_turn(recipe: &Recipe, observer: &mut dyn MakeObserver) -> Result<RunLock> {
    let home = recipe.home()?;
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let mut told = false;
    loop {
        match RunLock::take(&home.join("making.lock"), &home) {
            Err(sgs_rundir::Error::InUse { holder, .. }) => {
                if !told {
                    observer.on_make(MakeEvent::Waiting { holder: &holder, recipe: recipe.name });
                    told = true;
                }
                std::thread::sleep(Duration::from_millis(500));
            }
            lock => return Ok(lock?),
        }
    }
}

fn make(recipe: &Recipe, device: DeviceKind, observer: &mut dyn MakeObserver) -> Result<MadeBase> {
    let (home, started) = (recipe.home()?, Instant::now());
    observer.on_make(MakeEvent::Begun { recipe: recipe.name, home: &home });
    let data = home.join("data");
    let whole = home.join("data.whole");
    if !whole.exists() {
        observer.on_make(MakeEvent::Corpora { composed: recipe.composed });
        let options = BuildOptions {
            source: None,
            out: data.clone(),
            seed: 1,
            composed: recipe.composed,
            reviews: recipe.reviews,
            max_steps: recipe.max_steps,
        };
        // The observer has announced them.
        build(&options, &|_| ())?;
        write_file(&whole, b"")?;
    }
    let mut base: Option<PathBuf> = None;
    for (number, stage) in (1..).zip(recipe.stages) {
        let out = home.join(format!("stage-{number}"));
        let done = out.join("done");
        // An interrupted call may have moved the model of this training to its final place, from which it has since
        // been removed.
        if done.exists() && !is_model(&out.join("model")) {
            fs::remove_dir_all(&out).with_context(|| format!("cannot remove {}", out.display()))?;
        }
        if !done.exists() {
            let (of, elapsed) = (recipe.stages.len(), started.elapsed());
            observer.on_make(MakeEvent::Training { number, of, elapsed });
            let config = PretrainConfig { data: data.clone(), ..config_of(stage)? };
            let mut alone = RankGroup::new(RankPlan::Single, Duration::ZERO)?;
            let end = pretrain::train(&config, &out, base.as_deref(), device, &mut alone, observer)?;
            if end == TrainingEnd::Interrupted {
                return Ok(MadeBase::Interrupted);
            }
            observer.on_make(MakeEvent::Trained(&end));
            write_file(&done, b"")?;
            if observer.should_stop() {
                return Ok(MadeBase::Interrupted);
            }
        }
        base = Some(out.join("model"));
    }
    let Some(made) = base else { bail!("the recipe has no training") };
    write_sums(&made)?;
    let model = recipe.model()?;
    fs::rename(&made, &model).context("cannot give the model its name")?;
    // The marker of complete corpora is removed before the corpora.
    let removed = fs::remove_file(&whole).and_then(|()| {
        let stages = (1..=recipe.stages.len()).map(|number| format!("stage-{number}"));
        stages.chain(["data".to_owned()]).try_for_each(|folder| fs::remove_dir_all(home.join(folder)))
    });
    if let Err(error) = removed {
        tracing::warn!(
            "cannot remove the corpora and trainings of the base model from {}: {error}",
            home.display()
        );
    }
    observer.on_make(MakeEvent::Made { elapsed: started.elapsed(), model: &model });
    Ok(MadeBase::Ready(model))
}

/// Returns the folder of a run's base model. A model that was made is copied from the cache to `own`, the run's folder
/// for it, unless `own` already contains it. The copy is needed because the cache may be cleared, and ranks on other
/// machines see only the run's folder.
///
/// # Errors
/// Returns an error if the model is neither in `own` nor in the cache, or if the copy fails or is damaged.
pub fn base_folder(config: &RunConfig, own: &Path) -> Result<PathBuf> {
    if let Some(recipe) = Recipe::of(&config.model.base).filter(|_| !is_model(own)) {
        copy(recipe, own)?;
    }
    policies::base_folder(config, own)
}

fn copy(recipe: &Recipe, to: &Path) -> Result<()> {
    let from = recipe.model()?;
    let missing = || {
        format!(
            "{} is missing: `sgs resume` of a run with model.base=made:{} makes it",
            from.display(),
            recipe.name
        )
    };
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let mut files = files_of(&from).with_context(missing)?;
    // Copy `config.json` last, because its presence marks the copy as complete.
    files.sort_by_key(|path| path.ends_with(CONFIG));
    let mut list = String::new();
    for path in files {
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().unwrap_or_default();
        list.push_str(&format!("{}  {}\n", checksum_of(&bytes), name.to_string_lossy()));
        if path.ends_with(CONFIG) {
            write_file(&to.join(CHECKSUMS), list.as_bytes())?;
        }
        write_file(&to.join(name), &bytes)?;
    }
    Ok(())
}

/// Returns the files of a model in alphabetical order, without the list of their checksums.
fn files_of(model: &Path) -> std::io::Result<Vec<PathBuf>> {
    let files: std::io::Result<Vec<PathBuf>> = fs::read_dir(model)?.map(|entry| Ok(entry?.path())).collect();
    let mut files = files?;
    files.retain(|path| !path.ends_with(CHECKSUMS));
    files.sort();
    Ok(files)
}

fn config_of(stage: &str) -> Result<PretrainConfig> {
    let file = KeyFile::parse(stage.to_owned(), "a training of the recipe".to_owned())?;
    Ok(PretrainConfig::of(&file)?)
}

/// Writes the checksums of a model's files, before the model is moved to its final place.
fn write_sums(model: &Path) -> Result<()> {
    let mut text = String::new();
    for path in files_of(model).with_context(|| format!("cannot read {}", model.display()))? {
        let name = path.file_name().unwrap_or_default();
        text.push_str(&format!("{}  {}\n", checksum(&path)?, name.to_string_lossy()));
    }
    Ok(write_file(&model.join(CHECKSUMS), text.as_bytes())?)
}

fn check(model: &Path) -> Result<()> {
    let advice = || format!("remove the folder {}, and the next run makes it again", model.display());
    for (name, sum) in listed_checksums(model).with_context(advice)? {
        if checksum(&model.join(&name))? != sum {
            bail!("{} was altered: {}", model.join(name).display(), advice());
        }
    }
    Ok(())
}

/// Returns the shape of a recipe's model, whether the model exists or not.
pub fn shape(recipe: &Recipe) -> Result<ModelConfig> {
    let tokenizer = tokens::tokenizer_json(Metamath::shipped()?.theory());
    let words = tokenizer.pointer("/model/vocab").and_then(Value::as_object);
    let words = words.and_then(|words| words.values().filter_map(Value::as_u64).max());
    let words = words.context("the tokenizer of the shipped database has no vocabulary")?;
    pretrain::shape(&config_of(recipe.stages[0])?, words as usize + 1, None, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::recipe::RECIPES;
    use sgs_run::config::{Layers, resolve};

    #[test]
    fn recipes_are_valid_and_only_the_first_training_has_a_shape() {
        for recipe in &RECIPES {
            let shaped: Vec<bool> =
                recipe.stages.iter().map(|stage| config_of(stage).unwrap().model.is_some()).collect();
            assert!(shaped[0] && !shaped[1..].contains(&true), "{}", recipe.name);
            let parameters = shape(recipe).unwrap().parameters() as f64 / 1e6;
            let expected = match recipe.name {
                "deep" => 4.4,
                "13m" => 13.0,
                "30m" => 30.0,
                name => panic!("the size of {name} is unknown"),
            };
            assert!(
                (parameters - expected).abs() < 1.0,
                "{} has {parameters} million parameters",
                recipe.name
            );
        }
    }

    #[test]
    fn a_run_keeps_its_copy_of_a_made_model() {
        let run = tempfile::tempdir().unwrap();
        let own = run.path().join("base");
        let missing = copy(&RECIPES[0], &own);
        // If the model was never made, as on a CI machine, nothing can be copied.
        assert!(missing.is_err() || is_model(&own));
        fs::write(own.join(CONFIG), b"{}").unwrap();
        let set = vec!["model.base=made:13m".to_owned()];
        let layers = Layers { set, ..Layers::default() };
        let config = resolve(&layers, std::iter::empty()).unwrap().config;
        assert_eq!(base_folder(&config, &own).unwrap(), own);
    }

    #[test]
    fn an_altered_model_is_refused() {
        let model = tempfile::tempdir().unwrap();
        fs::write(model.path().join("a"), b"1").unwrap();
        write_sums(model.path()).unwrap();
        check(model.path()).unwrap();
        fs::write(model.path().join("a"), b"2").unwrap();
        assert!(check(model.path()).unwrap_err().to_string().contains("was altered"));
    }
}
