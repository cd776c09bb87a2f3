//! Hints in errors about unknown arguments.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use sgs_keys::{KeyTable as _, is_of_some_runs};
use sgs_run::config::RunConfig;
use std::ffi::OsString;
use std::path::Path;

/// Returns the error of a command line, with a hint if an unknown argument is a key of a run or the folder of a run or
/// model, or if the device is `gpu`.
pub fn hinted(mut error: clap::Error, definition: &Command, args: &[OsString]) -> clap::Error {
    let is_gpu =
        matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value == "gpu");
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return error };
    if error.kind() == ErrorKind::InvalidValue && is_gpu && unknown.starts_with("--device") {
        error.insert(ContextKind::SuggestedValue, ContextValue::String("cuda".to_owned()));
        return error;
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let command = command_of(definition, args);
    let hint = match unknown.strip_prefix("--") {
        Some(option) if ["run", "serve"].contains(&command.get_name()) => of_key(command.get_name(), option),
        None if command.get_arguments().any(|arg| arg.get_long() == Some("run")) => of_folder(unknown),
        _ => None,
    };
    let is_option = unknown.starts_with("--");
    if let Some(hint) = hint {
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    } else if is_option && error.get(ContextKind::SuggestedArg).is_none() {
        // Clap suggests to give the option as a value, which is never meant.
        error.remove(ContextKind::Suggested);
    }
    error
}

/// Returns the command that the arguments name.
fn command_of<'a>(definition: &'a Command, args: &[OsString]) -> &'a Command {
    let named = args.iter().skip(1).map_while(|arg| arg.to_str()).filter(|arg| !arg.starts_with('-'));
    named
        .scan(definition, |command, arg| {
            *command = command.find_subcommand(arg)?;
            Some(*command)
        })
        .last()
        .unwrap_or(definition)
}

/// Returns how to set the key of a run that an option names.
fn of_key(command: &str, option: &str) -> Option<String> {
    let name = match option {
        "method" | "methods" => {
            return Some(format!("give the method without an option: `sgs {command} METHOD`"));
        }
        "output" => return Some("did you mean `--out`?".to_owned()),
        // The names of tables or of other keys.
        "problems" => "problems.set".to_owned(),
        "model" => "model.base".to_owned(),
        "guide" => "algorithm.guide.kind".to_owned(),
        "lr" => "learning_rate".to_owned(),
        option => option.replace('-', "_"),
    };
    let mut keys: Vec<String> = RunConfig::keys("").into_iter().map(|key| key.key).collect();
    keys.retain(|key| key.strip_suffix(&name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    keys.sort_by_key(|key| (is_of_some_runs(key), key.len()));
    let (first, others) = keys.split_first()?;
    let others = if others.is_empty() { String::new() } else { format!(" (or {})", others.join(", ")) };
    Some(format!("set it with `--set {first}=VALUE`{others}"))
}

/// Returns the option that takes a folder, if it looks like the folder of a run or of a model.
fn of_folder(unknown: &str) -> Option<String> {
    let path = Path::new(unknown);
    let option = if path.join("config.json").is_file() { "model" } else { "run" };
    (path.is_dir() || unknown.contains('/')).then(|| format!("did you mean `--{option} {unknown}`?"))
}
