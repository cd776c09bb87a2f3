//! Publishes directories atomically, with the SHA-256 of every file in them.
//!
//! The checksums are in `SHA256SUMS`, in the format of the `sha256sum` program: `sha256sum -c SHA256SUMS` checks a
//! directory manually.

use crate::error::{CallerError, Error, Result};
use crate::files::{self, TEMPORARY_PREFIX, parent_of, sync_directory};
use crate::write_point::reached;
use sgs_base::digest::{checksum_of, hex};
use sgs_base::parallel;
use sgs_base::temporary::Temporary;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;

/// Name of the folder of rounds.
pub(crate) const ROUNDS: &str = "rounds";

/// Name of the file with the checksums of all other files.
pub const CHECKSUMS: &str = "SHA256SUMS";

/// Publishes a directory: `fill` writes its files under a temporary name, every file is flushed and checksummed, and the
/// directory is renamed to `target`.
///
/// # Errors
/// Returns an error if `target` exists, `fill` fails, or a file cannot be written. Nothing remains in that case.
pub fn publish_directory(target: &Path, fill: impl FnOnce(&Path) -> Result<(), CallerError>) -> Result<()> {
    StagedDirectory::prepare(target, fill)?.publish()
}

/// Checksums of files that were computed while the files were written, so that they need not be read again.
#[derive(Debug, Default)]
pub struct KnownSums(HashMap<PathBuf, String>);

impl From<()> for KnownSums {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<Vec<(PathBuf, [u8; 32])>> for KnownSums {
    /// Converts SHA-256 sums by path, in the directory under its temporary name.
    fn from(sums: Vec<(PathBuf, [u8; 32])>) -> Self {
        Self(sums.into_iter().map(|(path, sum)| (path, hex(&sum))).collect())
    }
}

/// A directory that is complete and durable, but still has a temporary name. Dropping it removes the directory.
#[derive(Debug)]
pub struct StagedDirectory {
    staging: Temporary,
    target: PathBuf,
}

impl StagedDirectory {
    /// Does everything that [`publish_directory`] does except the final rename, so that several directories can be written
    /// concurrently and then published in order. `fill` may return checksums that it already knows.
    pub fn prepare<S: Into<KnownSums>>(
        target: &Path,
        fill: impl FnOnce(&Path) -> Result<S, CallerError>,
    ) -> Result<Self> {
        if target.exists() {
            return Err(Error::Published { path: target.to_path_buf() });
        }
        reached("directory.create", target)?;
        let temporary = Temporary::folder_beside(target).map_err(Error::io("create the folder", target))?;
        let staging = temporary.path();
        let known = fill(staging).map_err(|source| match source.downcast::<Error>() {
            Ok(own) => *own,
            Err(source) => Error::Caller { path: target.to_path_buf(), source },
        })?;
        reached("directory.filled", target)?;
        let checksums = flush_and_checksum(staging, &known.into())?;
        let list = staging.join(CHECKSUMS);
        files::write_file(&list, render(&checksums).as_bytes())?;
        flush(&list)?;
        sync_directory(staging)?;
        Ok(Self { staging: temporary, target: target.to_path_buf() })
    }

    /// Renames the directory to its final name.
    ///
    /// # Errors
    /// Returns an error if the name is taken by now or the rename fails.
    pub fn publish(mut self) -> Result<()> {
        let target = &self.target;
        reached("directory.rename", target)?;
        self.staging.publish(target).map_err(Error::io("rename into place", target))?;
        reached("directory.sync-parent", target)?;
        sync_directory(parent_of(target))
    }
}

/// Checks every file of a published directory against its checksum, and that the list of checksums names all files. Names
/// that begin with a dot are ignored.
///
/// # Errors
/// Returns [`Error::Damaged`] with the first file that is missing, altered or not listed, or [`Error::Io`] if a file cannot
/// be read.
pub fn check_directory(directory: &Path) -> Result<()> {
    let listed = listed_checksums(directory)?;
    for (name, expected) in &listed {
        checked(directory, name, expected, checksum)?;
    }
    refuse_unlisted(directory, &listed)
}

/// Checks that a file exists and that its checksum, computed by `sum`, equals `expected`.
fn checked(
    directory: &Path,
    name: &str,
    expected: &str,
    sum: impl FnOnce(&Path) -> Result<String>,
) -> Result<()> {
    let path = directory.join(name);
    if !files::is_file(&path)? {
        return Err(Error::damaged(directory, format!("{name} is missing"), restore(directory)));
    }
    let found = sum(&path)?;
    if found != expected {
        let what = format!("{name} has SHA-256 {found}, not {expected} as {CHECKSUMS} says");
        return Err(Error::damaged(directory, what, restore(directory)));
    }
    Ok(())
}

/// Returns the advice about a damaged directory. A run does not resume without the directory of a published round.
fn restore(directory: &Path) -> &'static str {
    match parent_of(directory).ends_with(ROUNDS) {
        true => "restore it from a copy; without one, start a new run from a checkpoint (model.base)",
        false => "restore it from a copy or remove the folder",
    }
}

/// Returns an error if a file, except names that begin with a dot, is not in the list of checksums.
fn refuse_unlisted(directory: &Path, listed: &[(String, String)]) -> Result<()> {
    let listed: BTreeSet<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
    let content = list_content(directory)?;
    let names = content.files.iter().map(|path| relative(directory, path));
    let is_hidden = |name: &Path| name.iter().any(|part| part.to_string_lossy().starts_with('.'));
    let names = names.filter(|name| !is_hidden(name)).map(|name| name.to_string_lossy());
    match names.filter(|name| name != CHECKSUMS && !listed.contains(&**name)).min() {
        None => Ok(()),
        Some(unknown) => {
            let what = format!(
                "{unknown} is not in {CHECKSUMS}: the list has lost a line, or the file was added later"
            );
            Err(Error::damaged(directory, what, "restore the list from a copy, or remove the file"))
        }
    }
}

/// Reads a small file of a published directory and checks it against its checksum.
///
/// # Errors
/// Returns an error if the list is missing, damaged or does not name the file, or if the file is missing or altered.
pub fn read_listed(directory: &Path, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    checked(directory, name, &expected_checksum(directory, name)?, |path| {
        bytes = files::read(path)?;
        Ok(checksum_of(&bytes))
    })?;
    Ok(bytes)
}

/// Checks one file of a published directory against its checksum.
///
/// # Errors
/// Returns an error if the list is missing, damaged or does not name the file, or if the file is missing or altered.
pub fn check_file(directory: &Path, name: &str) -> Result<()> {
    checked(directory, name, &expected_checksum(directory, name)?, checksum)
}

fn expected_checksum(directory: &Path, name: &str) -> Result<String> {
    let listed = listed_checksums(directory)?.into_iter().find(|(listed, _)| listed == name);
    listed.map(|(_, sum)| sum).ok_or_else(|| {
        let what = format!("{CHECKSUMS} does not name {name}: the list has lost a line");
        Error::damaged(directory, what, "restore the list from a copy")
    })
}

/// Returns the names and SHA-256 sums in a directory's list of checksums.
pub fn listed_checksums(directory: &Path) -> Result<Vec<(String, String)>> {
    let list = directory.join(CHECKSUMS);
    if !files::is_file(&list)? {
        return Err(Error::damaged(directory, format!("{CHECKSUMS} is missing"), restore(directory)));
    }
    let text = files::read_to_string(&list)?;
    parse(&list, &text)
}

/// The result of checking a run's files.
#[derive(Debug, Default)]
pub struct IntegrityReport {
    /// Number of files read.
    pub files: u64,
    /// Total size of these files in bytes.
    pub bytes: u64,
    /// Damaged, missing and unexpected files.
    pub damages: Vec<Error>,
    /// Findings other than damage: files that do not exist yet, and files that could not be checked.
    pub notes: Vec<String>,
}

impl IntegrityReport {
    /// Checks a published directory like [`check_directory`], but continues after a damaged file.
    pub fn directory(&mut self, directory: &Path) {
        let listed = match listed_checksums(directory) {
            Ok(listed) => listed,
            Err(error) => return self.found(Err(error)),
        };
        for (name, expected) in &listed {
            self.file(&directory.join(name), checked(directory, name, expected, checksum));
        }
        self.found(refuse_unlisted(directory, &listed));
    }

    /// Adds a file and the result of its check.
    pub fn file(&mut self, path: &Path, found: Result<()>) {
        self.files += 1;
        self.bytes += fs::metadata(path).map_or(0, |about| about.len());
        self.found(found);
    }

    /// Adds the result of a check. A file that this user may not read is not damage.
    pub fn found(&mut self, found: Result<()>) {
        match found {
            Err(error) if error.is_permission_denied() => self.notes.push(format!("not checked: {error}")),
            found => self.damages.extend(found.err()),
        }
    }
}

/// Removes a published directory atomically: after a crash it is either complete or gone.
pub fn remove_directory(directory: &Path) -> Result<()> {
    reached("remove.rename", directory)?;
    let doomed = Temporary::name_beside(directory);
    fs::rename(directory, doomed.path()).map_err(Error::io("remove", directory))?;
    sync_directory(parent_of(directory))?;
    reached("remove.delete", directory)?;
    doomed.remove().map_err(Error::io("remove", directory))
}

/// Computes the SHA-256 of a file as 64 lower-case hexadecimal digits.
pub fn checksum(path: &Path) -> Result<String> {
    let mut file = sgs_base::files::open(path).map_err(Error::io("open", path))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0u8; 1 << 17];
    loop {
        let read = file.read(&mut buffer).map_err(Error::io("read", path))?;
        if read == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
    }
}

/// Flushes all files and directories below `root`, and returns the checksum of each file by its relative name. Known
/// checksums are used without reading the file.
///
/// Flushes wait for the disk and checksums for a processor, so both run on several threads, largest file first.
fn flush_and_checksum(root: &Path, known: &KnownSums) -> Result<BTreeMap<String, String>> {
    let content = list_content(root)?;
    let mut files = Vec::new();
    for path in content.files {
        let about = fs::symlink_metadata(&path).map_err(Error::io("inspect", &path))?;
        if !about.is_file() {
            let what = "it is neither a file nor a folder";
            return Err(Error::damaged(&path, what, "publish plain files only"));
        }
        files.push((about.len(), listable_name(root, &path)?, path));
    }
    // Begin with the largest files.
    files.sort_by(|a, b| b.cmp(a));
    let threads = thread::available_parallelism().map_or(1, usize::from).saturating_mul(2);
    let sums = parallel::try_map(threads, &files, |(_, name, path)| {
        flush(path)?;
        let sum = known.0.get(path).map_or_else(|| checksum(path), |sum| Ok(sum.clone()))?;
        Ok((name.clone(), sum))
    })?;
    content.directories.iter().try_for_each(|directory| sync_directory(directory))?;
    Ok(sums.into_iter().collect())
}

/// The files and directories below a directory.
#[derive(Default)]
struct DirectoryContent {
    /// Includes links, which are not followed.
    files: Vec<PathBuf>,
    /// Excludes the directory itself.
    directories: Vec<PathBuf>,
}

fn list_content(root: &Path) -> Result<DirectoryContent> {
    let mut content = DirectoryContent::default();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).map_err(Error::io("list", &directory))? {
            let entry = entry.map_err(Error::io("list", &directory))?;
            let path = entry.path();
            if entry.file_type().map_err(Error::io("inspect", &path))?.is_dir() {
                content.directories.push(path.clone());
                open.push(path);
            } else {
                content.files.push(path);
            }
        }
    }
    Ok(content)
}

fn flush(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(Error::io("flush", path))
}

/// Returns the path of a file relative to a directory that contains it.
#[allow(clippy::expect_used, reason = "both callers list the directory")]
fn relative<'a>(root: &Path, path: &'a Path) -> &'a Path {
    path.strip_prefix(root).expect("invariant: the file was found below the directory")
}

/// Returns the name of a file for the list of checksums.
fn listable_name(root: &Path, path: &Path) -> Result<String> {
    let name =
        relative(root, path).to_str().filter(|name| !name.contains(['\n', '\\']) && *name != CHECKSUMS);
    let name = name.ok_or_else(|| {
        Error::damaged(path, "its name cannot be written to SHA256SUMS", "choose a plain name")
    })?;
    if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(TEMPORARY_PREFIX)) {
        return Err(Error::damaged(path, "it is an unfinished file", "finish it before publishing"));
    }
    Ok(name.to_owned())
}

fn render(checksums: &BTreeMap<String, String>) -> String {
    checksums.iter().fold(String::new(), |mut text, (name, sum)| {
        let _ = writeln!(text, "{sum}  {name}");
        text
    })
}

fn parse(list: &Path, text: &str) -> Result<Vec<(String, String)>> {
    let bad = |number: usize| {
        let what = format!("line {} is not '<sha-256>  <file>'", number + 1);
        Error::damaged(list, what, restore(parent_of(list)))
    };
    text.lines()
        .enumerate()
        .map(|(number, line)| {
            let (sum, name) = line.split_once("  ").ok_or_else(|| bad(number))?;
            let escapes = Path::new(name).components().any(|c| !matches!(c, std::path::Component::Normal(_)));
            let hex = sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit());
            if escapes || name.is_empty() || !hex { Err(bad(number)) } else { Ok((name.into(), sum.into())) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(target: &Path) -> Result<()> {
        publish_directory(target, |dir| {
            fs::create_dir(dir.join("inner"))?;
            fs::write(dir.join("inner/weights"), b"abc")?;
            fs::write(dir.join("empty"), b"")?;
            Ok(())
        })
    }

    #[test]
    fn checksums_are_those_of_sha256sum() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("0001");
        publish(&target).unwrap();
        assert_eq!(
            fs::read_to_string(target.join(CHECKSUMS)).unwrap(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty\n\
             ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  inner/weights\n"
        );
        check_directory(&target).unwrap();
    }

    #[test]
    fn known_checksums_are_used_without_reading_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("0001");
        // Use the checksum of other content, as if the disk had altered the file.
        let sum: [u8; 32] = Sha256::digest(b"abc").into();
        let fill = |dir: &Path| {
            fs::write(dir.join("empty"), b"")?;
            fs::write(dir.join("weights"), b"abd")?;
            Ok(vec![(dir.join("weights"), sum)])
        };
        StagedDirectory::prepare(&target, fill).unwrap().publish().unwrap();
        let listed = listed_checksums(&target).unwrap();
        assert_eq!(listed[1], ("weights".to_owned(), hex(&sum)));
        assert!(check_directory(&target).unwrap_err().to_string().contains("weights has SHA-256"));
        fs::write(target.join("weights"), b"abc").unwrap();
        check_directory(&target).unwrap();
    }

    #[test]
    fn every_alteration_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("0001");
        publish(&target).unwrap();
        fs::write(target.join("inner/weights"), b"abd").unwrap();
        let error = check_directory(&target).unwrap_err().to_string();
        assert!(error.contains("inner/weights has SHA-256"), "{error}");
        fs::remove_file(target.join("inner/weights")).unwrap();
        let error = check_directory(&target).unwrap_err().to_string();
        assert!(error.contains("inner/weights is missing"), "{error}");
        fs::write(target.join("inner/weights"), b"abc").unwrap();
        let list = fs::read_to_string(target.join(CHECKSUMS)).unwrap();
        let shorter: String = list.lines().take(1).map(|line| format!("{line}\n")).collect();
        fs::write(target.join(CHECKSUMS), shorter).unwrap();
        let error = check_directory(&target).unwrap_err().to_string();
        assert!(error.contains("inner/weights is not in SHA256SUMS"), "{error}");
        let error = read_listed(&target, "inner/weights").unwrap_err().to_string();
        assert!(error.contains("the list has lost a line"), "{error}");
        fs::write(target.join(CHECKSUMS), list).unwrap();
        assert_eq!(read_listed(&target, "inner/weights").unwrap(), b"abc");
        fs::write(target.join(".DS_Store"), b"x").unwrap();
        check_directory(&target).unwrap();
        fs::write(target.join(CHECKSUMS), "no checksum\n").unwrap();
        assert!(check_directory(&target).is_err());
        fs::write(target.join(CHECKSUMS), format!("{}  ../outside\n", "0".repeat(64))).unwrap();
        assert!(check_directory(&target).is_err());
        fs::remove_file(target.join(CHECKSUMS)).unwrap();
        assert!(check_directory(&target).is_err());
    }

    #[test]
    fn a_failing_callback_leaves_no_files_and_keeps_its_message() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("0001");
        let error = publish_directory(&target, |d| {
            fs::write(d.join("half"), b"x")?;
            Err("no gradient".into())
        });
        let error = error.unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("no gradient"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_published_directory_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("0001");
        publish(&target).unwrap();
        assert!(matches!(publish(&target), Err(Error::Published { .. })));
        remove_directory(&target).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn links_and_unfinished_files_are_not_published() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("0001");
        let linked =
            publish_directory(&target, |d| Ok(std::os::unix::fs::symlink("/etc/passwd", d.join("l"))?));
        assert!(matches!(linked, Err(Error::Damaged { .. })));
        let unfinished = publish_directory(&target, |d| Ok(fs::write(d.join(".tmp-1-2-x"), b"")?));
        assert!(matches!(unfinished, Err(Error::Damaged { .. })));
        assert!(!target.exists());
    }
}
