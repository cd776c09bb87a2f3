//! Read-only runs that several tests share. Each is executed once per invocation of nextest.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

/// Identifies the tests that share runs: those of one nextest invocation, or without nextest those of one process.
fn sharing_group() -> String {
    static PROCESS: OnceLock<String> = OnceLock::new();
    // Process ids are reused, especially in containers, so the time is added.
    let process = || format!("process {} of {:?}", std::process::id(), SystemTime::now());
    std::env::var("NEXTEST_RUN_ID").unwrap_or_else(|_| PROCESS.get_or_init(process).clone())
}

/// Returns the run with these settings, which `make` creates in the given folder if necessary.
///
/// The run is not deleted or replaced before this process ends.
pub fn shared_run(settings: &impl Hash, make: impl Fn(&Path)) -> PathBuf {
    let mut hash = DefaultHasher::new();
    settings.hash(&mut hash);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shared-run-{:x}", hash.finish()));
    std::fs::create_dir_all(&folder).unwrap();
    let (run, made) = (folder.join("run"), folder.join("made-for"));
    let is_made = || std::fs::read_to_string(&made).is_ok_and(|by| by == sharing_group());
    let lock = File::create(folder.join("lock")).unwrap();
    loop {
        lock.lock_shared().unwrap();
        if is_made() {
            // Keep the shared lock until the process ends.
            std::mem::forget(lock);
            return run;
        }
        lock.unlock().unwrap();
        // Wait until no other invocation uses its run in this folder.
        lock.lock().unwrap();
        if !is_made() {
            let _ = std::fs::remove_file(&made);
            let _ = std::fs::remove_dir_all(&run);
            make(&run);
            std::fs::write(&made, sharing_group()).unwrap();
        }
        lock.unlock().unwrap();
    }
}
