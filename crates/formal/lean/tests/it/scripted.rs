//! Locates the scripted REPL, an example of this crate that only tests build.

use std::path::PathBuf;

/// Returns the path of the scripted REPL.
///
/// Cargo builds examples together with the tests and puts them next to `deps`, the folder of the test binaries.
///
/// # Panics
/// Panics if the example is not built, which happens if Cargo is asked for this test binary alone (`--test it`).
pub fn repl() -> PathBuf {
    let tests = std::env::current_exe().expect("the path of this test binary");
    let profile = tests.ancestors().nth(2).expect("test binaries are in the `deps` folder of a profile");
    let repl = profile.join("examples/scripted_repl");
    assert!(
        repl.is_file(),
        "{} does not exist: build it with `cargo build -p sgs-lean --example scripted_repl`, in the profile of the tests",
        repl.display()
    );
    repl
}
