//! Finds programs and libraries, and queries the version of a program.

use sgs_base::excerpt;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Finds a program on the `PATH` or in one of the other folders.
pub fn program(name: &str, others: &[PathBuf]) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain(others.iter().cloned()).map(|dir| dir.join(name)).find(|p| is_executable(p))
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// Returns the standard output of a program; `None` if it is empty or [`run`] fails.
pub fn ask(program: &Path, args: &[&str]) -> Option<String> {
    run(program, args).ok().filter(|text| !text.is_empty())
}

/// Runs a program that prints a few lines, and returns its standard output.
///
/// # Errors
/// Returns the reason if the program cannot be started, fails, or takes longer than five seconds.
pub fn run(program: &Path, args: &[&str]) -> Result<String, String> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let started = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if started.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer within {} s", PATIENCE.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    // A few lines do not fill the pipe.
    let read = |pipe: Option<&mut dyn Read>| {
        let mut text = Vec::new();
        pipe.map_or(Ok(0), |pipe| pipe.take(1 << 16).read_to_end(&mut text)).map_err(|e| e.to_string())?;
        Ok(String::from_utf8_lossy(&text).trim().to_owned())
    };
    match status.success() {
        true => read(child.stdout.as_mut().map(|pipe| pipe as _)),
        false => {
            let said: String = read(child.stderr.as_mut().map(|pipe| pipe as _))?;
            Err(format!("{status}: {}", excerpt::beginning_of(said.lines().next().unwrap_or_default())))
        }
    }
}

/// Returns the folders of the dynamic loader's configuration, and CUDA's.
pub fn library_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(path) = env::var_os("LD_LIBRARY_PATH") {
        folders.extend(env::split_paths(&path));
    }
    for root in ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(env::var_os) {
        folders.extend([PathBuf::from(&root).join("lib64"), PathBuf::from(&root).join("lib")]);
    }
    loader_configuration(Path::new("/etc/ld.so.conf"), &mut folders, 0);
    for folder in [
        "/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu",
        "/lib64",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/cuda/lib64",
    ] {
        folders.push(PathBuf::from(folder));
    }
    let mut seen = BTreeSet::new();
    folders.retain(|f| !f.as_os_str().is_empty() && f.is_dir() && seen.insert(f.clone()));
    folders
}

/// Adds the folders of a loader configuration file and of the files that it includes.
fn loader_configuration(path: &Path, folders: &mut Vec<PathBuf>, depth: u32) {
    let Ok(text) = fs::read_to_string(path) else { return };
    for line in text.lines().map(|l| l.split('#').next().unwrap_or("").trim()) {
        if let Some(pattern) = line.strip_prefix("include ") {
            if depth < 4 {
                for file in matching(Path::new(pattern.trim())) {
                    loader_configuration(&file, folders, depth + 1);
                }
            }
        } else if line.starts_with('/') {
            folders.push(PathBuf::from(line));
        }
    }
}

/// Expands a pattern `folder/*.end`; without a star, returns the file itself.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let Some((start, end)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let Some(entries) = pattern.parent().and_then(|p| fs::read_dir(p).ok()) else { return Vec::new() };
    let fits = |p: &PathBuf| {
        p.file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with(start) && n.to_string_lossy().ends_with(end))
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(fits).collect();
    found.sort();
    found
}

/// Returns the first of the library names in the first folder that has one.
pub fn library(names: &[&str], folders: &[PathBuf]) -> Option<PathBuf> {
    names.iter().flat_map(|name| folders.iter().map(move |f| f.join(name))).find(|p| p.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loader_configurations_include_others() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("conf.d")).unwrap();
        fs::write(at("conf.d/a.conf"), "/opt/a # here\n").unwrap();
        fs::write(at("conf.d/b.txt"), "/opt/b\n").unwrap();
        let text = format!("include {}/conf.d/*.conf\n\n# no\n/opt/c\n", dir.path().display());
        fs::write(at("ld.so.conf"), text).unwrap();
        let mut folders = Vec::new();
        loader_configuration(&at("ld.so.conf"), &mut folders, 0);
        assert_eq!(folders, [PathBuf::from("/opt/a"), PathBuf::from("/opt/c")]);
    }

    #[test]
    fn programs_and_libraries_are_found_where_they_are() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("libx.so.2"), "").unwrap();
        let folders = [dir.path().join("none"), dir.path().to_owned()];
        assert_eq!(library(&["libx.so.1", "libx.so.2"], &folders), Some(dir.path().join("libx.so.2")));
        assert_eq!(library(&["libx.so.1"], &folders), None);
        fs::write(dir.path().join("sgs-no-program"), "").unwrap();
        assert_eq!(
            program("sgs-no-program", &folders),
            None,
            "a file without the execute permission is not a program"
        );
    }

    #[test]
    fn a_failing_program_has_no_output() {
        let Some(sh) = program("sh", &[]) else { return };
        assert_eq!(ask(&sh, &["-c", "echo ' x '"]).as_deref(), Some("x"));
        assert_eq!(ask(&sh, &["-c", "echo x; exit 3"]), None);
        assert_eq!(run(&sh, &["-c", ":"]), Ok(String::new()));
        assert_eq!(run(&sh, &["-c", "echo why >&2; exit 3"]), Err("exit status: 3: why".to_owned()));
        assert_eq!(ask(Path::new("/no/such/program"), &[]), None);
    }
}
