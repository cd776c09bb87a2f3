//! The base model that a run makes for itself, where the machine has not got it: corpora, two trainings, a folder of the
//! user's cache.
//!
//! Each step is finished before the next begins and is not made again; a training goes on from its last checkpoint. The
//! model's folder appears whole, under a name that follows from the recipe.

use super::data_build;
use super::pretrain::{self, Ended, PretrainConfig};
use crate::args::DataBuildArgs;
use crate::exit::Outcome;
use crate::signals;
use anyhow::{Context, Result, bail};
use sgs_lm::ModelConfig;
use sgs_metamath::system::Metamath;
use sgs_metamath::{slice, tokens};
use sgs_run::config::RunConfig;
use sgs_run::device::{self, DeviceKind};
use sgs_run::recipe::{self, Recipe};
use sgs_rundir::files::write_file;
use sgs_rundir::lock::RunLock;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Sums of the model's files, written before the model is given its name.
const SUMS: &str = "SHA256SUMS";

/// Sees to it that the configuration's base model is there, if it is one that runs make; the user may stop that.
///
/// # Errors
/// The model is damaged, or making it fails.
pub fn ensure(config: &RunConfig) -> Result<Outcome> {
    let base = &config.model.base;
    let Some(recipe) = Recipe::of(base) else { return Ok(Outcome::Done) };
    // A whole model may stand where nothing can be written.
    if recipe.model().exists() {
        return check(&recipe.model()).map(|()| Outcome::Done);
    }
    let _lock = wait_for_turn(recipe)?;
    if recipe.model().exists() {
        return check(&recipe.model()).map(|()| Outcome::Done);
    }
    make(recipe, device::kind(&config.model.device)?)
        .with_context(|| format!("making the base model {base} in {}", recipe.home().display()))
}

/// Runs that begin at the same time make one model together: the first does, the others wait.
fn wait_for_turn(recipe: &Recipe) -> Result<RunLock> {
    let home = recipe.home();
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let mut told = false;
    loop {
        match RunLock::take(&home.join("making.lock"), &home) {
            Err(sgs_rundir::Error::InUse { holder, .. }) => {
                if !told {
                    eprintln!("{holder} makes the base model made:{}: waiting", recipe.name);
                    told = true;
                }
                std::thread::sleep(Duration::from_millis(500));
            }
            lock => return Ok(lock?),
        }
    }
}

fn make(recipe: &Recipe, device: DeviceKind) -> Result<Outcome> {
    let (home, started) = (recipe.home(), Instant::now());
    eprintln!("the base model made:{} is not here: it is made once, in {}", recipe.name, home.display());
    let data = home.join("data");
    let whole = home.join("data.whole");
    if !whole.exists() {
        eprintln!("  corpora: {} composed theorems", recipe.composed);
        let args = DataBuildArgs {
            source: None,
            out: data.clone(),
            seed: 1,
            composed: recipe.composed,
            reviews: recipe.reviews,
        };
        data_build::build(&args)?;
        write_file(&whole, b"")?;
    }
    let mut base: Option<PathBuf> = None;
    for (number, stage) in (1..).zip(recipe.stages) {
        let out = home.join(format!("stage-{number}"));
        let done = out.join("done");
        // Its model may have been given its name already, and removed since.
        if done.exists() && !recipe::is_model(&out.join("model")) {
            fs::remove_dir_all(&out).with_context(|| format!("cannot remove {}", out.display()))?;
        }
        if !done.exists() {
            eprintln!(
                "  training {number} of {} ({:.0} s so far)",
                recipe.stages.len(),
                started.elapsed().as_secs_f64()
            );
            let config = PretrainConfig { data: data.clone(), ..config_of(stage)? };
            match pretrain::train_here(&config, &out, base.as_deref(), device)? {
                Ended::Whole(summary) => summary.iter().for_each(|summary| eprintln!("  {summary}")),
                Ended::Interrupted => return Ok(Outcome::Interrupted),
            }
            write_file(&done, b"")?;
            if signals::is_asked_to_stop() {
                return Ok(Outcome::Interrupted);
            }
        }
        base = Some(out.join("model"));
    }
    let Some(made) = base else { bail!("the recipe has no training") };
    write_sums(&made)?;
    fs::rename(&made, recipe.model()).context("cannot give the model its name")?;
    // What says that the corpora are whole goes before them.
    let removed = fs::remove_file(&whole).and_then(|()| {
        ["data", "stage-1", "stage-2"].iter().try_for_each(|folder| fs::remove_dir_all(home.join(folder)))
    });
    if let Err(error) = removed {
        tracing::warn!("what the model was made of cannot be removed from {}: {error}", home.display());
    }
    eprintln!(
        "the base model is made, in {:.0} s: {}",
        started.elapsed().as_secs_f64(),
        recipe.model().display()
    );
    Ok(Outcome::Done)
}

fn config_of(stage: &str) -> Result<PretrainConfig> {
    toml::from_str(stage).context("a training of the recipe")
}

fn write_sums(model: &Path) -> Result<()> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(model).with_context(|| format!("cannot read {}", model.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name != SUMS);
    names.sort();
    let mut text = String::new();
    for name in names {
        text.push_str(&format!("{}  {name}\n", sum_of(&model.join(&name))?));
    }
    Ok(write_file(&model.join(SUMS), text.as_bytes())?)
}

fn sum_of(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(slice::sha256(&bytes))
}

/// Compares a model's files with their sums.
fn check(model: &Path) -> Result<()> {
    let path = model.join(SUMS);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    for line in text.lines() {
        let Some((sum, name)) = line.split_once("  ") else {
            bail!("{}: `{line}` is no sum", path.display())
        };
        if sum_of(&model.join(name))? != sum {
            bail!(
                "{} is not as it was made: remove the folder {}, and the next run makes it again",
                model.join(name).display(),
                model.display()
            );
        }
    }
    Ok(())
}

/// The shape that a recipe's model has, made or not.
///
/// # Errors
/// The shipped database is damaged.
pub fn shape(recipe: &Recipe) -> Result<ModelConfig> {
    let tokenizer = tokens::tokenizer_json(Metamath::shipped()?.theory());
    let ids = |place: &str| tokenizer.pointer(place).cloned().unwrap_or_default();
    let words = ids("/model/vocab")
        .as_object()
        .map_or(0, |words| words.values().filter_map(|v| v.as_u64()).max().unwrap_or(0));
    pretrain::shape(&config_of(recipe.stages[0])?, words as usize + 1, None, None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use sgs_run::recipe::RECIPES;

    #[test]
    fn recipes_are_trainings_and_the_second_goes_on_from_the_first() {
        for recipe in &RECIPES {
            let [first, second] = recipe.stages.map(|stage| config_of(stage).unwrap());
            assert!(first.model.is_some() && second.model.is_none(), "{}", recipe.name);
            let parameters = shape(recipe).unwrap().parameters() as f64 / 1e6;
            let named: f64 = recipe.name.trim_end_matches('m').parse().unwrap();
            assert!((parameters - named).abs() < 1.0, "{} has {parameters} million parameters", recipe.name);
        }
    }

    #[test]
    fn a_changed_model_is_named() {
        let model = tempfile::tempdir().unwrap();
        fs::write(model.path().join("a"), b"1").unwrap();
        write_sums(model.path()).unwrap();
        check(model.path()).unwrap();
        fs::write(model.path().join("a"), b"2").unwrap();
        assert!(check(model.path()).unwrap_err().to_string().contains("not as it was made"));
    }
}
