//! Reads files that must be regular. Opening a FIFO waits for a writer, and a device can be read without end.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading.
///
/// # Errors
/// Returns an error, without the path, if the file cannot be opened or is not regular.
pub fn open(path: &Path) -> Result<File> {
    open_with(File::options().read(true), path)
}

/// Opens a regular file with these options, whose custom flags are replaced.
///
/// # Errors
/// Returns an error, without the path, if the file cannot be opened or is not regular.
pub fn open_with(options: &mut OpenOptions, path: &Path) -> Result<File> {
    // Regular files ignore the flag.
    let file = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let about = file.metadata()?;
    match (about.is_file(), about.is_dir()) {
        (true, _) => Ok(file),
        (_, true) => Err(ErrorKind::IsADirectory.into()),
        _ => Err(Error::new(
            ErrorKind::InvalidInput,
            "it is a FIFO, a device or a socket; replace it with a regular file",
        )),
    }
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// Returns an error, without the path, if the file cannot be read, is not regular, or is larger.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    // The length is only a hint: the file can grow, and files of `/proc` have length 0.
    let mut bytes = Vec::with_capacity(file.metadata()?.len().min(most).try_into().unwrap_or(0));
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let what = format!("it has more than {most} bytes, the maximum for this file");
        return Err(Error::new(ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Reads a regular UTF-8 file of at most `most` bytes.
///
/// # Errors
/// Returns an error, without the path, if the file cannot be read, is not regular, is larger, or is not UTF-8.
pub fn read_to_string(path: &Path, most: u64) -> Result<String> {
    String::from_utf8(read(path, most)?).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Returns a new folder for one test.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("sgs-base-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn only_regular_files_are_read() {
        let folder = folder("irregular");
        let fifo = folder.join("fifo");
        let status = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(status.success());
        for path in [fifo.as_path(), Path::new("/dev/zero")] {
            let error = read(path, 10).unwrap_err();
            assert!(error.to_string().contains("replace it with a regular file"), "{error}");
            let mut options = File::options();
            assert!(open_with(options.read(true).write(true), path).is_err());
        }
        assert_eq!(read(&folder, 10).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(read(&folder.join("none"), 10).unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_is_read_up_to_the_limit() {
        let folder = folder("limit");
        let path = folder.join("text");
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(read_to_string(&path, 3).unwrap(), "abc");
        assert_eq!(read(&path, 2).unwrap_err().kind(), ErrorKind::FileTooLarge);
        std::fs::write(&path, b"\xff").unwrap();
        assert_eq!(read_to_string(&path, 3).unwrap_err().kind(), ErrorKind::InvalidData);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
