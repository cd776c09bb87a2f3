//! Documents and files that the coordinator publishes for its workers.
//!
//! A worker that shares no file system with the coordinator downloads the artifacts that its tasks refer to. Names are
//! looked up literally, so no request can reach a file that was not published.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Debug)]
enum Artifact {
    Document(Arc<[u8]>),
    File(PathBuf),
}

/// Published documents and files, by name. Clones share the same store.
#[derive(Clone, Debug, Default)]
pub struct ArtifactStore(Arc<Mutex<BTreeMap<String, Artifact>>>);

/// A range of bytes of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactChunk {
    /// The bytes. Empty at the end of the artifact.
    pub bytes: Vec<u8>,
    /// Size of the whole artifact, in bytes.
    pub total: u64,
}

impl ArtifactStore {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Artifact>> {
        // The map is consistent after every statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a document, and replaces the artifact of that name.
    pub fn put(&self, name: &str, document: impl Into<Arc<[u8]>>) {
        self.lock().insert(name.to_owned(), Artifact::Document(document.into()));
    }

    /// Publishes a file. It is opened for each read, and must not change while it is published.
    pub fn put_file(&self, name: &str, path: &Path) {
        self.lock().insert(name.to_owned(), Artifact::File(path.to_owned()));
    }

    /// Keeps only the artifacts for whose name `keep` returns true.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.lock().retain(|name, _| keep(name));
    }

    /// Reads up to `limit` bytes of an artifact, starting at `offset`. Returns `None` if there is no such artifact.
    pub fn read(&self, name: &str, offset: u64, limit: usize) -> io::Result<Option<ArtifactChunk>> {
        let artifact = self.lock().get(name).cloned();
        match artifact {
            None => Ok(None),
            Some(Artifact::Document(bytes)) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let end = start.saturating_add(limit).min(bytes.len());
                Ok(Some(ArtifactChunk { bytes: bytes[start..end].to_vec(), total: bytes.len() as u64 }))
            }
            Some(Artifact::File(path)) => {
                let mut file = File::open(path)?;
                let total = file.metadata()?.len();
                file.seek(SeekFrom::Start(offset.min(total)))?;
                let mut bytes = Vec::new();
                file.take(limit as u64).read_to_end(&mut bytes)?;
                Ok(Some(ArtifactChunk { bytes, total }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_are_read_in_chunks_and_only_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("weights");
        std::fs::write(&path, b"0123456789").expect("writes");
        let store = ArtifactStore::default();
        store.put_file("models/a", &path);
        store.put("manifest", &b"abc"[..]);
        let read = |name: &str, offset, limit| store.read(name, offset, limit).expect("reads");
        assert_eq!(read("models/a", 8, 5), Some(ArtifactChunk { bytes: b"89".to_vec(), total: 10 }));
        assert_eq!(read("models/a", 99, 5), Some(ArtifactChunk { bytes: Vec::new(), total: 10 }));
        assert_eq!(read("manifest", 1, 1), Some(ArtifactChunk { bytes: b"b".to_vec(), total: 3 }));
        assert_eq!(read(path.to_str().expect("text"), 0, 1), None);
        store.put("manifest", &b"new"[..]);
        store.retain(|name| !name.starts_with("models/"));
        assert_eq!(read("models/a", 0, 5), None);
        assert_eq!(read("manifest", 0, 9).expect("is there").bytes, b"new");
        std::fs::remove_file(&path).expect("removes");
        store.put_file("models/a", &path);
        assert!(store.read("models/a", 0, 1).is_err());
    }
}
