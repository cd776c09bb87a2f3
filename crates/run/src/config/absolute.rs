//! Makes the paths of a configuration absolute, so that a run can be resumed from any folder.

use super::system::is_shipped_set;
use super::{BaseSource, RunConfig, SHIPPED, SystemName};
use sgs_base::host::absolute;
use std::path::{Path, PathBuf};

impl RunConfig {
    /// Makes the paths of the configuration independent of the working directory. Records the working directory as the
    /// folder of an external system's processes, and the default folder of Lean as a path.
    #[must_use]
    pub fn absolute(mut self) -> Self {
        let (system, is_model) =
            (self.problems.system, matches!(self.model.base_source(), BaseSource::Folder(_)));
        let is_file = |set: &str| system == SystemName::External || !is_shipped_set(set);
        let endpoint = &mut self.sampling.endpoint;
        let mut paths = vec![&mut endpoint.folder, &mut endpoint.key_file, &mut endpoint.authority];
        if self.problems.database != SHIPPED {
            paths.push(&mut self.problems.database);
        }
        if is_file(&self.problems.set) {
            paths.push(&mut self.problems.set);
        }
        if self.evaluation.source().is_some_and(is_file) {
            paths.push(&mut self.evaluation.held_out);
        }
        if is_model {
            paths.push(&mut self.model.base);
        }
        if self.model.guide != "base" {
            paths.push(&mut self.model.guide);
        }
        if let Some(external) = &mut self.external {
            if external.folder.is_empty() {
                ".".clone_into(&mut external.folder);
            }
            paths.push(&mut external.folder);
            paths.extend(&mut external.read);
        }
        // An empty text means that there is no path.
        for path in paths.into_iter().filter(|path| !path.is_empty()) {
            *path = absolute(path);
        }
        if let Some(lean) = &mut self.lean {
            lean.root = absolute_path(&lean.root());
            lean.scratch = lean.scratch.as_deref().map(absolute_path);
        }
        self
    }
}

/// Makes a path absolute like [`absolute`].
fn absolute_path(path: &Path) -> PathBuf {
    path.to_str().map_or_else(|| path.to_owned(), |text| absolute(text).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sgs_external::ExternalSettings;
    use sgs_lean::LeanSettings;

    #[test]
    fn every_path_becomes_absolute() {
        let mut config = RunConfig::default();
        assert_eq!(config.clone().absolute(), config, "names of shipped sets and models are not paths");
        let here = std::env::current_dir().unwrap();
        let at = |name: &str| here.join(name).to_str().unwrap().to_owned();
        config.problems.set = "mine.jsonl".into();
        config.problems.database = "mine.mm".into();
        config.evaluation.held_out = "others.jsonl".into();
        config.model.base = "models/base".into();
        config.model.guide = "/models/guide".into();
        config.sampling.endpoint.folder = "weights".into();
        config.sampling.endpoint.key_file = "key".into();
        config.sampling.endpoint.folder_there = "on/the/servers".into();
        config.lean = Some(LeanSettings { scratch: Some("scratch".into()), ..LeanSettings::default() });
        config.external = Some(ExternalSettings { read: vec!["venv".into()], ..ExternalSettings::default() });
        let absolute = config.absolute();
        let RunConfig { problems, evaluation, model, sampling, .. } = &absolute;
        assert_eq!((&problems.set, &problems.database), (&at("mine.jsonl"), &at("mine.mm")));
        assert_eq!((&evaluation.held_out, &model.base), (&at("others.jsonl"), &at("models/base")));
        assert_eq!((&*model.guide, &sampling.endpoint.folder), ("/models/guide", &at("weights")));
        assert_eq!((&sampling.endpoint.key_file, &*sampling.endpoint.authority), (&at("key"), ""));
        assert_eq!(sampling.endpoint.folder_there, "on/the/servers", "it is a path of another machine");
        let (lean, external) = (absolute.lean.clone().unwrap(), absolute.external.clone().unwrap());
        assert_eq!((lean.root, lean.scratch), (here.join("lean-setup"), Some(here.join("scratch"))));
        assert_eq!((external.folder, external.read), (here.to_str().unwrap().to_owned(), vec![at("venv")]));
        assert_eq!(absolute.clone().absolute(), absolute);
    }
}
