//! Directories that appear whole or not at all, with the SHA-256 of every file in them.
//!
//! The checksums stand in `SHA256SUMS`, in the format of the `sha256sum` program: `sha256sum -c SHA256SUMS` checks
//! a directory by hand.

use crate::error::{CallerError, Error, Result};
use crate::files::{self, TEMPORARY_PREFIX, doomed_beside, parent_of, sync_directory, temporary_beside};
use crate::write_point::reached;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

/// Name of the file with the checksums of all others.
pub const CHECKSUMS: &str = "SHA256SUMS";

/// Fills a temporary directory with `fill`, flushes and checksums every file in it, and gives it its final name.
///
/// If `fill` or the disk fails, nothing remains.
///
/// # Errors
/// `target` exists already, `fill` failed, or the file system refused.
pub fn publish_directory(target: &Path, fill: impl FnOnce(&Path) -> Result<(), CallerError>) -> Result<()> {
    StagedDirectory::prepare(target, fill)?.publish()
}

/// The SHA-256 of files that was found while they were written: they are not read again for it.
#[derive(Debug, Default)]
pub struct KnownSums(HashMap<PathBuf, String>);

impl From<()> for KnownSums {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<Vec<(PathBuf, [u8; 32])>> for KnownSums {
    /// Paths as the files are written, in the unfinished directory.
    fn from(sums: Vec<(PathBuf, [u8; 32])>) -> Self {
        Self(sums.into_iter().map(|(path, sum)| (path, hexadecimal(&sum))).collect())
    }
}

/// A directory that is whole on the disk and lacks nothing but its final name. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub struct StagedDirectory {
    staging: Staging,
    target: PathBuf,
}

impl StagedDirectory {
    /// Everything of [`publish_directory`] but the final name: several directories can be prepared at the same time
    /// and then published in their order. `fill` may give sums that it knows.
    ///
    /// # Errors
    /// As [`publish_directory`].
    pub fn prepare<S: Into<KnownSums>>(
        target: &Path,
        fill: impl FnOnce(&Path) -> Result<S, CallerError>,
    ) -> Result<Self> {
        prepare(target, |staging| fill(staging).map(S::into))
    }

    /// Gives the directory its final name.
    ///
    /// # Errors
    /// The name is taken by now, or the file system refused.
    pub fn publish(self) -> Result<()> {
        let target = &self.target;
        reached("directory.rename", target)?;
        fs::rename(&self.staging.path, target).map_err(Error::io("rename into place", target))?;
        reached("directory.sync-parent", target)?;
        sync_directory(parent_of(target))
    }
}

fn prepare(
    target: &Path,
    fill: impl FnOnce(&Path) -> Result<KnownSums, CallerError>,
) -> Result<StagedDirectory> {
    if target.exists() {
        return Err(Error::Published { path: target.to_path_buf() });
    }
    let staging = Staging { path: temporary_beside(target) };
    reached("directory.create", target)?;
    fs::create_dir(&staging.path).map_err(Error::io("create the directory", target))?;
    let known = fill(&staging.path).map_err(|source| match source.downcast::<Error>() {
        Ok(own) => *own,
        Err(source) => Error::Caller { path: target.to_path_buf(), source },
    })?;
    reached("directory.filled", target)?;
    let checksums = flush_and_checksum(&staging.path, &known)?;
    let list = staging.path.join(CHECKSUMS);
    files::write_file(&list, render(&checksums).as_bytes())?;
    flush(&list)?;
    sync_directory(&staging.path)?;
    Ok(StagedDirectory { staging, target: target.to_path_buf() })
}

/// Checks every file of a published directory against its checksum, and that there are no others: a list that has lost
/// lines would let anything pass. Names that begin with a dot are passed over.
///
/// # Errors
/// [`Error::Damaged`] names the first file that is missing, altered or not in the list; [`Error::Io`] if one cannot be
/// read.
pub fn check_directory(directory: &Path) -> Result<()> {
    let listed = listed_checksums(directory)?;
    for (name, expected) in &listed {
        checked(directory, name, expected, checksum)?;
    }
    unlisted(directory, &listed).map_or(Ok(()), Err)
}

/// What a file of a published directory comes to if its checksum, as `sum` finds it, is the expected one.
fn checked(
    directory: &Path,
    name: &str,
    expected: &str,
    sum: impl FnOnce(&Path) -> Result<String>,
) -> Result<()> {
    let path = directory.join(name);
    if !path.is_file() {
        return Err(Error::damaged(directory, format!("{name} is missing"), RESTORE));
    }
    let found = sum(&path)?;
    if found != expected {
        let what = format!("{name} has SHA-256 {found}, not {expected} as {CHECKSUMS} says");
        return Err(Error::damaged(directory, what, RESTORE));
    }
    Ok(())
}

const RESTORE: &str = "restore it from a copy or remove the directory";

/// The error about the first file, in the order of names, that is there and not in the list.
fn unlisted(directory: &Path, listed: &[(String, String)]) -> Option<Error> {
    let listed: BTreeSet<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
    let found = match names_below(directory) {
        Ok(found) => found,
        Err(error) => return Some(error),
    };
    let stranger = found.into_iter().find(|name| name != CHECKSUMS && !listed.contains(name.as_str()))?;
    let what = format!(
        "{stranger} is not in {CHECKSUMS}: the list has lost a line, or the file was put there by somebody else"
    );
    Some(Error::damaged(
        directory,
        what,
        "restore the list from a copy, or remove what does not belong there",
    ))
}

/// The names below a directory of all that is no directory and does not begin with a dot.
fn names_below(root: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).map_err(Error::io("list", &directory))? {
            let entry = entry.map_err(Error::io("list", &directory))?;
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            // A link to a directory is not followed: it is a stranger here.
            if entry.file_type().map_err(Error::io("inspect", &path))?.is_dir() {
                open.push(path);
            } else if let Ok(name) = path.strip_prefix(root) {
                names.insert(name.to_string_lossy().into_owned());
            }
        }
    }
    Ok(names)
}

/// A small file of a published directory, if it is the one of its list.
///
/// # Errors
/// The list is missing, damaged or does not name the file; or the file is missing or altered.
pub fn read_listed(directory: &Path, name: &str) -> Result<Vec<u8>> {
    let listed = listed_checksums(directory)?;
    let Some((_, expected)) = listed.iter().find(|(listed, _)| listed == name) else {
        let what = format!("{CHECKSUMS} does not name {name}: the list has lost a line");
        return Err(Error::damaged(directory, what, "restore the list from a copy"));
    };
    let mut bytes = Vec::new();
    checked(directory, name, expected, |path| {
        bytes = fs::read(path).map_err(Error::io("read", path))?;
        Ok(checksum_of(&bytes))
    })?;
    Ok(bytes)
}

/// The SHA-256 of every file of a published directory, by its name below it, as its list says.
///
/// # Errors
/// The list is missing or damaged.
pub fn listed_checksums(directory: &Path) -> Result<Vec<(String, String)>> {
    let list = directory.join(CHECKSUMS);
    if !list.is_file() {
        return Err(Error::damaged(directory, format!("{CHECKSUMS} is missing"), RESTORE));
    }
    let text = fs::read_to_string(&list).map_err(Error::io("read", &list))?;
    parse(&list, &text)
}

/// What was read of published directories, and what of it is damaged.
#[derive(Debug, Default)]
pub struct Examined {
    /// How many files were read to their end.
    pub files: u64,
    /// How many bytes they had.
    pub bytes: u64,
    /// Everything that is wrong.
    pub damages: Vec<Error>,
    /// What is not wrong, but should be known: what is not there yet, and what nothing tells of.
    pub notes: Vec<String>,
}

impl Examined {
    /// Reads a published directory as [`check_directory`] does, to its end.
    pub fn directory(&mut self, directory: &Path) {
        let listed = match listed_checksums(directory) {
            Ok(listed) => listed,
            Err(error) => return self.damages.push(error),
        };
        for (name, expected) in &listed {
            self.file(&directory.join(name), checked(directory, name, expected, checksum));
        }
        self.damages.extend(unlisted(directory, &listed));
    }

    /// Counts a file that was read, and notes what was wrong with it.
    pub fn file(&mut self, path: &Path, found: Result<()>) {
        self.files += 1;
        self.bytes += fs::metadata(path).map_or(0, |about| about.len());
        self.damages.extend(found.err());
    }
}

/// Removes a published directory so that a crash leaves all or nothing of it under its name.
///
/// # Errors
/// The file system refused.
pub fn remove_directory(directory: &Path) -> Result<()> {
    let doomed = doomed_beside(directory);
    reached("remove.rename", directory)?;
    fs::rename(directory, &doomed).map_err(Error::io("remove", directory))?;
    sync_directory(parent_of(directory))?;
    reached("remove.delete", directory)?;
    fs::remove_dir_all(&doomed).map_err(Error::io("remove", directory))
}

/// The SHA-256 of a file as 64 lower-case hexadecimal digits.
///
/// # Errors
/// The file cannot be read.
pub fn checksum(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(Error::io("open", path))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0u8; 1 << 17];
    loop {
        let read = file.read(&mut buffer).map_err(Error::io("read", path))?;
        if read == 0 {
            return Ok(hexadecimal(&hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
    }
}

/// The SHA-256 of bytes in memory as 64 lower-case hexadecimal digits.
pub fn checksum_of(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A temporary directory that is removed unless it has been renamed away.
#[derive(Debug)]
struct Staging {
    path: PathBuf,
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.path.exists() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Flushes all files and directories below `root`; returns the checksum of each file by its relative name. Those that are
/// known are of what was written, whatever the disk has made of it.
///
/// Flushes wait for the disk and for each other, checksums for a processor: all of them are worked off side by side,
/// the largest file first.
fn flush_and_checksum(root: &Path, known: &KnownSums) -> Result<BTreeMap<String, String>> {
    let Content { mut files, directories } = content(root)?;
    files.sort_by_key(|file| file.bytes);
    let known = |file: &PlainFile| Some((file.name.clone(), known.0.get(&file.path)?.clone()));
    let mut checksums: BTreeMap<String, String> = files.iter().filter_map(known).collect();
    // Taken from the end: the flush of the largest file, then its checksum.
    let mut work: Vec<Work<'_>> =
        files.iter().flat_map(|file| [Work::Checksum(file), Work::Flush(&file.path)]).collect();
    work.retain(|work| !matches!(work, Work::Checksum(file) if checksums.contains_key(&file.name)));
    let threads = thread::available_parallelism().map_or(1, usize::from).saturating_mul(2).min(work.len());
    let work = Mutex::new(&mut work);
    let next = || work.lock().ok().and_then(|mut work| work.pop());
    let labour = || -> Result<Vec<(String, String)>> {
        let mut checksums = Vec::new();
        while let Some(work) = next() {
            match work {
                Work::Flush(path) => flush(path)?,
                Work::Checksum(file) => checksums.push((file.name.clone(), checksum(&file.path)?)),
            }
        }
        Ok(checksums)
    };
    let parts: Vec<Result<Vec<(String, String)>>> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map_while(|_| thread::Builder::new().name("flush".into()).spawn_scoped(scope, labour).ok())
            .collect();
        let own = labour();
        let panicked = || Err(Error::damaged(root, "a thread that flushed it panicked", "try again"));
        let others = others.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked()));
        [own].into_iter().chain(others.collect::<Vec<_>>()).collect()
    });
    for part in parts {
        checksums.extend(part?);
    }
    directories.iter().try_for_each(|directory| sync_directory(directory))?;
    Ok(checksums)
}

/// What is done to a file before it is published.
enum Work<'a> {
    Flush(&'a Path),
    Checksum(&'a PlainFile),
}

/// A file that is to be published.
struct PlainFile {
    path: PathBuf,
    /// Relative to the directory that is published.
    name: String,
    bytes: u64,
}

/// What lies below a directory.
#[derive(Default)]
struct Content {
    files: Vec<PlainFile>,
    /// Without the directory itself.
    directories: Vec<PathBuf>,
}

fn content(root: &Path) -> Result<Content> {
    let mut content = Content::default();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).map_err(Error::io("list", &directory))? {
            let path = entry.map_err(Error::io("list", &directory))?.path();
            let about = fs::symlink_metadata(&path).map_err(Error::io("inspect", &path))?;
            if about.is_dir() {
                content.directories.push(path.clone());
                open.push(path);
            } else if about.is_file() {
                let name = relative_name(root, &path)?;
                content.files.push(PlainFile { path, name, bytes: about.len() });
            } else {
                let what = "it is neither a file nor a directory";
                return Err(Error::damaged(&path, what, "publish plain files only"));
            }
        }
    }
    Ok(content)
}

fn flush(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(Error::io("flush", path))
}

fn relative_name(root: &Path, path: &Path) -> Result<String> {
    let name = path.strip_prefix(root).ok().and_then(Path::to_str).unwrap_or_default();
    if name.is_empty() || name.contains(['\n', '\\']) || name == CHECKSUMS {
        return Err(Error::damaged(path, "its name cannot stand in SHA256SUMS", "choose a plain name"));
    }
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
        Error::damaged(list, what, "restore it from a copy or remove the directory")
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
    fn a_sum_that_is_known_is_not_asked_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("0001");
        // Of other content than the file's: what the disk made of it is found out.
        let sum: [u8; 32] = Sha256::digest(b"abc").into();
        let fill = |dir: &Path| {
            fs::write(dir.join("empty"), b"")?;
            fs::write(dir.join("weights"), b"abd")?;
            Ok(vec![(dir.join("weights"), sum)])
        };
        StagedDirectory::prepare(&target, fill).unwrap().publish().unwrap();
        let listed = listed_checksums(&target).unwrap();
        assert_eq!(listed[1], ("weights".to_owned(), hexadecimal(&sum)));
        assert!(check_directory(&target).unwrap_err().to_string().contains("weights has SHA-256"));
        fs::write(target.join("weights"), b"abc").unwrap();
        check_directory(&target).unwrap();
    }

    #[test]
    fn every_alteration_is_found() {
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
    fn a_failing_fill_leaves_nothing_and_keeps_its_message() {
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
