//! What the coordinator lays out for its workers to read: small documents, and files as they stand on its disk.
//!
//! A worker that shares no file system with the coordinator gets from here what its tasks refer to. Names are looked
//! up as they are: no request reaches a file that was not laid out.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Debug)]
enum Item {
    Document(Arc<[u8]>),
    File(PathBuf),
}

/// Documents and files by name. Clones are handles on the same shelf.
#[derive(Clone, Debug, Default)]
pub struct Shelf(Arc<Mutex<BTreeMap<String, Item>>>);

/// A piece of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The bytes; none from the end on.
    pub bytes: Vec<u8>,
    /// Size of the whole item.
    pub total: u64,
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Item>> {
        // The map is whole after every statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lays out a document, in place of the one of that name if there is one.
    pub fn put(&self, name: &str, document: impl Into<Arc<[u8]>>) {
        self.lock().insert(name.to_owned(), Item::Document(document.into()));
    }

    /// Lays out a file. It is opened when somebody reads it, and must not change while it stands here.
    pub fn put_file(&self, name: &str, path: &Path) {
        self.lock().insert(name.to_owned(), Item::File(path.to_owned()));
    }

    /// Takes away every item for whose name `keep` is false.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.lock().retain(|name, _| keep(name));
    }

    /// Up to `most` bytes of an item from `from` on; `None` if there is no such item.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self, name: &str, from: u64, most: usize) -> io::Result<Option<Part>> {
        let item = self.lock().get(name).cloned();
        match item {
            None => Ok(None),
            Some(Item::Document(bytes)) => {
                let start = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
                let end = start.saturating_add(most).min(bytes.len());
                let part = bytes.get(start..end).unwrap_or_default();
                Ok(Some(Part { bytes: part.to_vec(), total: bytes.len() as u64 }))
            }
            Some(Item::File(path)) => {
                let mut file = File::open(path)?;
                let total = file.metadata()?.len();
                file.seek(SeekFrom::Start(from.min(total)))?;
                let mut bytes = Vec::new();
                file.take(most as u64).read_to_end(&mut bytes)?;
                Ok(Some(Part { bytes, total }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_in_parts_and_only_by_their_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("weights");
        std::fs::write(&path, b"0123456789").expect("writes");
        let shelf = Shelf::default();
        shelf.put_file("models/a", &path);
        shelf.put("sheet", &b"abc"[..]);
        let read = |name: &str, from, most| shelf.read(name, from, most).expect("reads");
        assert_eq!(read("models/a", 8, 5), Some(Part { bytes: b"89".to_vec(), total: 10 }));
        assert_eq!(read("models/a", 99, 5), Some(Part { bytes: Vec::new(), total: 10 }));
        assert_eq!(read("sheet", 1, 1), Some(Part { bytes: b"b".to_vec(), total: 3 }));
        assert_eq!(read(path.to_str().expect("text"), 0, 1), None);
        shelf.put("sheet", &b"new"[..]);
        shelf.retain(|name| !name.starts_with("models/"));
        assert_eq!(read("models/a", 0, 5), None);
        assert_eq!(read("sheet", 0, 9).expect("is there").bytes, b"new");
        std::fs::remove_file(&path).expect("removes");
        shelf.put_file("models/a", &path);
        assert!(shelf.read("models/a", 0, 1).is_err());
    }
}
