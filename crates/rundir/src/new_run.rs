//! The folder of a run that has not begun.

use crate::error::{Error, Result};
use sgs_base::temporary::{Extent, Temporary};
use std::path::Path;

/// The folder of a run that has not begun. Dropping it removes everything that the creation of the run has made, and so
/// does [`remove_all`](sgs_base::temporary::remove_all), unless [`NewRun::keep`] was called.
#[derive(Debug)]
#[must_use]
pub struct NewRun {
    folder: Temporary,
    /// The folders above it that did not exist, innermost first. They are removed after `folder`, if they are empty.
    above: Vec<Temporary>,
}

impl NewRun {
    /// Has `claim` create the folder at `path`, or take possession of an empty one. Nothing in it is removed if `claim`
    /// fails.
    pub(crate) fn create<T>(path: &Path, claim: impl FnOnce() -> Result<T>) -> Result<(Self, T)> {
        // `claim` reports a path that cannot be inspected.
        let is_missing = |path: &&Path| matches!(path.try_exists(), Ok(false));
        let above = path.ancestors().skip(1).take_while(|above| !above.as_os_str().is_empty());
        let missing: Vec<&Path> = above.take_while(is_missing).collect();
        // `remove_all` begins with what was registered last.
        let above =
            missing.into_iter().rev().map(|above| Temporary::new(above.to_path_buf(), Extent::IfEmpty));
        let mut above: Vec<Temporary> = above.collect();
        above.reverse();
        let extent = if is_missing(&path) { Extent::Whole } else { Extent::Contents };
        let (folder, claimed) = Temporary::create(|| Ok((path.to_path_buf(), extent, claim()?)))?;
        Ok((Self { folder, above }, claimed))
    }

    /// Keeps the folder, because the run has begun. From now on, only [`NewRun::remove`] removes it.
    pub fn keep(&mut self) {
        self.folder.keep();
        self.above.iter_mut().for_each(Temporary::keep);
    }

    /// Removes everything that the creation of the run has made, and all other files in its folder.
    pub fn remove(self) -> Result<()> {
        [self.folder].into_iter().chain(self.above).try_for_each(|made| {
            let path = made.path().to_path_buf();
            made.remove().map_err(Error::io("remove", &path))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn create(path: &Path) -> NewRun {
        let claim = || fs::create_dir_all(path).map_err(Error::io("create the folder", path));
        let (run, ()) = NewRun::create(path, claim).unwrap();
        fs::write(path.join("config.toml"), "").unwrap();
        run
    }

    #[test]
    fn only_what_was_made_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("a/b/run");
        drop(create(&run));
        assert!(!folder.path().join("a").exists());

        let made = create(&run);
        fs::write(folder.path().join("a/other"), "").unwrap();
        made.remove().unwrap();
        assert!(folder.path().join("a/other").exists() && !folder.path().join("a/b").exists());

        // A folder that existed remains.
        fs::create_dir_all(&run).unwrap();
        drop(create(&run));
        assert_eq!(fs::read_dir(&run).unwrap().count(), 0);

        let mut begun = create(&run);
        begun.keep();
        drop(begun);
        assert!(run.join("config.toml").exists());

        // Until the claim succeeds, the contents belong to another process.
        let refused = NewRun::create(&run, || Err::<(), _>(Error::NotARun { path: run.clone() }));
        assert!(refused.is_err() && run.join("config.toml").exists());
    }
}
