//! How ranks find each other, exchange a few numbers, and notice that one is gone.
//!
//! Rank 0 listens; every other rank connects to it and shows the token. These connections carry small messages and
//! a beat a second. A connection that ends or falls silent means that its rank is gone: rank 0 tells all others,
//! every wait of every rank ends with an error that names the rank, and what is blocked elsewhere (data sockets,
//! NCCL) is broken off by [`Meeting::on_loss`].

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

use crate::error::{LmError, Result};

/// Time between beats.
const BEAT: Duration = Duration::from_secs(1);
/// Silence after which a rank counts as gone.
const SILENCE: Duration = Duration::from_secs(30);
/// Longest time that leaving waits for the others to have heard of it.
const FAREWELL: Duration = Duration::from_secs(2);
/// Largest first message: it comes from whoever connects.
const MAX_HELLO: usize = 1 << 14;
/// Largest message among ranks.
const MAX_MESSAGE: usize = 1 << 28;
/// What a first message begins with.
const MAGIC: &str = "sgs-ranks-1";

/// Where ranks meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rendezvous {
    /// Rank 0 listens on this HOST:PORT.
    Address(String),
    /// Rank 0 listens on any free port of this machine and writes the address into this file.
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

/// A process's place among the ranks.
#[derive(Clone)]
pub struct Place {
    /// This rank, counted from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    pub rendezvous: Rendezvous,
    /// Secret that all ranks share; never printed.
    pub token: String,
    /// What is trained and how, in any form that is the same for all: a rank with another job is refused.
    pub job: String,
    /// Name of this machine, for errors.
    pub host: String,
    /// This process's log, for errors.
    pub log: Option<PathBuf>,
    /// Longest wait for another rank to come or to answer.
    pub patience: Duration,
    /// Ends the process if it has not ended so long after a rank was lost: a call into a driver may never return.
    pub exit_after_loss: Option<Duration>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} at {}", self.rank, self.ranks, self.rendezvous)
    }
}

/// What is known of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub rank: usize,
    pub host: String,
    pub pid: u32,
    pub log: Option<PathBuf>,
    /// Where it takes connections of other ranks.
    pub address: SocketAddr,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} (host {}, process {}", self.rank, self.host, self.pid)?;
        if let Some(log) = &self.log {
            write!(f, ", log {}", log.display())?;
        }
        f.write_str(")")
    }
}

/// The first message of a connection.
#[derive(Serialize, Deserialize)]
struct Hello {
    magic: String,
    token: String,
    job: String,
    rank: usize,
    ranks: usize,
    host: String,
    pid: u32,
    log: Option<PathBuf>,
    port: u16,
}

/// Kinds of messages.
pub(super) mod kind {
    pub const HELLO: u8 = 1;
    pub const WELCOME: u8 = 2;
    pub const REFUSED: u8 = 3;
    pub const BEAT: u8 = 4;
    pub const VALUES: u8 = 5;
    pub const BYTES: u8 = 6;
    pub const LOST: u8 = 7;
    pub const BYE: u8 = 8;
    pub const ORDER: u8 = 9;
    pub const ANSWER: u8 = 10;
}

fn send(mut to: &TcpStream, kind: u8, payload: &[u8]) -> io::Result<()> {
    let mut message = Vec::with_capacity(5 + payload.len());
    message.push(kind);
    message.extend((payload.len() as u32).to_le_bytes());
    message.extend(payload);
    to.write_all(&message)
}

fn receive(mut from: &TcpStream, most: usize) -> io::Result<(u8, Vec<u8>)> {
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

/// Whether two secrets are equal, in a time that depends on their lengths alone.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |all, (x, y)| all | (x ^ y)) == 0
}

pub(super) fn rank_error(message: impl Into<String>) -> LmError {
    LmError::Rank { message: message.into() }
}

/// What all threads of a meeting share.
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Connections by rank: on rank 0 to all others, elsewhere to rank 0.
    links: Vec<Option<Mutex<TcpStream>>>,
    rank: usize,
    pub(super) members: Vec<Member>,
}

#[derive(Default)]
pub(super) struct State {
    lost: Option<String>,
    /// What ranks have answered to the last order, by rank: nothing if all is well.
    pub(super) answers: BTreeMap<usize, Vec<u8>>,
    /// The loss was passed on.
    told: bool,
    /// Connections that are still read.
    reading: usize,
    /// The meeting is over for this rank.
    over: bool,
    /// Whether what was connected through the meeting is torn down as well.
    gone: bool,
    breakers: Vec<Box<dyn FnOnce() + Send>>,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send_to(&self, rank: usize, kind: u8, payload: &[u8]) -> io::Result<()> {
        let Some(link) = self.links.get(rank).and_then(Option::as_ref) else { return Ok(()) };
        send(&link.lock().unwrap_or_else(PoisonError::into_inner), kind, payload)
    }

    fn send_to_all(&self, kind: u8, payload: &[u8]) {
        for rank in 0..self.links.len() {
            // Whoever does not take it is noticed by the reader of its connection.
            let _ = self.send_to(rank, kind, payload);
        }
    }

    /// Notes the first loss, passes it on and breaks off what is blocked.
    fn lose(&self, what: String) {
        let mut state = self.state();
        if state.lost.is_some() || state.over {
            return;
        }
        state.lost = Some(what.clone());
        let breakers = std::mem::take(&mut state.breakers);
        drop(state);
        self.changed.notify_all();
        self.send_to_all(kind::LOST, what.as_bytes());
        self.state().told = true;
        self.changed.notify_all();
        breakers.into_iter().for_each(|stop| stop());
    }

    /// Sends a message to a rank; one that does not take it is lost.
    pub(super) fn post(&self, rank: usize, kind: u8, payload: &[u8]) -> Result<()> {
        let sent = self.send_to(rank, kind, payload);
        sent.map_err(|e| self.lost(format!("{} does not listen: {e}", self.members[rank])))
    }

    /// The error to give: that a rank was lost if one was, or `otherwise`, which counts as the loss from then on.
    /// What breaks first on this rank is often only a consequence, so news of the cause is waited for a moment.
    pub(super) fn lost(&self, otherwise: String) -> LmError {
        let state = self.wait_until(Duration::from_secs(3), |s| s.lost.is_some());
        let known = state.lost.clone();
        drop(state);
        if known.is_none() {
            self.lose(otherwise.clone());
        }
        rank_error(known.unwrap_or(otherwise))
    }

    /// The error of a lost rank, if one is.
    pub(super) fn check(&self) -> Result<()> {
        match &self.state().lost {
            Some(what) => Err(rank_error(what.clone())),
            None => Ok(()),
        }
    }

    /// Waits until a condition holds or a rank is lost, or for so long.
    pub(super) fn wait_unless_lost(
        &self,
        limit: Duration,
        holds: impl Fn(&State) -> bool,
    ) -> MutexGuard<'_, State> {
        self.wait_until(limit, |state| state.lost.is_some() || holds(state))
    }

    /// Waits until a condition holds, or for so long.
    fn wait_until(&self, limit: Duration, holds: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.changed.wait_timeout_while(self.state(), limit, |state| !holds(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A message for the thread that trains.
pub(super) struct Letter {
    from: usize,
    kind: u8,
    pub(super) payload: Vec<u8>,
}

/// The ranks of a training, as one of them sees them.
pub struct Meeting {
    place: Place,
    shared: Arc<Shared>,
    inbox: Receiver<Letter>,
    /// Takes connections of other ranks for data.
    pub(super) listener: TcpListener,
    turn: u64,
    finished: bool,
    left: bool,
}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meeting").field("place", &self.place).field("members", &self.shared.members).finish()
    }
}

impl Meeting {
    /// Meets the other ranks; returns once all are there.
    ///
    /// # Errors
    /// The address cannot be used, a rank does not come within the patience (it is named), shows another token or
    /// has another job.
    pub fn join(place: Place) -> Result<Self> {
        if place.ranks == 0 || place.rank >= place.ranks {
            let (rank, ranks) = (place.rank, place.ranks);
            return Err(rank_error(format!("there is no rank {rank} of {ranks}: ranks count from 0")));
        }
        let deadline = Instant::now() + place.patience;
        if place.rank == 0 { Self::host(place, deadline) } else { Self::visit(place, deadline) }
    }

    /// Rank 0: takes the connections of all others.
    fn host(place: Place, deadline: Instant) -> Result<Self> {
        let fail = |what: String| rank_error(format!("rank 0 cannot listen on {}: {what}", place.rendezvous));
        let bound = match &place.rendezvous {
            // A machine's own name may mean an address that others do not reach.
            Rendezvous::Address(address) => match address.rsplit_once(':') {
                Some((host, port)) if !is_loopback(host) && host.parse::<IpAddr>().is_err() => {
                    port.parse().map_or_else(
                        |_| TcpListener::bind(address.as_str()),
                        |port: u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
                    )
                }
                _ => TcpListener::bind(address.as_str()),
            },
            Rendezvous::File(_) => TcpListener::bind(("127.0.0.1", 0)),
        };
        let door = bound.map_err(|e| fail(e.to_string()))?;
        let address = door.local_addr().map_err(|e| fail(e.to_string()))?;
        if !address.ip().is_loopback() && place.token.is_empty() {
            let hint =
                "others can reach this address, so ranks must show a token: set SGS_TOKEN or SGS_TOKEN_FILE";
            return Err(fail(hint.to_owned()));
        }
        let listener = TcpListener::bind((address.ip(), 0)).map_err(|e| fail(e.to_string()))?;
        if let Rendezvous::File(path) = &place.rendezvous {
            let tmp = path.with_extension("tmp");
            let written = std::fs::write(&tmp, address.to_string());
            written.and_then(|()| std::fs::rename(&tmp, path)).map_err(LmError::io(path))?;
        }
        let own =
            SocketAddr::new(address.ip(), listener.local_addr().map_err(|e| fail(e.to_string()))?.port());
        let mut members: Vec<Option<Member>> = vec![None; place.ranks];
        let mut links: Vec<Option<TcpStream>> = (0..place.ranks).map(|_| None).collect();
        members[0] = Some(place.member(own));
        while links.iter().skip(1).any(Option::is_none) {
            let missing = || names(links.iter().enumerate().skip(1).filter(|l| l.1.is_none()).map(|l| l.0));
            let late = |e: io::Error| match e.kind() {
                io::ErrorKind::TimedOut => rank_error(format!(
                    "waited {} s at {} for {}: did every rank start, with the same rendezvous?",
                    place.patience.as_secs(),
                    place.rendezvous,
                    missing()
                )),
                _ => fail(e.to_string()),
            };
            let (stream, from) = accept(&door, deadline).map_err(late)?;
            match place.admit(&stream, &links) {
                Ok(hello) => {
                    let rank = hello.rank;
                    let address = SocketAddr::new(from.ip(), hello.port);
                    let Hello { host, pid, log, .. } = hello;
                    members[rank] = Some(Member { rank, host, pid, log, address });
                    links[rank] = Some(stream);
                }
                // A stranger is turned away; a rank that does not fit ends the start for all.
                Err(Refusal::Stranger) => {}
                Err(Refusal::Unfit(why)) => {
                    let _ = send(&stream, kind::REFUSED, why.as_bytes());
                    for link in links.iter().flatten() {
                        let _ = send(link, kind::REFUSED, why.as_bytes());
                    }
                    return Err(rank_error(why));
                }
            }
        }
        let mut members: Vec<Member> = members.into_iter().flatten().collect();
        let welcome = |members: &[Member]| {
            serde_json::to_vec(members).map_err(|e| rank_error(format!("the table of ranks: {e}")))
        };
        for (rank, link) in links.iter().enumerate() {
            let Some(link) = link else { continue };
            // Others reach rank 0 where they have reached it.
            members[0].address.set_ip(link.local_addr().map_err(|e| fail(e.to_string()))?.ip());
            send(link, kind::WELCOME, &welcome(&members)?)
                .map_err(|e| rank_error(format!("{} left at the start: {e}", members[rank])))?;
        }
        Self::begin(place, members, links, listener)
    }

    /// Every other rank: connects to rank 0.
    fn visit(place: Place, deadline: Instant) -> Result<Self> {
        let stream = place.reach(deadline)?;
        let fail = |e: io::Error| rank_error(format!("meeting rank 0 at {}: {e}", place.rendezvous));
        let own = stream.local_addr().map_err(fail)?.ip();
        let listener = TcpListener::bind((own, 0)).map_err(fail)?;
        let hello = place.hello(listener.local_addr().map_err(fail)?.port());
        let hello = serde_json::to_vec(&hello).map_err(|e| rank_error(format!("the first message: {e}")))?;
        send(&stream, kind::HELLO, &hello).map_err(fail)?;
        let left = deadline.saturating_duration_since(Instant::now()).max(BEAT);
        stream.set_read_timeout(Some(left)).map_err(fail)?;
        match receive(&stream, MAX_MESSAGE) {
            Ok((kind::WELCOME, payload)) => {
                let members: Vec<Member> = serde_json::from_slice(&payload)
                    .map_err(|e| rank_error(format!("the table of ranks: {e}")))?;
                let mut links: Vec<Option<TcpStream>> = (0..place.ranks).map(|_| None).collect();
                links[0] = Some(stream);
                Self::begin(place, members, links, listener)
            }
            Ok((kind::REFUSED, why)) => Err(rank_error(String::from_utf8_lossy(&why).into_owned())),
            Ok(_) => Err(rank_error(format!("{} is not rank 0 of a training", place.rendezvous))),
            Err(e) if is_late(&e) => Err(rank_error(format!(
                "waited {} s at {} for the other ranks: did every rank start?",
                place.patience.as_secs(),
                place.rendezvous
            ))),
            Err(e) => Err(rank_error(format!(
                "rank 0 at {} hung up ({e}): it failed, or this rank's token is another",
                place.rendezvous
            ))),
        }
    }

    /// Starts the threads that read and beat.
    fn begin(
        place: Place,
        members: Vec<Member>,
        links: Vec<Option<TcpStream>>,
        listener: TcpListener,
    ) -> Result<Self> {
        let fail = |e: io::Error| rank_error(format!("starting rank {}: {e}", place.rank));
        let mut readers = Vec::new();
        for (rank, link) in links.iter().enumerate() {
            if let Some(link) = link {
                link.set_nodelay(true).map_err(fail)?;
                link.set_read_timeout(Some(SILENCE)).map_err(fail)?;
                link.set_write_timeout(Some(SILENCE)).map_err(fail)?;
                readers.push((rank, link.try_clone().map_err(fail)?));
            }
        }
        let links = links.into_iter().map(|link| link.map(Mutex::new)).collect();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            links,
            rank: place.rank,
            members,
        });
        let (outbox, inbox) = mpsc::channel();
        for (rank, link) in readers {
            let (shared, outbox) = (Arc::clone(&shared), outbox.clone());
            let reader = thread::Builder::new().name(format!("rank-{rank}"));
            shared.state().reading += 1;
            let reading = move || {
                read(&shared, rank, &link, &outbox);
                shared.state().reading -= 1;
                shared.changed.notify_all();
            };
            reader.spawn(reading).map_err(fail)?;
        }
        let (of_beat, exit_after) = (Arc::clone(&shared), place.exit_after_loss);
        let beat = thread::Builder::new().name("rank-beat".to_owned());
        beat.spawn(move || beat_until_over(&of_beat, exit_after)).map_err(fail)?;
        Ok(Self { place, shared, inbox, listener, turn: 0, finished: false, left: false })
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.place.rank
    }

    /// How many there are.
    pub fn ranks(&self) -> usize {
        self.place.ranks
    }

    /// All ranks, in order.
    pub fn members(&self) -> &[Member] {
        &self.shared.members
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Runs `stop` when a rank is lost, at once if one is: it must end what blocks this rank elsewhere.
    pub fn on_loss(&self, stop: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state();
        if state.lost.is_none() {
            state.breakers.push(Box::new(stop));
        } else {
            drop(state);
            stop();
        }
    }

    /// The numbers of every rank, in order; all must give as many.
    ///
    /// # Errors
    /// A rank is gone, silent for longer than the patience, or out of step.
    pub fn exchange(&mut self, values: &[f64]) -> Result<Vec<Vec<f64>>> {
        self.turn += 1;
        let own: Vec<u8> =
            self.turn.to_le_bytes().into_iter().chain(values.iter().flat_map(|v| v.to_le_bytes())).collect();
        let ranks = self.place.ranks;
        let mut table: Vec<Vec<u8>> = vec![Vec::new(); ranks];
        if self.place.rank == 0 {
            table[0] = own;
            while let Some(waiting) = (1..ranks).find(|rank| table[*rank].is_empty()) {
                let letter = self.letter(kind::VALUES, waiting)?;
                table[letter.from] = letter.payload;
            }
            self.deliver(kind::VALUES, &table.concat())?;
        } else {
            self.post(0, kind::VALUES, &own)?;
            let whole = self.letter(kind::VALUES, 0)?.payload;
            let share = whole.len() / ranks;
            table = whole.chunks(share.max(1)).map(<[u8]>::to_vec).collect();
        }
        let expected = 8 + 8 * values.len();
        let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let rows: Vec<Vec<f64>> =
            table.iter().map(|row| row.chunks(8).skip(1).map(number).collect()).collect();
        let in_step = |row: &Vec<u8>| row.len() == expected && row[..8] == self.turn.to_le_bytes();
        match table.iter().position(|row| !in_step(row)) {
            None if rows.len() == ranks => Ok(rows),
            _ => Err(self.lost(format!("the ranks are out of step at exchange {}", self.turn))),
        }
    }

    /// Sums of the numbers over all ranks, in place.
    ///
    /// # Errors
    /// As [`Meeting::exchange`].
    pub fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        let rows = self.exchange(values)?;
        for (i, value) in values.iter_mut().enumerate() {
            *value = rows.iter().map(|row| row[i]).sum();
        }
        Ok(())
    }

    /// Waits until every rank is here.
    ///
    /// # Errors
    /// As [`Meeting::exchange`].
    pub fn barrier(&mut self) -> Result<()> {
        self.exchange(&[]).map(|_| ())
    }

    /// Rank 0's bytes, given to all.
    ///
    /// # Errors
    /// As [`Meeting::exchange`].
    pub fn broadcast(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        if self.place.rank == 0 {
            self.deliver(kind::BYTES, bytes)?;
            return Ok(bytes.to_vec());
        }
        Ok(self.letter(kind::BYTES, 0)?.payload)
    }

    /// Does something that must succeed on every rank or count as failed on all: a failure anywhere fails everywhere.
    ///
    /// # Errors
    /// `act` failed here or elsewhere, or as [`Meeting::exchange`].
    pub fn together<T>(&mut self, what: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let done = act();
        let failed = self.exchange(&[f64::from(u8::from(done.is_err()))])?;
        let done = done?;
        match failed.iter().position(|row| row[0] != 0.0) {
            Some(rank) => Err(rank_error(format!("{what} failed on {}", self.shared.members[rank]))),
            None => Ok(done),
        }
    }

    /// Says that this rank has done its part: it may leave without the others taking it for lost.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Whether [`Meeting::finish`] was called.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Tells all ranks that this one cannot go on, and why.
    pub fn fail(&self, why: &str) {
        let own = &self.shared.members[self.place.rank];
        self.shared.lose(format!("{own} failed: {why}"));
    }

    /// As [`Shared::lost`].
    pub(crate) fn lost(&self, otherwise: String) -> LmError {
        self.shared.lost(otherwise)
    }

    /// The error of a lost rank, if one is.
    pub(crate) fn check(&self) -> Result<()> {
        self.shared.check()
    }

    fn post(&self, rank: usize, kind: u8, payload: &[u8]) -> Result<()> {
        self.shared.post(rank, kind, payload)
    }

    /// What orders are given through.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn deliver(&self, kind: u8, payload: &[u8]) -> Result<()> {
        (1..self.place.ranks).try_for_each(|rank| self.post(rank, kind, payload))
    }

    /// The next message; `from` is whom to name if it does not come.
    pub(super) fn letter(&self, kind: u8, from: usize) -> Result<Letter> {
        let patience = self.place.patience;
        self.letter_within(kind, patience)?.ok_or_else(|| {
            let who = &self.shared.members[from];
            self.lost(format!("waited {} s for an answer of {who}", patience.as_secs()))
        })
    }

    /// The next message; `None` if none comes in that time, or if all have left in order.
    pub(super) fn letter_within(&self, kind: u8, patience: Duration) -> Result<Option<Letter>> {
        let since = Instant::now();
        loop {
            self.check()?;
            // Short waits: a loss wakes this thread up no later than that.
            match self.inbox.recv_timeout(Duration::from_millis(100)) {
                Ok(letter) if letter.kind == kind => return Ok(Some(letter)),
                Ok(letter) => {
                    let who = &self.shared.members[letter.from];
                    return Err(
                        self.lost(format!("{who} is out of step: message {} for {kind}", letter.kind))
                    );
                }
                Err(RecvTimeoutError::Timeout) if since.elapsed() < patience => {}
                Err(_) => return self.check().map(|()| None),
            }
        }
    }
}

impl Meeting {
    /// Leaves, in order if this rank has finished: the others hear of it now. Dropping does the same, too late for what
    /// waits for the others to leave as well.
    pub fn leave(&mut self) {
        if std::mem::replace(&mut self.left, true) {
            return;
        }
        if !self.finished {
            self.fail("it stopped before the end");
        }
        // A process that ends at once would take the news with it.
        let mut state = self.shared.wait_until(FAREWELL, |s| s.lost.is_none() || s.told);
        state.over = true;
        let orderly = state.lost.is_none();
        drop(state);
        self.shared.changed.notify_all();
        if orderly {
            self.shared.send_to_all(kind::BYE, &[]);
        }
        for link in self.shared.links.iter().flatten() {
            let link = link.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = link.shutdown(std::net::Shutdown::Write);
        }
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        self.leave();
        // A connection that is closed with something unread takes back what was just sent over it.
        drop(self.shared.wait_until(FAREWELL, |s| s.reading == 0));
        self.shared.state().gone = true;
        self.shared.changed.notify_all();
    }
}

/// Why a connection is not taken.
enum Refusal {
    Stranger,
    Unfit(String),
}

impl Place {
    fn hello(&self, port: u16) -> Hello {
        Hello {
            magic: MAGIC.to_owned(),
            token: self.token.clone(),
            job: self.job.clone(),
            rank: self.rank,
            ranks: self.ranks,
            host: self.host.clone(),
            pid: std::process::id(),
            log: self.log.clone(),
            port,
        }
    }

    fn member(&self, address: SocketAddr) -> Member {
        let (host, log) = (self.host.clone(), self.log.clone());
        Member { rank: self.rank, host, pid: std::process::id(), log, address }
    }

    /// Reads the first message of a connection.
    fn admit(&self, stream: &TcpStream, links: &[Option<TcpStream>]) -> std::result::Result<Hello, Refusal> {
        let stranger = |_| Refusal::Stranger;
        stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(stranger)?;
        let (kind, payload) = receive(stream, MAX_HELLO).map_err(stranger)?;
        let hello: Hello = serde_json::from_slice(&payload).map_err(|_| Refusal::Stranger)?;
        if kind != kind::HELLO || hello.magic != MAGIC || !same(&hello.token, &self.token) {
            return Err(Refusal::Stranger);
        }
        let who = format!("rank {} (host {}, process {})", hello.rank, hello.host, hello.pid);
        if hello.ranks != self.ranks {
            let message =
                format!("{who} was started as one of {}, rank 0 as one of {}", hello.ranks, self.ranks);
            return Err(Refusal::Unfit(message));
        }
        if hello.rank == 0 || hello.rank >= self.ranks || links[hello.rank].is_some() {
            return Err(Refusal::Unfit(format!("{who} came, but that rank is taken or does not exist")));
        }
        if hello.job != self.job {
            let message =
                format!("{who} was started to train something else than rank 0: give all ranks the same");
            return Err(Refusal::Unfit(message));
        }
        Ok(hello)
    }

    /// A connection to rank 0, tried again until it is there.
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

/// The next connection before a deadline.
pub(super) fn accept(listener: &TcpListener, deadline: Instant) -> io::Result<(TcpStream, SocketAddr)> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, from)) => {
                stream.set_nonblocking(false)?;
                return Ok((stream, from));
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() >= deadline {
                    return Err(io::Error::from(io::ErrorKind::TimedOut));
                }
                thread::sleep(Duration::from_millis(5));
            }
            Err(e) => return Err(e),
        }
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// "ranks 1 and 3".
fn names(ranks: impl Iterator<Item = usize>) -> String {
    let ranks: Vec<String> = ranks.map(|r| r.to_string()).collect();
    match ranks.as_slice() {
        [one] => format!("rank {one}"),
        many => format!("ranks {}", many.join(", ")),
    }
}

/// Reads one connection until its rank leaves.
fn read(shared: &Shared, from: usize, link: &TcpStream, outbox: &Sender<Letter>) {
    loop {
        match receive(link, MAX_MESSAGE) {
            Ok((kind::BEAT, _)) => {}
            Ok((kind::BYE, _)) => return,
            Ok((kind::LOST, what)) => return shared.lose(String::from_utf8_lossy(&what).into_owned()),
            Ok((kind::ANSWER, what)) => {
                shared.state().answers.insert(from, what);
                shared.changed.notify_all();
            }
            Ok((kind, payload)) => {
                if outbox.send(Letter { from, kind, payload }).is_err() {
                    return;
                }
            }
            Err(e) => {
                let how = match e.kind() {
                    _ if is_late(&e) => format!("was silent for {} s", SILENCE.as_secs()),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                        "ended without a word".to_owned()
                    }
                    _ => format!("is lost: {e}"),
                };
                return shared.lose(format!("{} {how}", shared.members[from]));
            }
        }
    }
}

/// Beats until the meeting is over; after a loss ends the process if it does not end by itself.
fn beat_until_over(shared: &Shared, exit_after: Option<Duration>) {
    let mut lost_at = None;
    loop {
        let state = shared.wait_until(BEAT, |s| s.gone);
        if state.gone {
            return;
        }
        let left = || "the ranks have left their meeting".to_owned();
        let lost = state.lost.clone().or_else(|| state.over.then(left));
        drop(state);
        if let Some(what) = lost {
            let since: &Instant = lost_at.get_or_insert_with(Instant::now);
            if exit_after.is_some_and(|limit| since.elapsed() > limit) {
                eprintln!("error: {what}; rank {} could not stop in order and ends", shared.rank);
                std::process::exit(1);
            }
        } else {
            shared.send_to_all(kind::BEAT, &[]);
        }
    }
}

/// Whether an address is this machine's alone.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
