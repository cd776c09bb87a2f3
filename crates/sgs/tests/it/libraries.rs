//! Checks that the program and the tests are built from the same libraries.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Returns each package that `cargo tree` lists, with its enabled features.
fn packages(arguments: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .args(["tree", "--offline", "--locked", "--prefix", "none", "--format", "{p} {f}"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.trim_end_matches(" (*)").trim_end().to_owned()).collect()
}

/// If a test enables a feature that the program does not need, `cargo test` compiles that library and most crates above
/// it a second time, which takes minutes on two cores.
#[test]
fn tests_enable_no_features_that_the_program_lacks() {
    let program = packages(&["--package", "sgs", "--edges", "normal,build"]);
    let tests = packages(&["--workspace"]);
    assert!(program.len() > 100, "{program:?}");
    let differing: Vec<_> = program.difference(&tests).collect();
    assert!(differing.is_empty(), "list the missing features in the workspace's Cargo.toml: {differing:?}");
}
