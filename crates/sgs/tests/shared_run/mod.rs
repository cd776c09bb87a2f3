//! Runs that several tests read and none alters: each is made once for all tests of one call of nextest.
#![allow(clippy::unwrap_used)] // tests say so by panicking

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

/// Which tests share: those of one call of nextest, else those of one process.
fn sharers() -> String {
    static PROCESS: OnceLock<String> = OnceLock::new();
    // Numbers of processes come again, in containers above all; with the time they do not.
    let process = || format!("process {} of {:?}", std::process::id(), SystemTime::now());
    std::env::var("NEXTEST_RUN_ID").unwrap_or_else(|_| PROCESS.get_or_init(process).clone())
}

/// The run of these settings, which `make` makes in the folder that it is given. It stays as it is until this process ends.
pub fn shared_run(settings: &impl Hash, make: impl Fn(&Path)) -> PathBuf {
    let mut hash = DefaultHasher::new();
    settings.hash(&mut hash);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shared-run-{:x}", hash.finish()));
    std::fs::create_dir_all(&folder).unwrap();
    let (run, made) = (folder.join("run"), folder.join("made-for"));
    let is_made = || std::fs::read_to_string(&made).is_ok_and(|by| by == sharers());
    let lock = File::create(folder.join("lock")).unwrap();
    loop {
        lock.lock_shared().unwrap();
        if is_made() {
            // The reader's lock ends with the process.
            std::mem::forget(lock);
            return run;
        }
        lock.unlock().unwrap();
        // Waits for whoever reads the run of another call.
        lock.lock().unwrap();
        if !is_made() {
            let _ = std::fs::remove_file(&made);
            let _ = std::fs::remove_dir_all(&run);
            make(&run);
            std::fs::write(&made, sharers()).unwrap();
        }
        lock.unlock().unwrap();
    }
}
