//! The run manifest: the settings of the run that a worker needs, as a JSON document served by the coordinator.

use crate::config::{RunConfig, SHIPPED, SystemName};
use crate::error::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sgs_base::digest::checksum_of;
use sgs_fleet::{Digest, FileName};
use sgs_lean::LeanSettings;
use sgs_metamath::slice::SLICE_SHA256;
use sgs_rundir::directories::{CHECKSUMS, checksum, listed_checksums};
use sgs_selfplay::Role;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Name of the manifest in the artifact store.
pub const NAME: &str = "run.json";

/// The information about a run that a worker needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunManifest {
    /// The coordinator's program version. Workers must have the same version.
    pub version: String,
    pub system: SystemName,
    /// Lean settings, if Lean is the formal system.
    #[serde(default)]
    pub lean: Option<LeanSettings>,
    /// Context of the run's first target. A worker tests its own checker with it.
    #[serde(default)]
    pub header: String,
    /// SHA-256 of the database shipped with the coordinator; empty if the run uses another database.
    pub slice: String,
    /// `cpu` or `cuda`.
    pub device: String,
    /// Sequences sampled at once per role.
    pub batch: usize,
    /// Memory for buffers and key/value cache per role, MiB.
    pub memory_mib: u64,
    /// Maximum context to load models with.
    pub positions: usize,
    /// Tokens that end a completion.
    pub stop: Vec<u32>,
    pub policy: PolicyManifest,
}

/// The weights of one policy version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyManifest {
    /// Number of rounds whose updates they have seen.
    pub policy_version: u32,
    /// The models of the roles that workers sample.
    pub models: BTreeMap<Role, ModelManifest>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelManifest {
    /// SHA-256 over names and contents. Equal ids mean equal models.
    pub id: Digest,
    /// Path on the coordinator's file system, for workers that share it.
    pub folder: PathBuf,
    /// The files that make up the model.
    pub files: Vec<ManifestFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    pub name: FileName,
    pub bytes: u64,
    pub sha256: Digest,
}

impl PolicyManifest {
    /// Returns the models, each once.
    pub fn distinct(&self) -> BTreeMap<&str, &ModelManifest> {
        self.models.values().map(|model| (model.id.as_str(), model)).collect()
    }

    /// Returns the digest of the models. Workers report it with each completion, so that samples of other weights are
    /// detected.
    pub fn policy_id(&self) -> String {
        let id = |(role, model): (&Role, &ModelManifest)| format!("{}={}", role.as_str(), model.id.as_str());
        let ids: Vec<String> = self.models.iter().map(id).collect();
        checksum_of(ids.join(" ").as_bytes()).chars().take(16).collect()
    }
}

impl ModelManifest {
    /// Describes a model folder. Uses the checksums of the checkpoint that it belongs to, if any.
    pub fn of(folder: &Path) -> Result<Self> {
        let folder =
            std::fs::canonicalize(folder).with_context(|| format!("the model {}", folder.display()))?;
        let listed = listed_sums(&folder);
        let mut files = Vec::new();
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !belongs(&name) {
                continue;
            }
            let sha256 = match listed.get(&name) {
                Some(sum) => sum.clone(),
                None => checksum(&entry.path())?,
            };
            let about = || format!("{}, a file of the model", entry.path().display());
            let name = FileName::new(&name).with_context(about)?;
            let sha256 = Digest::new(&sha256).with_context(about)?;
            files.push(ManifestFile { bytes: entry.metadata()?.len(), name, sha256 });
        }
        files.sort_by(|a: &ManifestFile, b| a.name.cmp(&b.name));
        ensure!(
            files.iter().any(|f| f.name.as_str().ends_with(".safetensors")),
            "{} has no model.safetensors",
            folder.display()
        );
        let text: String = files.iter().map(|f| format!("{}  {}\n", f.sha256, f.name)).collect();
        Ok(Self { id: Digest::new(&checksum_of(text.as_bytes()))?, folder, files })
    }

    /// Returns the name of a model file in the artifact store.
    pub fn artifact_name(&self, file: &ManifestFile) -> String {
        format!("models/{}/{}", self.id, file.name)
    }
}

/// Returns true for files needed for sampling: configuration and weights, but not optimizer state.
fn belongs(name: &str) -> bool {
    // The optimizer state has its own files.
    let weights = name.ends_with(".safetensors") && !name.starts_with("optimizer");
    let others = ["config.json", "generation_config.json", "model.safetensors.index.json"];
    // Leftovers of an interrupted process begin with a dot.
    !name.starts_with('.') && (weights || others.contains(&name))
}

/// Checksums by file name, if the folder belongs to a published checkpoint.
fn listed_sums(folder: &Path) -> BTreeMap<String, String> {
    let (Some(parent), Some(own)) = (folder.parent(), folder.file_name().and_then(|n| n.to_str())) else {
        return BTreeMap::new();
    };
    if !parent.join(CHECKSUMS).is_file() {
        return BTreeMap::new();
    }
    let listed = listed_checksums(parent).unwrap_or_default();
    let inside =
        |(name, sum): (String, String)| Some((name.strip_prefix(own)?.strip_prefix('/')?.to_owned(), sum));
    listed.into_iter().filter_map(inside).collect()
}

impl RunManifest {
    pub fn new(config: &RunConfig, header: &str, stop: &[u32], policy: PolicyManifest) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            system: config.problems.system,
            lean: config.lean.clone(),
            header: header.to_owned(),
            slice: if config.problems.database == SHIPPED { SLICE_SHA256.to_owned() } else { String::new() },
            device: config.model.device.clone(),
            batch: config.sampling.batch,
            memory_mib: config.sampling.memory_mib,
            positions: config.model.positions(),
            stop: stop.to_vec(),
            policy,
        }
    }

    /// Parses a manifest and checks the program version.
    ///
    /// # Errors
    /// Returns an error if the text is not a manifest or the coordinator's program differs.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            version: String,
        }
        let own = env!("CARGO_PKG_VERSION");
        let head: Head = serde_json::from_slice(bytes).context("the run's manifest")?;
        if head.version != own {
            bail!("the coordinator is sgs {}, this worker is sgs {own}: use the same program", head.version);
        }
        let manifest: Self = serde_json::from_slice(bytes).context(
            "the run's manifest has another format than in this build of sgs: use the same program",
        )?;
        if !manifest.slice.is_empty() && manifest.slice != SLICE_SHA256 {
            bail!("the coordinator ships with another slice of set.mm: use the same program");
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_models_have_equal_ids_wherever_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let make = |name: &str, weights: &[u8]| {
            let at = folder.path().join(name);
            std::fs::create_dir(&at).expect("makes");
            std::fs::write(at.join("config.json"), "{}").expect("writes");
            // This file can name other end tokens, and a worker needs the same configuration as the coordinator.
            std::fs::write(at.join("generation_config.json"), "{}").expect("writes");
            std::fs::write(at.join("model.safetensors"), weights).expect("writes");
            // Neither of these is needed for sampling.
            std::fs::write(at.join("optimizer-m.safetensors"), name).expect("writes");
            std::fs::write(at.join("tokenizer.json"), name).expect("writes");
            ModelManifest::of(&at).expect("a model")
        };
        let (a, b, c) = (make("a", b"1"), make("b", b"1"), make("c", b"2"));
        assert_eq!(a.id, b.id);
        assert_ne!(a.id, c.id);
        assert_eq!(
            a.files.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(),
            ["config.json", "generation_config.json", "model.safetensors"]
        );
        let policy = |solver: &ModelManifest| {
            let roles = [(Role::Solver, solver), (Role::Conjecturer, &c), (Role::Guide, &c)];
            let models = roles.map(|(role, model)| (role, model.clone())).into();
            PolicyManifest { policy_version: 1, models }
        };
        assert_eq!(policy(&a).policy_id(), policy(&b).policy_id());
        assert_ne!(policy(&a).policy_id(), policy(&c).policy_id());
        assert_eq!(policy(&a).distinct().len(), 2);
        std::fs::create_dir(folder.path().join("empty")).expect("makes");
        assert!(ModelManifest::of(&folder.path().join("empty")).is_err());
    }

    #[test]
    fn a_checkpoints_own_list_gives_the_sums() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().join("0003");
        sgs_rundir::directories::publish_directory(&at, |dir| {
            std::fs::create_dir(dir.join("solver"))?;
            std::fs::write(dir.join("solver/config.json"), "{}")?;
            Ok(std::fs::write(dir.join("solver/model.safetensors"), "weights")?)
        })
        .expect("publishes");
        let listed = ModelManifest::of(&at.join("solver")).expect("a model");
        std::fs::remove_file(at.join(CHECKSUMS)).expect("removes");
        assert_eq!(ModelManifest::of(&at.join("solver")).expect("a model"), listed, "the same as computed");
    }

    #[test]
    fn another_version_is_refused_by_name() {
        let error = RunManifest::read(b"{\"version\": \"9.9.9\", \"new\": 1}").expect_err("another version");
        assert!(error.to_string().contains("sgs 9.9.9"), "{error}");
        assert!(RunManifest::read(b"[]").is_err());
    }
}
