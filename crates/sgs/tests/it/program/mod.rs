//! Runs the program as a user does.
#![allow(dead_code)] // each test file uses a part

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Exit code and output of a finished process.
pub struct ProgramOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl ProgramOutput {
    /// Returns standard output as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e} in {}\n{}", self.out, self.err))
    }

    /// Returns standard output as JSON Lines.
    pub fn lines(&self) -> Vec<serde_json::Value> {
        self.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }
}

pub fn command<A: AsRef<OsStr>>(args: &[A]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sgs"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        // Ignore the developer's configuration and secrets.
        if name.to_string_lossy().starts_with("SGS_SET_") || name.to_string_lossy().starts_with("SGS_TOKEN") {
            command.env_remove(name);
        }
    }
    // The base model is unpacked here.
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

pub fn finish(mut command: Command) -> ProgramOutput {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    ProgramOutput {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// Runs `sgs` with arguments.
pub fn sgs<A: AsRef<OsStr>>(args: &[A]) -> ProgramOutput {
    finish(command(args))
}

/// Runs `sgs` with arguments and standard input.
pub fn sgs_with_input<A: AsRef<OsStr>>(args: &[A], input: &str) -> ProgramOutput {
    let mut child =
        command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    // In some tests the program ends before it reads its input.
    match writer.join().unwrap() {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => panic!("input could not be written: {e}"),
        _ => {}
    }
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    ProgramOutput {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// Writes a file to a folder and returns its path.
pub fn file(dir: &Path, name: &str, text: &str) -> String {
    std::fs::write(dir.join(name), text).unwrap();
    path(dir, name)
}

/// Returns the path of a file in a folder.
pub fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().unwrap().to_owned()
}

/// Returns a path in the repository.
pub fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns the setting that makes a run start from the small model of the tests.
pub fn small_model() -> String {
    format!("model.base={}", project("crates/run/tests/data/small-model").display())
}

/// Returns the recipe of the shipped base model for a much smaller model.
pub fn small_recipe() -> String {
    let recipe = std::fs::read_to_string(project("presets/pretrain-metamath.toml")).unwrap();
    [
        ("layers = 6", "layers = 1"),
        ("hidden_size = 192", "hidden_size = 48"),
        ("intermediate_size = 512", "intermediate_size = 64"),
        ("passes = 11.0", "passes = 1.0"),
    ]
    .iter()
    .fold(recipe, |recipe, (own, small)| recipe.replacen(own, small, 1))
}
