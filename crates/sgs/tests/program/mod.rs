//! The program as a user runs it.
#![allow(clippy::unwrap_used, dead_code)] // tests say so by panicking; each test file uses a part

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the program did.
pub struct Done {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Done {
    /// Standard output as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e} in {}\n{}", self.out, self.err))
    }

    /// Standard output as JSON Lines.
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
        // Configuration and secrets of whoever runs the tests.
        if name.to_string_lossy().starts_with("SGS_SET_") || name.to_string_lossy().starts_with("SGS_TOKEN") {
            command.env_remove(name);
        }
    }
    // Where the base model is unpacked.
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

pub fn finish(mut command: Command) -> Done {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs `sgs` with arguments.
pub fn sgs<A: AsRef<OsStr>>(args: &[A]) -> Done {
    finish(command(args))
}

/// Runs `sgs` with arguments and standard input.
pub fn sgs_with_input<A: AsRef<OsStr>>(args: &[A], input: &str) -> Done {
    let mut child =
        command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    // A program that ends before it reads its input is what some tests are about.
    match writer.join().unwrap() {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => panic!("input could not be written: {e}"),
        _ => {}
    }
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// A file with a text in a folder; returns its path as text.
pub fn file(dir: &Path, name: &str, text: &str) -> String {
    std::fs::write(dir.join(name), text).unwrap();
    path(dir, name)
}

/// The path of a name in a folder as text.
pub fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().unwrap().to_owned()
}

/// A folder of the project.
pub fn project(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder)
}
