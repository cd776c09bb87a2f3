//! Values of arguments: numbers in a range, files that exist, names with completion.

use crate::exit::Usage;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgMatches, Command, ValueHint};
use rustix::fs::{Access, PROC_SUPER_MAGIC, access, statfs};
use sgs_keys::{Allowed, KeySpec, KeyTable as _, no_such_path};
use sgs_run::config::SystemName;
use sgs_run::config::device::DeviceKind;
use sgs_run::config::system::{LEAN_SETS, METAMATH_SETS};
use sgs_run::config::{RunConfig, SIZES};
use sgs_selfplay::{Method, Role};
use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::LazyLock;

/// The configuration files that have a schema.
pub const SCHEMAS: [&str; 5] = ["run", "sweep", "pretrain", "sft", "filter"];

/// Parses an integer that `range` contains.
pub fn whole<T: TryFrom<u64> + Clone + Send + Sync + 'static>(
    range: RangeInclusive<u64>,
) -> impl TypedValueParser<Value = T> {
    let allowed = Allowed::from(range);
    move |text: &str| {
        let number = text.parse().ok().filter(|number| allowed.admits_whole(*number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| format!("expected {allowed}"))
    }
}

/// Parses a seed, with the range of the key `seed`: TOML has no larger integers.
pub fn seed() -> impl TypedValueParser<Value = u64> {
    whole(0..=i64::MAX as u64)
}

/// Parses a real number in a range.
pub fn real(allowed: Allowed) -> impl TypedValueParser<Value = f64> {
    move |text: &str| {
        let number = text.parse().ok().filter(|number| allowed.admits_real(*number));
        number.ok_or_else(|| format!("expected {allowed}"))
    }
}

/// The value hints of arguments that name an existing file or folder, which [`check_inputs`] looks for.
pub const INPUT_FILE: ValueHint = ValueHint::FilePath;
pub const INPUT_DIR: ValueHint = ValueHint::DirPath;

/// The arguments that name an output file or folder.
const OUTPUTS: [&str; 4] = ["out", "mm", "jsonl", "export"];

/// Checks that the files and folders that a command reads exist, and that those that it writes can be created. `-` is
/// standard input or output.
/// Returns an error that names the first for which this does not hold.
pub fn check_inputs(command: &Command, matches: &ArgMatches) -> anyhow::Result<()> {
    let inner = matches.subcommand().and_then(|(name, inner)| Some((command.find_subcommand(name)?, inner)));
    if let Some((command, matches)) = inner {
        return check_inputs(command, matches);
    }
    for arg in command.get_arguments().filter(|arg| OUTPUTS.contains(&arg.get_id().as_str())) {
        let (id, value_name) = (arg.get_id().as_str(), arg.get_value_names().and_then(|names| names.first()));
        let value_name = value_name.map(|name| name.as_str());
        for path in matches.get_raw(id).into_iter().flatten().filter(|path| *path != "-") {
            let path = Path::new(path);
            if value_name == Some("DIR") && path.is_file() {
                return Err(Usage(format!("{} is a file; --{id} needs a folder", path.display())).into());
            }
            if value_name != Some("DIR") {
                check_file(id, path)?;
            }
            check_writable(path).map_err(|error| {
                Usage(format!("--{id} {}: cannot write there: {error}; choose another place", path.display()))
            })?;
        }
    }
    let is_input = |arg: &&Arg| [INPUT_FILE, INPUT_DIR].contains(&arg.get_value_hint());
    for arg in command.get_arguments().filter(is_input) {
        for path in matches.get_raw(arg.get_id().as_str()).into_iter().flatten() {
            if path != "-" && !Path::new(path).exists() {
                let name = arg.get_long().map_or_else(String::new, |long| format!("--{long} "));
                let is_suitable = if arg.get_value_hint() == INPUT_DIR { Path::is_dir } else { Path::exists };
                let told = no_such_path(Path::new(path), is_suitable);
                return Err(Usage(format!("{name}{told}")).into());
            }
        }
    }
    Ok(())
}

/// Checks that `path` is not a folder and that its folder exists.
fn check_file(id: &str, path: &Path) -> Result<(), Usage> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.exists()) {
        Some(folder) => {
            Err(Usage(format!("--{id} {}: there is no folder {}", path.display(), folder.display())))
        }
        None if path.is_dir() => Err(Usage(format!("{} is a folder; --{id} needs a file", path.display()))),
        None => Ok(()),
    }
}

/// Checks that a file or folder can be created at `path`, or in it if it is a folder. Writes nothing, because other
/// processes, such as the ranks of a run, may check the same folder at the same time.
fn check_writable(path: &Path) -> io::Result<()> {
    if path.exists() && !path.is_dir() {
        return Ok(access(path, Access::WRITE_OK)?);
    }
    let existing = path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    if !existing.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    // In the system's view of its processes, the superuser appears to have access.
    if statfs(existing)?.f_type == PROC_SUPER_MAGIC {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(access(existing, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Accepts any text, and completes it to one of a few names.
#[derive(Clone)]
pub struct Completed(Vec<&'static str>);

impl TypedValueParser for Completed {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        clap::builder::StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().copied().map(PossibleValue::new)))
    }
}

/// Accepts a method or a TOML file.
pub fn method() -> Completed {
    Completed(Method::ALL.map(Method::as_str).to_vec())
}

pub fn size() -> Completed {
    Completed(SIZES.iter().map(|(name, _)| *name).collect())
}

/// Accepts `KEY=VALUE` for a key of a run. Completes keys, and the values of keys that have only a few.
pub fn setting() -> Completed {
    static SETTINGS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let complete = |key: KeySpec| match key.allowed {
            Allowed::Switch => ["true", "false"].map(|value| format!("{}={value}", key.key)).to_vec(),
            Allowed::Names(names) => names.iter().map(|value| format!("{}={value}", key.key)).collect(),
            _ => vec![format!("{}=", key.key)],
        };
        // These two keys select presets and have their own arguments.
        let keys = RunConfig::keys("").into_iter().filter(|key| !matches!(&*key.key, "method" | "size"));
        keys.flat_map(complete).collect()
    });
    Completed(SETTINGS.iter().map(String::as_str).collect())
}

pub fn problem_set() -> Completed {
    Completed(METAMATH_SETS.into_iter().chain(LEAN_SETS).collect())
}

pub fn devices() -> impl TypedValueParser<Value = DeviceKind> {
    PossibleValuesParser::new([
        PossibleValue::new("cpu")
            .help("The processor; the sampler multiplies in bfloat16 if the processor can"),
        PossibleValue::new("cpu-f32").help("The processor in f32 throughout"),
        PossibleValue::new("cuda").help("One NVIDIA GPU in bfloat16, with f32 sums and f32 master weights"),
        PossibleValue::new("cuda-f32").help("One NVIDIA GPU in f32 throughout: for comparing, not for speed"),
    ])
    .try_map(|name| name.parse::<DeviceKind>())
}

pub fn systems() -> impl TypedValueParser<Value = SystemName> {
    PossibleValuesParser::new([
        PossibleValue::new("metamath").help("Metamath, embedded"),
        PossibleValue::new("lean").help("Lean 4"),
    ])
    .try_map(|name| name.parse::<SystemName>())
}

pub fn roles() -> impl TypedValueParser<Value = Role> {
    let names = [Role::Solver, Role::Conjecturer, Role::Guide].map(Role::as_str);
    PossibleValuesParser::new(names).try_map(|name| serde_json::from_value::<Role>(name.into()))
}

pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write ADDRESS:PORT, such as 127.0.0.1:8000".to_owned())
}

/// Parses the address of a page: `127.0.0.1:8080`, `localhost:8080` or `8080`.
pub fn page_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    let loopback = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    port.parse()
        .map(loopback)
        .or_else(|_| text.parse())
        .map_err(|_| format!("{text:?} is not an address: write ADDRESS:PORT or a port, or put --serve last"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_output_is_checked_without_writing() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("run");
        let before = fs::metadata(folder.path()).unwrap().modified().unwrap();
        check_writable(&out).unwrap();
        check_writable(folder.path()).unwrap();
        check_writable(&out.join("deeper/still")).unwrap();
        assert_eq!(fs::metadata(folder.path()).unwrap().modified().unwrap(), before);
        fs::write(&out, "a file").unwrap();
        check_writable(&out).unwrap();
        let error = check_writable(&out.join("below")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }
}
