//! Keeps a generation worker's weights in step with the run: reads them from the run's checkpoints on a shared file
//! system, or fetches them from the coordinator.

use super::generate::RoleModels;
use super::manifest::{self, ManifestFile, ModelManifest, PolicyManifest, RunManifest};
use crate::error::{Context, Result, bail, ensure};
use crate::train::policies::beside;
use crate::workers::tasks::GenerateTask;
use sgs_base::digest::hex;
use sgs_base::parallel;
use sgs_fleet::{CallError, Client, StopFlag};
use sgs_formal::scratch::private_folder;
use sgs_lm::Device;
use sgs_lm::model::Model;
use sgs_rundir::directories::checksum;
use sgs_selfplay::Role;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Size of one chunk of a file, in bytes.
const PART: usize = 8 << 20;

/// Maximum number of files to fetch or hash at a time. One core computes the SHA-256 of about 1 GB/s.
const STREAMS: usize = 4;

/// Pause between two requests to the coordinator.
const PAUSE: Duration = Duration::from_millis(300);

/// First interval between repeated log messages. Each interval is twice the one before.
const WARNING: Duration = Duration::from_secs(60);

/// Attempts to fetch weights before the worker gives up.
const TRIES: u32 = 5;

/// Reads documents and files from the coordinator, with retries.
#[derive(Clone)]
pub struct WeightSource {
    pub client: Arc<Client>,
    /// How long the coordinator may be unreachable.
    pub patience: Duration,
    /// Asks the worker to stop, even while it waits.
    pub drain: StopFlag,
}

impl WeightSource {
    /// Waits for a manifest of `policy_version` or later.
    ///
    /// # Errors
    /// Returns an error if the coordinator rejects the request, stays unreachable, or does not reach that version.
    pub fn manifest(&self, policy_version: u32) -> Result<RunManifest> {
        self.until("the coordinator", || {
            let Some(bytes) = self.client.read_document(manifest::NAME)? else { return Ok(None) };
            let manifest = RunManifest::read(&bytes);
            let there =
                manifest.as_ref().map_or(true, |manifest| manifest.policy.policy_version >= policy_version);
            Ok(there.then_some(manifest))
        })?
    }

    /// Repeats a request until it gets a reply.
    fn until<T>(&self, what: &str, ask: impl FnMut() -> Result<Option<T>, CallError>) -> Result<T> {
        let mut ask = ask;
        let deadline = Instant::now() + self.patience;
        let (mut warning, mut pause) = (Instant::now(), WARNING);
        loop {
            let why = match ask() {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => "it is not there yet".to_owned(),
                Err(CallError::Unavailable(why)) => why,
                Err(error) => return Err(error).with_context(|| what.to_owned()),
            };
            if Instant::now() >= deadline {
                bail!("waited {} s for {what}: {why}", self.patience.as_secs());
            }
            if self.drain.is_set() {
                bail!("interrupted while waiting for {what}: {why}");
            }
            if Instant::now() >= warning {
                tracing::warn!("waiting for {what}: {why}");
                (warning, pause) = (Instant::now() + pause, 2 * pause);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Fetches a model into a folder, several files at a time.
    fn fetch(&self, model: &ModelManifest, folder: &Path) -> Result<()> {
        for_each_file(model, |file| self.fetch_file(model, file, &folder.join(file.name.as_str())))
    }

    /// Fetches a file. Each part is hashed and written while the next one arrives.
    fn fetch_file(&self, model: &ModelManifest, file: &ManifestFile, path: &Path) -> Result<()> {
        let mut out = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
        let (sender, parts) = sync_channel::<Vec<u8>>(1);
        let write = move || -> std::io::Result<String> {
            let mut hash = Sha256::new();
            for part in parts {
                hash.update(&part);
                out.write_all(&part)?;
            }
            Ok(hex(&hash.finalize()))
        };
        let (received, found) = beside(write, || self.receive(model, file, sender))?;
        let found = found.with_context(|| format!("cannot write {}", path.display()))?;
        received?;
        check_sum(path, file, &found)
    }

    /// Sends the parts of a file to `parts`, in order. Ends early if the receiver is gone.
    fn receive(&self, model: &ModelManifest, file: &ManifestFile, parts: SyncSender<Vec<u8>>) -> Result<()> {
        let name = model.artifact_name(file);
        let mut at = 0;
        while at < file.bytes {
            let part = self.until(&name, || match self.client.read_file(&name, at, PART)? {
                Some(part) => Ok(Some(part)),
                // The run has moved on to newer weights.
                None => Err(CallError::Refused(format!("{name} has been removed"))),
            })?;
            ensure!(
                !part.bytes.is_empty() && part.total == file.bytes,
                "{name} differs from its entry in the manifest"
            );
            at += part.bytes.len() as u64;
            if parts.send(part.bytes).is_err() {
                break;
            }
        }
        Ok(())
    }
}

fn check_files(model: &ModelManifest, folder: &Path) -> Result<()> {
    for_each_file(model, |file| {
        let path = folder.join(file.name.as_str());
        check_sum(&path, file, &checksum(&path)?)
    })
}

/// Calls `work` for each file of a model, on up to [`STREAMS`] threads, and returns the first error. After an error, no
/// other file is begun.
fn for_each_file(model: &ModelManifest, work: impl Fn(&ManifestFile) -> Result<()> + Sync) -> Result<()> {
    parallel::try_map(STREAMS, &model.files, work)?;
    Ok(())
}

fn check_sum(path: &Path, file: &ManifestFile, found: &str) -> Result<()> {
    let expected = &file.sha256;
    ensure!(
        found == expected.as_str(),
        "{} has SHA-256 {found}, but the manifest has {expected}",
        path.display()
    );
    Ok(())
}

/// The models of one policy version in a worker process.
pub struct SyncedWeights<D: Device> {
    source: WeightSource,
    device: Arc<D>,
    /// Folder for files that are being fetched; `None` for the system's temporary folder.
    scratch: Option<PathBuf>,
    policy: PolicyManifest,
    models: BTreeMap<String, Model<D>>,
}

impl<D: Device> SyncedWeights<D> {
    /// Loads the weights of a manifest.
    ///
    /// # Errors
    /// Returns an error if they can neither be read nor fetched, or do not match the manifest.
    pub fn load(
        source: WeightSource,
        device: Arc<D>,
        scratch: Option<PathBuf>,
        manifest: &RunManifest,
    ) -> Result<Self> {
        let policy = manifest.policy.clone();
        let mut followed = Self { source, device, scratch, models: BTreeMap::new(), policy };
        followed.follow(manifest.policy.policy_version)?;
        Ok(followed)
    }

    /// Switches to `policy_version`, or to a later one that the run has reached.
    ///
    /// # Errors
    /// Returns an error if the coordinator never offers it or the weights cannot be loaded. The worker cannot continue
    /// then.
    pub fn follow(&mut self, policy_version: u32) -> Result<()> {
        let mut tries = TRIES;
        loop {
            let manifest = self.source.manifest(policy_version)?;
            match self.exchange(&manifest) {
                Ok(()) => return Ok(()),
                // The run may have advanced while this worker fetched the weights.
                Err(error) if tries > 1 => tracing::warn!("trying again: {error:#}"),
                Err(error) => return Err(error),
            }
            tries -= 1;
            std::thread::sleep(PAUSE);
        }
    }

    fn exchange(&mut self, manifest: &RunManifest) -> Result<()> {
        let start = Instant::now();
        let wanted = manifest.policy.distinct();
        // Drop the old weights first, so that both are never in memory at the same time.
        self.models.retain(|id, _| wanted.contains_key(id.as_str()));
        for (id, model) in wanted {
            if !self.models.contains_key(id) {
                let loaded = self.read(model, manifest.positions)?;
                self.models.insert(id.to_owned(), loaded);
            }
        }
        self.policy = manifest.policy.clone();
        tracing::info!(
            policy_version = self.policy.policy_version,
            seconds = start.elapsed().as_secs_f64(),
            "weights loaded"
        );
        Ok(())
    }

    /// Reads a model from the coordinator's folder if this machine can access it, otherwise over the network.
    fn read(&self, model: &ModelManifest, positions: usize) -> Result<Model<D>> {
        let load = |folder: &Path| Ok(Model::load(Arc::clone(&self.device), folder, positions)?);
        if model.folder.is_dir() {
            // Verify the files while they are loaded, so that they are read from the disk only once.
            let (loaded, checked) = beside(|| check_files(model, &model.folder), || load(&model.folder))?;
            match checked.and(loaded) {
                Ok(loaded) => return Ok(loaded),
                Err(error) => tracing::warn!("{} is not used: {error:#}", model.folder.display()),
            }
        }
        // The folder is removed at the end of the block, because by then the weights are in memory or unusable.
        let folder = private_folder(self.scratch.as_deref(), "sgs-weights-")
            .context("cannot create a folder for the weights")?;
        self.source.fetch(model, folder.path())?;
        load(folder.path())
    }
}

impl<D: Device> RoleModels<D> for SyncedWeights<D> {
    fn policy_version(&self) -> u32 {
        self.policy.policy_version
    }

    fn model(&self, role: Role) -> Option<&Model<D>> {
        self.models.get(self.policy.models.get(&role)?.id.as_str())
    }

    fn policy_id(&self) -> String {
        self.policy.policy_id()
    }

    fn holds(&self, task: &GenerateTask) -> bool {
        task.policy_version == self.policy.policy_version && task.policy_id == self.policy.policy_id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sgs_fleet::{ArtifactStore, AuthToken, BoardConfig, Fleet, Service, ServiceConfig};
    use sgs_lm::ModelConfig;
    use sgs_lm::weights::{FileType, HostWeights};
    use sgs_lm_cpu::Cpu;

    fn model(folder: &Path, seed: u64) -> ModelManifest {
        std::fs::create_dir(folder).expect("makes");
        let weights = HostWeights::random(&ModelConfig::load(&shipped()).expect("a shape"), seed);
        weights.save(folder, FileType::F32).expect("saves");
        ModelManifest::of(folder).expect("a model")
    }

    fn shipped() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/metamath/base")
    }

    /// Serves artifacts; with TLS and a token if there is an `identity`.
    fn serve(artifacts: &ArtifactStore, identity: Option<&sgs_tls::Identity>) -> (Service, WeightSource) {
        let token = identity.map(|identity| {
            AuthToken::generate().expect("a token").with_fingerprint(Some(identity.fingerprint()))
        });
        let (tls, artifacts) = (identity.map(sgs_tls::Identity::server), artifacts.clone());
        let service = ServiceConfig { artifacts, tls, token: token.clone(), ..ServiceConfig::default() };
        let service = Service::start(Fleet::in_memory(BoardConfig::default()), service).expect("listens");
        let client = Client::new(&service.url("127.0.0.1"), token, None).expect("a client");
        let (client, patience, drain) = (Arc::new(client), Duration::from_secs(20), StopFlag::default());
        (service, WeightSource { client, patience, drain })
    }

    /// Publishes a policy whose folder no worker can access.
    fn lay_out(
        store: &ArtifactStore,
        policy_version: u32,
        solver: &ModelManifest,
        others: &ModelManifest,
    ) -> PolicyManifest {
        let hidden = |model: &ModelManifest| {
            for file in &model.files {
                store.put_file(&model.artifact_name(file), &model.folder.join(file.name.as_str()));
            }
            ModelManifest { folder: "/no/such/folder".into(), ..model.clone() }
        };
        let roles = [(Role::Solver, solver), (Role::Conjecturer, others), (Role::Guide, others)];
        let models = roles.map(|(role, model)| (role, hidden(model))).into();
        let policy = PolicyManifest { policy_version, models };
        let config =
            crate::config::resolve(&Default::default(), std::iter::empty()).expect("the default").config;
        let manifest = RunManifest::new(&config, "", &[0], policy.clone());
        store.put(manifest::NAME, serde_json::to_vec(&manifest).expect("JSON"));
        policy
    }

    #[test]
    fn weights_come_over_the_network_where_no_folder_is_shared() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let (old, new, base) = (model(&at("old"), 1), model(&at("new"), 2), model(&at("base"), 3));
        let store = ArtifactStore::default();
        let (_service, source) = serve(&store, None);
        let first = lay_out(&store, 1, &old, &base);
        let manifest = source.manifest(0).expect("a manifest");
        assert_eq!(manifest.policy, first);
        let device = Arc::new(Cpu::new(1).expect("a device"));
        let mut followed =
            SyncedWeights::load(source, device, Some(at("scratch")), &manifest).expect("loads");
        let holds = |followed: &SyncedWeights<Cpu>, role, folder: &Path| {
            let found = followed.model(role).expect("is there").to_host().expect("reads");
            found.data[..] == HostWeights::load(folder).expect("reads").data[..]
        };
        assert!(holds(&followed, Role::Solver, &at("old")) && holds(&followed, Role::Guide, &at("base")));
        lay_out(&store, 2, &new, &base);
        followed.follow(2).expect("follows");
        assert_eq!(followed.policy_version(), 2);
        assert!(
            holds(&followed, Role::Solver, &at("new")) && holds(&followed, Role::Conjecturer, &at("base"))
        );
        let left = std::fs::read_dir(at("scratch")).expect("is there").count();
        assert_eq!(left, 0, "files in memory have no copy on disk");

        // After a crash, a run can repeat an update and have other weights of the same version.
        let other = model(&at("other"), 4);
        let repeated = lay_out(&store, 2, &other, &base);
        let task = GenerateTask {
            role: Role::Solver,
            policy_version: 2,
            policy_id: repeated.policy_id(),
            prompt: vec![1],
            seeds: vec![1],
            max_new_tokens: 1,
            temperature: 1.0,
        };
        assert!(!followed.holds(&task));
        followed.follow(2).expect("follows");
        assert!(followed.holds(&task) && holds(&followed, Role::Solver, &at("other")));

        // A file that changed in transit or on the coordinator's disk is rejected.
        let path = at("old").join("model.safetensors");
        let mut bytes = std::fs::read(&path).expect("reads");
        *bytes.last_mut().expect("not empty") ^= 1;
        std::fs::write(&path, bytes).expect("writes");
        lay_out(&store, 3, &old, &base);
        let error = format!("{:#}", followed.follow(3).expect_err("damaged"));
        assert!(error.contains("model.safetensors") && error.contains("SHA-256"), "{error}");
    }

    #[test]
    fn a_name_from_the_network_leads_to_no_other_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let base = model(&at("base"), 3);
        let victim = at("victim");
        std::fs::create_dir(&victim).expect("makes");
        std::fs::write(victim.join("config.json"), "precious").expect("writes");
        let store = ArtifactStore::default();
        let (_service, source) = serve(&store, None);
        lay_out(&store, 1, &base, &base);
        let honest = store.read(manifest::NAME, 0, 1 << 20).expect("reads").expect("is there").bytes;
        let honest = String::from_utf8(honest).expect("text");
        let device = Arc::new(Cpu::new(1).expect("a device"));
        let manifest = RunManifest::read(honest.as_bytes()).expect("a manifest");
        for id in ["../victim", &victim.display().to_string(), &format!("../{}", "a".repeat(61))] {
            let text = honest.replace(base.id.as_str(), id);
            assert_ne!(text, honest);
            store.put(manifest::NAME, text.into_bytes());
            let device = Arc::clone(&device);
            let mut followed = SyncedWeights {
                source: source.clone(),
                device,
                scratch: Some(at("scratch")),
                policy: manifest.policy.clone(),
                models: BTreeMap::new(),
            };
            // The files exist under other names.
            for file in &base.files {
                let path = base.folder.join(file.name.as_str());
                store.put_file(&format!("models/{id}/{}", file.name), &path);
            }
            let error = format!("{:#}", followed.follow(1).expect_err("no name of a model"));
            assert!(error.contains("64 hexadecimal digits"), "{error}");
        }
        let kept = std::fs::read_to_string(victim.join("config.json")).expect("is there still");
        assert_eq!(kept, "precious");
        for name in ["../config.json", "/etc/hostname", ".config.json"] {
            let text = honest.replace("\"config.json\"", &format!("{name:?}"));
            assert!(text != honest && RunManifest::read(text.as_bytes()).is_err(), "{name}");
        }
    }

    /// Runs `work` and returns its rate for `bytes` bytes, in GB/s.
    fn rate(bytes: u64, work: impl FnOnce()) -> f64 {
        let start = Instant::now();
        work();
        bytes as f64 / start.elapsed().as_secs_f64() / 1e9
    }

    /// Sends a file over a connection of loopback, without TLS, and discards it.
    fn send_plainly(path: &Path) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
        let mut to =
            std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
        let (mut from, _) = listener.accept().expect("accepts");
        let mut file = File::open(path).expect("opens");
        std::thread::scope(|scope| {
            scope.spawn(move || std::io::copy(&mut from, &mut std::io::sink()).expect("receives"));
            std::io::copy(&mut file, &mut to).expect("sends");
            drop(to);
        });
    }

    /// Writes a file in blocks of the size that `fetch` writes.
    fn write_plainly(path: &Path, bytes: u64) {
        let block: Vec<u8> = (0..PART).map(|i| (i * 2_654_435_761) as u8).collect();
        let mut file = File::create(path).expect("creates");
        for _ in 0..bytes / PART as u64 {
            file.write_all(&block).expect("writes");
        }
    }

    #[test]
    #[ignore = "a measurement: needs SGS_TRANSFER_GB gigabytes in SGS_TRANSFER_FROM and in TMPDIR"]
    fn weights_arrive_at_the_rate_of_the_disk_or_the_link() {
        let gigabytes: u64 = std::env::var("SGS_TRANSFER_GB").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
        let from = std::env::var_os("SGS_TRANSFER_FROM").map_or_else(std::env::temp_dir, PathBuf::from);
        let (from, to) =
            (tempfile::tempdir_in(from).expect("a folder"), tempfile::tempdir().expect("a folder"));
        let bytes = gigabytes * 1_000_000_000 / PART as u64 * PART as u64;
        let source = from.path().join("model.safetensors");
        write_plainly(&source, bytes);
        let disk = rate(bytes, || write_plainly(&to.path().join("plain"), bytes));
        std::fs::remove_file(to.path().join("plain")).expect("removes");
        let link = rate(bytes, || send_plainly(&source));
        let hash = rate(bytes, || drop(checksum(&source).expect("reads")));

        // As in a run, no file has more than a gigabyte.
        std::fs::remove_file(&source).expect("removes");
        for shard in 0..gigabytes {
            let shard = format!("model-{:05}-of-{gigabytes:05}.safetensors", shard + 1);
            write_plainly(&from.path().join(shard), bytes / gigabytes);
        }
        let manifest = ModelManifest::of(from.path()).expect("a model");
        let artifacts = ArtifactStore::default();
        for file in &manifest.files {
            artifacts.put_file(&manifest.artifact_name(file), &manifest.folder.join(file.name.as_str()));
        }
        let identity = sgs_tls::Identity::from_secret("the secret of this measurement");
        let (_service, source) = serve(&artifacts, Some(&identity));
        let fetched = rate(bytes, || source.fetch(&manifest, to.path()).expect("fetches"));
        println!(
            "{gigabytes} GB in GB/s: fetched {fetched:.2}, written {disk:.2}, sent {link:.2}, hashed {hash:.2}"
        );
        assert!(fetched >= 0.8 * disk.min(link));
    }
}
