//! A process group: rendezvous, small messages among the ranks, and failure detection.
//!
//! Rank 0 listens; every other rank connects to it over TLS. The key of every listening rank is derived from the token,
//! so a rank sends the token only to a rank that has it. These connections carry small messages and one heartbeat per
//! second. If a connection closes or is silent for too long, its rank is lost: rank 0
//! notifies all others, every pending wait of every rank returns an error that names the lost rank, and
//! [`ProcessGroup::on_loss`] interrupts operations that block elsewhere (data sockets, NCCL).

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sgs_tls::{Identity, TlsStream};
use subtle::ConstantTimeEq as _;

use super::greeting::greet;
use crate::error::{LmError, Result};

/// Interval between heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Silence after which a rank counts as lost.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time that leaving waits for the others to be notified.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum size of the first message, which can come from any client.
const MAX_HELLO: usize = 1 << 14;
/// Maximum size of a message among ranks.
const MAX_MESSAGE: usize = 1 << 28;
/// Identifies the protocol in the first message.
const MAGIC: &str = "sgs-ranks-3";

/// Where the ranks find rank 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rendezvous {
    /// Rank 0 listens on this `HOST:PORT`.
    Address(String),
    /// Rank 0 listens on any free port of this machine and writes the address to this file.
    File(PathBuf),
}

impl fmt::Display for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => f.write_str(address),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// A process's rank and how it joins its process group.
#[derive(Clone)]
pub struct RankConfig {
    /// This process's rank, from 0.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// Where the ranks meet.
    pub rendezvous: Rendezvous,
    /// Secret that all ranks share; never printed.
    pub token: String,
    /// Describes the training and its settings, identically for all ranks. A rank with a different job is rejected.
    pub job: String,
    /// Name of this machine, for error messages.
    pub host: String,
    /// This process's log file, for error messages.
    pub log: Option<PathBuf>,
    /// Maximum time to wait for another rank to connect or to answer.
    pub patience: Duration,
    /// Time after the loss of a rank at which the process exits if it is still running, because a call into a
    /// driver may never return.
    pub exit_after_loss: Option<Duration>,
}

impl fmt::Debug for RankConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} at {}", self.rank, self.ranks, self.rendezvous)
    }
}

/// Information about a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankInfo {
    /// Index of the rank, from 0.
    pub rank: usize,
    /// Name of its host.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// Its log file, if it has one.
    pub log: Option<PathBuf>,
    /// Where the rank accepts connections of other ranks.
    pub address: SocketAddr,
}

impl fmt::Display for RankInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} (host {}, process {}", self.rank, self.host, self.pid)?;
        if let Some(log) = &self.log {
            write!(f, ", log {}", log.display())?;
        }
        f.write_str(")")
    }
}

/// The first message on a connection.
#[derive(Serialize, Deserialize)]
struct Hello {
    magic: String,
    token: String,
    job: String,
    ranks: usize,
    /// Rank 0 replaces the IP address by the one that the connection comes from.
    member: RankInfo,
}

/// Kinds of messages.
pub(super) mod kind {
    pub const HELLO: u8 = 1;
    pub const WELCOME: u8 = 2;
    pub const REFUSED: u8 = 3;
    pub const HEARTBEAT: u8 = 4;
    pub const VALUES: u8 = 5;
    pub const BYTES: u8 = 6;
    pub const LOST: u8 = 7;
    pub const BYE: u8 = 8;
    pub const ORDER: u8 = 9;
    pub const ANSWER: u8 = 10;
}

fn send(mut to: &TlsStream, kind: u8, payload: &[u8]) -> io::Result<()> {
    let mut message = Vec::with_capacity(5 + payload.len());
    message.push(kind);
    message.extend((payload.len() as u32).to_le_bytes());
    message.extend(payload);
    to.write_all(&message)
}

fn receive(mut from: impl Read, most: usize) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if len > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {len} bytes")));
    }
    let mut payload = vec![0; len];
    from.read_exact(&mut payload)?;
    Ok((head[0], payload))
}

/// Compares two secrets in a time that depends only on their lengths.
pub(super) fn same_token(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

pub(super) fn rank_error(message: impl Into<String>) -> LmError {
    LmError::Rank { message: message.into() }
}

/// State that all threads of a process group share.
pub(super) struct GroupLinks {
    state: Mutex<GroupState>,
    changed: Condvar,
    /// Connections by rank: rank 0 has one to every other rank, the others only one to rank 0.
    links: Vec<Option<Mutex<Arc<TlsStream>>>>,
    rank: usize,
    pub(super) members: Vec<RankInfo>,
}

#[derive(Default)]
pub(super) struct GroupState {
    lost: Option<String>,
    /// Answers to the last command, by rank; empty if it succeeded.
    pub(super) answers: BTreeMap<usize, Vec<u8>>,
    /// Whether the other ranks have been notified of the loss.
    peers_notified: bool,
    /// Number of connections that are still being read.
    open_readers: usize,
    /// Whether this rank has left the group.
    left: bool,
    /// Whether everything that was connected through the group is closed as well.
    dropped: bool,
    loss_callbacks: Vec<Box<dyn FnOnce() + Send>>,
}

impl GroupLinks {
    pub(super) fn state(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[allow(clippy::expect_used, reason = "a message that is not sent must stop the program")]
    fn send_to(&self, rank: usize, kind: u8, payload: &[u8]) -> io::Result<()> {
        let link = self.links[rank].as_ref().expect("invariant: messages go between rank 0 and the others");
        send(&link.lock().unwrap_or_else(PoisonError::into_inner), kind, payload)
    }

    fn send_to_all(&self, kind: u8, payload: &[u8]) {
        for rank in (0..self.links.len()).filter(|rank| self.links[*rank].is_some()) {
            // If a rank does not accept the message, the thread that reads its connection detects the loss.
            let _ = self.send_to(rank, kind, payload);
        }
    }

    /// Records the first loss, notifies the other ranks and interrupts blocked operations.
    fn lose(&self, what: String) {
        let mut state = self.state();
        if state.lost.is_some() || state.left {
            return;
        }
        state.lost = Some(what.clone());
        let loss_callbacks = std::mem::take(&mut state.loss_callbacks);
        drop(state);
        self.changed.notify_all();
        self.send_to_all(kind::LOST, what.as_bytes());
        self.state().peers_notified = true;
        self.changed.notify_all();
        loss_callbacks.into_iter().for_each(|stop| stop());
    }

    /// Notifies all ranks that this one has failed, and why.
    pub(super) fn fail(&self, why: &str) {
        self.lose(format!("{} failed: {why}", self.members[self.rank]));
    }

    /// Sends a message to a rank; if that fails, the rank is lost.
    pub(super) fn post(&self, rank: usize, kind: u8, payload: &[u8]) -> Result<()> {
        let sent = self.send_to(rank, kind, payload);
        sent.map_err(|e| self.lost(format!("{} does not accept messages: {e}", self.members[rank])))
    }

    /// Returns the error to report: the recorded loss, if any; otherwise `otherwise`, which is then recorded as
    /// the loss. The first failure on this rank is often only a consequence of another, so this function waits
    /// briefly for a report of the cause.
    pub(super) fn lost(&self, otherwise: String) -> LmError {
        let state = self.wait_until(Duration::from_secs(3), |s| s.lost.is_some());
        let known = state.lost.clone();
        drop(state);
        if known.is_none() {
            self.lose(otherwise.clone());
        }
        rank_error(known.unwrap_or(otherwise))
    }

    /// Returns an error if a rank is lost.
    pub(super) fn check(&self) -> Result<()> {
        match &self.state().lost {
            Some(what) => Err(rank_error(what.clone())),
            None => Ok(()),
        }
    }

    /// Waits until a condition holds, a rank is lost, or the time limit expires.
    pub(super) fn wait_unless_lost(
        &self,
        limit: Duration,
        holds: impl Fn(&GroupState) -> bool,
    ) -> MutexGuard<'_, GroupState> {
        self.wait_until(limit, |state| state.lost.is_some() || holds(state))
    }

    /// Waits until a condition holds or the time limit expires.
    fn wait_until(&self, limit: Duration, holds: impl Fn(&GroupState) -> bool) -> MutexGuard<'_, GroupState> {
        let waited = self.changed.wait_timeout_while(self.state(), limit, |state| !holds(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A message for the training thread.
pub(super) struct GroupMessage {
    from: usize,
    kind: u8,
    pub(super) payload: Vec<u8>,
}

/// The ranks of a training run, as seen by one of them.
pub struct ProcessGroup {
    config: RankConfig,
    shared: Arc<GroupLinks>,
    inbox: Receiver<GroupMessage>,
    /// The key that every rank derives from the token.
    pub(super) identity: Identity,
    /// Accepts data connections of other ranks.
    pub(super) listener: TcpListener,
    turn: u64,
    /// Bytes of gradients and weights that the ranks have combined.
    combined: u64,
    finished: bool,
    left: bool,
}

impl fmt::Debug for ProcessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessGroup")
            .field("config", &self.config)
            .field("members", &self.shared.members)
            .finish()
    }
}

impl ProcessGroup {
    /// Connects to the other ranks; returns when all are connected.
    ///
    /// # Errors
    /// Returns an error if the address cannot be used, or if a rank (which the error names) does not connect in
    /// time, sends a different token, or has a different job.
    pub fn join(config: RankConfig) -> Result<Self> {
        if config.ranks == 0 || config.rank >= config.ranks {
            let (rank, ranks) = (config.rank, config.ranks);
            return Err(rank_error(format!("there is no rank {rank} of {ranks}: ranks count from 0")));
        }
        if config.token.is_empty() {
            let hint = "ranks need a token: give all the same --token-file, SGS_TOKEN or SGS_TOKEN_FILE";
            return Err(rank_error(hint));
        }
        let deadline = Instant::now() + config.patience;
        let identity = Identity::from_secret(&config.token);
        if config.rank == 0 {
            Self::accept_ranks(config, identity, deadline)
        } else {
            Self::connect_to_rank_0(config, identity, deadline)
        }
    }

    /// Accepts the connections of all other ranks. Called by rank 0.
    fn accept_ranks(config: RankConfig, identity: Identity, deadline: Instant) -> Result<Self> {
        let fail =
            |what: String| rank_error(format!("rank 0 cannot listen on {}: {what}", config.rendezvous));
        let server = bind(&config.rendezvous).map_err(|e| fail(e.to_string()))?;
        let address = server.local_addr().map_err(|e| fail(e.to_string()))?;
        let listener = TcpListener::bind((address.ip(), 0)).map_err(|e| fail(e.to_string()))?;
        if let Rendezvous::File(path) = &config.rendezvous {
            let tmp = path.with_extension("tmp");
            let written = std::fs::write(&tmp, address.to_string());
            written.and_then(|()| std::fs::rename(&tmp, path)).map_err(LmError::io(path))?;
        }
        let own =
            SocketAddr::new(address.ip(), listener.local_addr().map_err(|e| fail(e.to_string()))?.port());
        let mut members: Vec<Option<RankInfo>> = vec![None; config.ranks];
        let mut links: Vec<Option<Arc<TlsStream>>> = vec![None; config.ranks];
        members[0] = Some(config.member(own));
        if config.ranks > 1 {
            let greeted = greet(
                &server,
                &identity,
                deadline,
                |stream| receive(stream, MAX_HELLO),
                |from, stream, hello| {
                    match config.admit(hello, &links) {
                        Ok(Hello { mut member, .. }) => {
                            let rank = member.rank;
                            member.address.set_ip(from.ip());
                            members[rank] = Some(member);
                            links[rank] = Some(Arc::new(stream));
                            links.iter().skip(1).all(Option::is_some).then_some(Ok(()))
                        }
                        // An unknown client is ignored.
                        Err(JoinError::UnknownClient) => None,
                        // A rank with the wrong configuration ends the start for all ranks.
                        Err(JoinError::Mismatch(why)) => {
                            let _ = send(&stream, kind::REFUSED, why.as_bytes());
                            for link in links.iter().flatten() {
                                let _ = send(link, kind::REFUSED, why.as_bytes());
                            }
                            Some(Err(rank_error(why)))
                        }
                    }
                },
            );
            greeted.map_err(|e| match e.kind() {
                io::ErrorKind::TimedOut => rank_error(format!(
                    "waited {} s at {} for {}: did every rank start, with the same rendezvous?",
                    config.patience.as_secs(),
                    config.rendezvous,
                    names(
                        links.iter().enumerate().skip(1).filter(|link| link.1.is_none()).map(|link| link.0)
                    )
                )),
                _ => fail(e.to_string()),
            })??;
        }
        let mut members: Vec<RankInfo> = members.into_iter().flatten().collect();
        welcome(&mut members, &links)?;
        Self::start_threads(config, identity, members, links, listener)
    }

    /// Connects to rank 0. Called by every other rank.
    fn connect_to_rank_0(config: RankConfig, identity: Identity, deadline: Instant) -> Result<Self> {
        let socket = config.reach(deadline)?;
        let fail = |e: io::Error| rank_error(format!("cannot join rank 0 at {}: {e}", config.rendezvous));
        let own = socket.local_addr().map_err(fail)?.ip();
        let left = deadline.saturating_duration_since(Instant::now()).max(HEARTBEAT_INTERVAL);
        socket.set_read_timeout(Some(left)).map_err(fail)?;
        let stream = TlsStream::connect(socket, identity.fingerprint()).map_err(|e| {
            let at = &config.rendezvous;
            if sgs_tls::is_untrusted(&e) {
                rank_error(format!("rank 0 at {at} has another token than this rank: give both the same"))
            } else {
                fail(e)
            }
        })?;
        let listener = TcpListener::bind((own, 0)).map_err(fail)?;
        let hello = config.hello(listener.local_addr().map_err(fail)?);
        let hello = serde_json::to_vec(&hello).map_err(|e| rank_error(format!("the first message: {e}")))?;
        send(&stream, kind::HELLO, &hello).map_err(fail)?;
        match receive(&stream, MAX_MESSAGE) {
            Ok((kind::WELCOME, payload)) => {
                let members = config.members(&payload)?;
                let mut links: Vec<Option<Arc<TlsStream>>> = vec![None; config.ranks];
                links[0] = Some(Arc::new(stream));
                Self::start_threads(config, identity, members, links, listener)
            }
            Ok((kind::REFUSED, why)) => Err(rank_error(String::from_utf8_lossy(&why).into_owned())),
            Ok(_) => Err(rank_error(format!("{} is not rank 0 of a training run", config.rendezvous))),
            Err(e) if is_late(&e) => Err(rank_error(format!(
                "waited {} s at {} for the other ranks: did every rank start?",
                config.patience.as_secs(),
                config.rendezvous
            ))),
            Err(e) => Err(rank_error(format!(
                "rank 0 at {} closed the connection ({e}): it failed",
                config.rendezvous
            ))),
        }
    }

    /// Starts the threads that read connections and send heartbeats.
    fn start_threads(
        config: RankConfig,
        identity: Identity,
        members: Vec<RankInfo>,
        links: Vec<Option<Arc<TlsStream>>>,
        listener: TcpListener,
    ) -> Result<Self> {
        let fail = |e: io::Error| rank_error(format!("starting rank {}: {e}", config.rank));
        let mut readers = Vec::new();
        for (rank, link) in links.iter().enumerate() {
            if let Some(link) = link {
                let socket = link.socket();
                socket.set_nodelay(true).map_err(fail)?;
                socket.set_read_timeout(Some(SILENCE_TIMEOUT)).map_err(fail)?;
                socket.set_write_timeout(Some(SILENCE_TIMEOUT)).map_err(fail)?;
                readers.push((rank, Arc::clone(link)));
            }
        }
        let links = links.into_iter().map(|link| link.map(Mutex::new)).collect();
        let shared = Arc::new(GroupLinks {
            state: Mutex::default(),
            changed: Condvar::new(),
            links,
            rank: config.rank,
            members,
        });
        let (outbox, inbox) = mpsc::channel();
        for (rank, link) in readers {
            let (shared, outbox) = (Arc::clone(&shared), outbox.clone());
            let reader = thread::Builder::new().name(format!("rank-{rank}"));
            shared.state().open_readers += 1;
            let reading = move || {
                read_messages(&shared, rank, &*link, &outbox);
                shared.state().open_readers -= 1;
                shared.changed.notify_all();
            };
            reader.spawn(reading).map_err(fail)?;
        }
        let (of_heartbeat, exit_after) = (Arc::clone(&shared), config.exit_after_loss);
        let heartbeat = thread::Builder::new().name("rank-heartbeat".to_owned());
        heartbeat.spawn(move || send_heartbeats(&of_heartbeat, exit_after)).map_err(fail)?;
        Ok(Self {
            config,
            shared,
            inbox,
            identity,
            listener,
            turn: 0,
            combined: 0,
            finished: false,
            left: false,
        })
    }

    /// Returns this process's rank.
    pub fn rank(&self) -> usize {
        self.config.rank
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.config.ranks
    }

    /// Returns all ranks, in order.
    pub fn members(&self) -> &[RankInfo] {
        &self.shared.members
    }

    /// Returns the address of this machine on which the rank accepts connections of the others.
    pub fn listening_ip(&self) -> Result<IpAddr> {
        let address = self.listener.local_addr();
        address.map(|address| address.ip()).map_err(|e| rank_error(format!("the address of this rank: {e}")))
    }

    pub(super) fn config(&self) -> &RankConfig {
        &self.config
    }

    /// Registers a callback for the loss of a rank; it is called immediately if a rank is already lost. The
    /// callback must interrupt operations that block this rank.
    pub fn on_loss(&self, stop: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state();
        if state.lost.is_none() {
            state.loss_callbacks.push(Box::new(stop));
        } else {
            drop(state);
            stop();
        }
    }

    /// Returns the numbers of every rank, in the order of ranks. All ranks must pass the same number of values.
    ///
    /// # Errors
    /// Returns an error if a rank is lost, silent for longer than the configured time, or out of step.
    pub fn exchange(&mut self, values: &[f64]) -> Result<Vec<Vec<f64>>> {
        self.turn += 1;
        let own: Vec<u8> =
            self.turn.to_le_bytes().into_iter().chain(values.iter().flat_map(|v| v.to_le_bytes())).collect();
        let ranks = self.config.ranks;
        let mut table: Vec<Vec<u8>> = vec![Vec::new(); ranks];
        if self.config.rank == 0 {
            table[0] = own;
            while let Some(waiting) = (1..ranks).find(|rank| table[*rank].is_empty()) {
                let message = self.message(kind::VALUES, waiting)?;
                table[message.from] = message.payload;
            }
            self.deliver(kind::VALUES, &table.concat())?;
        } else {
            self.post(0, kind::VALUES, &own)?;
            let whole = self.message(kind::VALUES, 0)?.payload;
            let share = whole.len() / ranks;
            table = whole.chunks(share.max(1)).map(<[u8]>::to_vec).collect();
        }
        let rows = self.config.rows(self.turn, values.len(), table.iter().map(Vec::as_slice));
        rows.ok_or_else(|| self.lost(format!("the ranks are out of step at exchange {}", self.turn)))
    }

    /// Records that gradients or weights of this many bytes are summed or gathered.
    pub(crate) fn combine(&mut self, bytes: usize) {
        self.combined += bytes as u64;
    }

    /// Returns the number of bytes of gradients and weights that this rank has sent so far. It sends each buffer except
    /// its own share.
    pub fn sent_bytes(&self) -> u64 {
        self.combined / self.config.ranks as u64 * (self.config.ranks as u64 - 1)
    }

    /// Sums the numbers over all ranks, in place.
    pub fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        let rows = self.exchange(values)?;
        for (i, value) in values.iter_mut().enumerate() {
            *value = rows.iter().map(|row| row[i]).sum();
        }
        Ok(())
    }

    /// Waits until every rank has reached this call.
    pub fn barrier(&mut self) -> Result<()> {
        self.exchange(&[]).map(|_| ())
    }

    /// Sends rank 0's bytes to all ranks.
    pub fn broadcast(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        if self.config.rank == 0 {
            self.deliver(kind::BYTES, bytes)?;
            return Ok(bytes.to_vec());
        }
        Ok(self.message(kind::BYTES, 0)?.payload)
    }

    /// Runs an action that must succeed on all ranks: a failure on any rank is an error on every rank.
    ///
    /// # Errors
    /// Returns an error if `act` failed on any rank, or in the same cases as [`ProcessGroup::exchange`].
    pub fn together<T>(&mut self, what: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let done = act();
        let failed = self.exchange(&[f64::from(u8::from(done.is_err()))])?;
        let done = done?;
        match failed.iter().position(|row| row[0] != 0.0) {
            Some(rank) => Err(rank_error(format!("{what} failed on {}", self.shared.members[rank]))),
            None => Ok(done),
        }
    }

    /// Marks this rank's work as done, so that it can leave without being reported as lost.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Returns whether [`ProcessGroup::finish`] was called.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Notifies all ranks that this one has failed, and why.
    pub fn fail(&self, why: &str) {
        self.shared.fail(why);
    }

    /// Returns the error to report after a failure: the recorded loss of a rank, if any; otherwise `otherwise`,
    /// which is then recorded as the loss.
    pub fn lost(&self, otherwise: String) -> LmError {
        self.shared.lost(otherwise)
    }

    /// Returns an error if a rank is lost.
    pub fn check(&self) -> Result<()> {
        self.shared.check()
    }

    fn post(&self, rank: usize, kind: u8, payload: &[u8]) -> Result<()> {
        self.shared.post(rank, kind, payload)
    }

    /// Returns the state shared with [`super::CommandChannel`].
    pub(super) fn shared(&self) -> &Arc<GroupLinks> {
        &self.shared
    }

    fn deliver(&self, kind: u8, payload: &[u8]) -> Result<()> {
        (1..self.config.ranks).try_for_each(|rank| self.post(rank, kind, payload))
    }

    /// Waits for the next message; the error of a timeout names the rank `from`.
    pub(super) fn message(&self, kind: u8, from: usize) -> Result<GroupMessage> {
        let patience = self.config.patience;
        self.message_within(kind, patience)?.ok_or_else(|| {
            let who = &self.shared.members[from];
            self.lost(format!("waited {} s for an answer from {who}", patience.as_secs()))
        })
    }

    /// Waits for the next message. Returns `None` if none arrives in time or if all other ranks have left.
    pub(super) fn message_within(&self, kind: u8, patience: Duration) -> Result<Option<GroupMessage>> {
        let since = Instant::now();
        loop {
            self.check()?;
            // Wait briefly, so that this thread notices a loss soon.
            match self.inbox.recv_timeout(Duration::from_millis(100)) {
                Ok(message) if message.kind == kind => return Ok(Some(message)),
                Ok(message) => {
                    let who = &self.shared.members[message.from];
                    return Err(
                        self.lost(format!("{who} is out of step: message {} for {kind}", message.kind))
                    );
                }
                Err(RecvTimeoutError::Timeout) if since.elapsed() < patience => {}
                Err(_) => return self.check().map(|()| None),
            }
        }
    }
}

impl ProcessGroup {
    /// Leaves the group and notifies the other ranks: of a normal end if [`ProcessGroup::finish`] was called, otherwise
    /// of a failure. Dropping the group does the same, but that is too late for code that first waits for the other
    /// ranks to leave.
    pub fn leave(&mut self) {
        if std::mem::replace(&mut self.left, true) {
            return;
        }
        if !self.finished {
            self.fail("it stopped before its work was done");
        }
        // Wait until the others are notified, because a process that exits now could lose the message.
        let mut state = self.shared.wait_until(LEAVE_TIMEOUT, |s| s.lost.is_none() || s.peers_notified);
        state.left = true;
        let orderly = state.lost.is_none();
        drop(state);
        self.shared.changed.notify_all();
        if orderly {
            self.shared.send_to_all(kind::BYE, &[]);
        }
        for link in self.shared.links.iter().flatten() {
            let link = link.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = link.socket().shutdown(std::net::Shutdown::Write);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.leave();
        // Closing a connection that has unread data would discard the data that was just sent.
        drop(self.shared.wait_until(LEAVE_TIMEOUT, |s| s.open_readers == 0));
        self.shared.state().dropped = true;
        self.shared.changed.notify_all();
    }
}

/// Why a connection is rejected.
enum JoinError {
    UnknownClient,
    Mismatch(String),
}

impl RankConfig {
    fn hello(&self, address: SocketAddr) -> Hello {
        let (magic, token, job) = (MAGIC.to_owned(), self.token.clone(), self.job.clone());
        Hello { magic, token, job, ranks: self.ranks, member: self.member(address) }
    }

    fn member(&self, address: SocketAddr) -> RankInfo {
        let (host, log) = (self.host.clone(), self.log.clone());
        RankInfo { rank: self.rank, host, pid: std::process::id(), log, address }
    }

    /// Parses rank 0's table of all ranks.
    fn members(&self, payload: &[u8]) -> Result<Vec<RankInfo>> {
        let members: Vec<RankInfo> =
            serde_json::from_slice(payload).map_err(|e| rank_error(format!("the table of ranks: {e}")))?;
        if !members.iter().map(|member| member.rank).eq(0..self.ranks) {
            return Err(rank_error(format!(
                "the table of ranks does not name the ranks 0 to {}",
                self.ranks - 1
            )));
        }
        Ok(members)
    }

    /// Parses the values of an exchange, one row per rank. Returns `None` if the ranks are out of step.
    fn rows<'r>(
        &self,
        turn: u64,
        values: usize,
        rows: impl Iterator<Item = &'r [u8]>,
    ) -> Option<Vec<Vec<f64>>> {
        let numbers = |row: &[u8]| {
            let (words, rest) = row.as_chunks::<8>();
            let (first, words) = words.split_first()?;
            let in_step = *first == turn.to_le_bytes() && words.len() == values && rest.is_empty();
            in_step.then(|| words.iter().map(|word| f64::from_le_bytes(*word)).collect())
        };
        let table: Vec<Vec<f64>> = rows.map(numbers).collect::<Option<_>>()?;
        (table.len() == self.ranks).then_some(table)
    }

    /// Checks the first message of a connection.
    fn admit(
        &self,
        (kind, payload): (u8, Vec<u8>),
        links: &[Option<Arc<TlsStream>>],
    ) -> std::result::Result<Hello, JoinError> {
        let hello: Hello = serde_json::from_slice(&payload).map_err(|_| JoinError::UnknownClient)?;
        let is_trusted = same_token(hello.token.as_bytes(), self.token.as_bytes());
        if kind != kind::HELLO || hello.magic != MAGIC || !is_trusted {
            return Err(JoinError::UnknownClient);
        }
        let Hello { job, ranks, member, .. } = &hello;
        let mismatch = if *ranks != self.ranks {
            format!("{member} was started with {ranks} ranks, rank 0 with {}", self.ranks)
        } else if member.rank == 0 || member.rank >= self.ranks || links[member.rank].is_some() {
            format!("{member} connected, but that rank is already connected or does not exist")
        } else if *job != self.job {
            format!("{member} has a different job than rank 0: start all ranks with the same configuration")
        } else {
            return Ok(hello);
        };
        Err(JoinError::Mismatch(mismatch))
    }

    /// Connects to rank 0, retrying until the deadline.
    fn reach(&self, deadline: Instant) -> Result<TcpStream> {
        loop {
            let tried = match &self.rendezvous {
                Rendezvous::Address(address) => connect(address),
                Rendezvous::File(path) => {
                    std::fs::read_to_string(path).and_then(|address| connect(address.trim()))
                }
            };
            match tried {
                Ok(stream) => return Ok(stream),
                Err(e) if Instant::now() >= deadline => {
                    return Err(rank_error(format!(
                        "rank {} waited {} s for rank 0 at {}: {e}",
                        self.rank,
                        self.patience.as_secs(),
                        self.rendezvous
                    )));
                }
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Formats a list of ranks, such as "ranks 1, 3".
fn names(ranks: impl Iterator<Item = usize>) -> String {
    let ranks: Vec<String> = ranks.map(|r| r.to_string()).collect();
    match ranks.as_slice() {
        [one] => format!("rank {one}"),
        many => format!("ranks {}", many.join(", ")),
    }
}

/// Reads one connection until its rank leaves.
fn read_messages(shared: &GroupLinks, from: usize, mut link: impl Read, outbox: &Sender<GroupMessage>) {
    loop {
        match receive(&mut link, MAX_MESSAGE) {
            Ok((kind::HEARTBEAT, _)) => {}
            Ok((kind::BYE, _)) => return,
            Ok((kind::LOST, what)) => return shared.lose(String::from_utf8_lossy(&what).into_owned()),
            Ok((kind::ANSWER, what)) => {
                shared.state().answers.insert(from, what);
                shared.changed.notify_all();
            }
            Ok((kind, payload)) => {
                if outbox.send(GroupMessage { from, kind, payload }).is_err() {
                    return;
                }
            }
            Err(e) => {
                let how = match e.kind() {
                    _ if is_late(&e) => format!("was silent for {} s", SILENCE_TIMEOUT.as_secs()),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                        "disconnected unexpectedly".to_owned()
                    }
                    _ => format!("is lost: {e}"),
                };
                return shared.lose(format!("{} {how}", shared.members[from]));
            }
        }
    }
}

/// Sends heartbeats until the group is dropped. After a loss, exits the process if it has not ended in time.
fn send_heartbeats(shared: &GroupLinks, exit_after: Option<Duration>) {
    let mut lost_at = None;
    loop {
        let state = shared.wait_until(HEARTBEAT_INTERVAL, |s| s.dropped);
        if state.dropped {
            return;
        }
        let left = || "the process group has ended".to_owned();
        let lost = state.lost.clone().or_else(|| state.left.then(left));
        drop(state);
        if let Some(what) = lost {
            let since: &Instant = lost_at.get_or_insert_with(Instant::now);
            if exit_after.is_some_and(|limit| since.elapsed() > limit) {
                eprintln!("error: {what}; rank {} could not stop cleanly and exits", shared.rank);
                std::process::exit(1);
            }
        } else {
            shared.send_to_all(kind::HEARTBEAT, &[]);
        }
    }
}

/// Returns whether an address is reachable only from this machine.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Opens the socket at which rank 0 expects the other ranks.
fn bind(rendezvous: &Rendezvous) -> io::Result<TcpListener> {
    let Rendezvous::Address(address) = rendezvous else { return TcpListener::bind(("127.0.0.1", 0)) };
    match address.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>())) {
        // A machine may resolve its own name to an address that other machines cannot reach.
        Some((host, Ok(port))) if !is_loopback(host) && host.parse::<IpAddr>().is_err() => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        }
        _ => TcpListener::bind(address.as_str()),
    }
}

/// Sends the table of ranks to each of them.
fn welcome(members: &mut [RankInfo], links: &[Option<Arc<TlsStream>>]) -> Result<()> {
    for (rank, link) in links.iter().enumerate() {
        let Some(link) = link else { continue };
        // Other ranks reach rank 0 at the address that they connected to.
        let own = link.socket().local_addr();
        let own = own.map_err(|e| rank_error(format!("the own address of rank 0: {e}")))?;
        members[0].address.set_ip(own.ip());
        let table =
            serde_json::to_vec(members).map_err(|e| rank_error(format!("the table of ranks: {e}")))?;
        send(link, kind::WELCOME, &table)
            .map_err(|e| rank_error(format!("{} disconnected during the start: {e}", members[rank])))?;
    }
    Ok(())
}

#[cfg(test)]
mod fuzz;
