//! Collective operations over TCP and TLS, for devices whose buffers are in host memory. Every pair of ranks has a
//! connection.
//!
//! Each share is sent directly to the rank that keeps it. The receiver adds the shares in the order of ranks,
//! so a sum has the same bits in every run with the same number of ranks.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sgs_tls::TlsStream;

use super::greeting::greet;
use super::process_group::{ProcessGroup, same_token};
use super::{Collective, Reduction};
use crate::device::{BufferSliceMut, Device};
use crate::error::Result;
use crate::host_buffer::HostBuffer;

/// Number of values that are converted and sent at a time.
const CHUNK: usize = 1 << 14;

/// The connections of one rank.
#[derive(Debug)]
pub struct Tcp {
    group: ProcessGroup,
    /// Connections by rank; `None` for this rank.
    streams: Vec<Option<Arc<TlsStream>>>,
    /// Values received from each rank.
    received: Vec<Vec<f32>>,
}

impl Tcp {
    /// Connects this rank to every other rank.
    ///
    /// # Errors
    /// Returns an error if a rank is lost or does not connect.
    pub fn connect(group: ProcessGroup) -> Result<Self> {
        let streams = pairs(&group).map_err(|(rank, e)| {
            let who = &group.members()[rank];
            group.lost(format!("{who} cannot be reached for data at {}: {e}", who.address))
        })?;
        for stream in streams.iter().flatten() {
            let socket = stream.socket();
            let limited = socket.set_read_timeout(Some(group.config().patience));
            let ready = socket.set_nodelay(true).and(limited);
            ready.map_err(|e| group.lost(format!("connections among ranks: {e}")))?;
            // A blocked read or write returns as soon as any rank is lost.
            let stream = Arc::clone(stream);
            group.on_loss(move || {
                let _ = stream.socket().shutdown(Shutdown::Both);
            });
        }
        let received = vec![Vec::new(); group.ranks()];
        Ok(Self { group, streams, received })
    }

    /// Sends `piece(rank)` of a buffer to every other rank and receives `expected(rank)` numbers from each.
    fn trade(
        &mut self,
        data: &[f32],
        piece: impl Fn(usize) -> Range<usize> + Sync,
        expected: impl Fn(usize) -> usize,
    ) -> Result<()> {
        let (own, ranks) = (self.group.rank(), self.group.ranks());
        let (streams, received) = (&self.streams, &mut self.received);
        let outcome = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                // Each rank starts with its right neighbour, so that no rank receives from all others at the same time.
                (1..ranks).map(|k| (own + k) % ranks).try_for_each(|to| {
                    send(connected(streams, to), &data[piece(to)]).map_err(|e| (to, "send to", e))
                })
            });
            let got = (1..ranks).map(|k| (own + ranks - k) % ranks).try_for_each(|from| {
                received[from].resize(expected(from), 0.0);
                receive(connected(streams, from), &mut received[from]).map_err(|e| (from, "receive from", e))
            });
            if got.is_err() {
                // The sender may be blocked on a rank that is itself blocked.
                streams.iter().flatten().for_each(|s| drop(s.socket().shutdown(Shutdown::Both)));
            }
            let panicked = |_| Err((own, "send from", io::Error::other("the sending thread panicked")));
            let sent = sender.join().unwrap_or_else(panicked);
            got.and(sent)
        });
        outcome.map_err(|(rank, what, e)| {
            self.group.lost(format!("cannot {what} {}: {e}", self.group.members()[rank]))
        })
    }
}

/// Returns the connection to another rank.
#[allow(clippy::expect_used, reason = "a share that is not sent must stop the program")]
fn connected(streams: &[Option<Arc<TlsStream>>], rank: usize) -> &TlsStream {
    streams[rank].as_ref().expect("invariant: every pair of ranks is connected")
}

/// Returns a rank's share of a bucket of `len` elements.
fn part(len: usize, even: usize, rank: usize, ranks: usize) -> Range<usize> {
    let start = rank * even;
    start..if rank + 1 == ranks { len } else { start + even }
}

fn pairs(group: &ProcessGroup) -> std::result::Result<Vec<Option<Arc<TlsStream>>>, (usize, io::Error)> {
    let (own, ranks) = (group.rank(), group.ranks());
    let deadline = Instant::now() + group.config().patience;
    let secret = group.config().token.as_bytes();
    let mut streams: Vec<Option<Arc<TlsStream>>> = vec![None; ranks];
    for (rank, place) in streams.iter_mut().enumerate().take(own) {
        let there = || -> io::Result<TlsStream> {
            let address = &group.members()[rank].address;
            let socket = TcpStream::connect_timeout(address, Duration::from_secs(30))?;
            socket.set_read_timeout(Some(group.config().patience))?;
            let stream = TlsStream::connect(socket, group.identity.fingerprint())?;
            (&stream).write_all(&(own as u64).to_le_bytes())?;
            (&stream).write_all(&(secret.len() as u64).to_le_bytes())?;
            (&stream).write_all(secret)?;
            Ok(stream)
        };
        *place = Some(Arc::new(there().map_err(|e| (rank, e))?));
    }
    let missing = |streams: &[Option<_>]| (own + 1..ranks).find(|rank| streams[*rank].is_none());
    if missing(&streams).is_none() {
        return Ok(streams);
    }
    let hello = |mut stream: &TlsStream| {
        let mut numbers = [[0; 8]; 2];
        stream.read_exact(numbers.as_flattened_mut())?;
        let [rank, len] = numbers.map(|n| u64::from_le_bytes(n) as usize);
        let mut shown = vec![0; len.min(secret.len() + 1)];
        stream.read_exact(&mut shown)?;
        Ok((rank, shown))
    };
    let greeted = greet(&group.listener, &group.identity, deadline, hello, |_, stream, (rank, shown)| {
        let is_expected = rank > own && streams.get(rank).is_some_and(Option::is_none);
        // Unknown clients are ignored.
        if same_token(&shown, secret) && is_expected {
            streams[rank] = Some(Arc::new(stream));
        }
        missing(&streams).is_none().then_some(())
    });
    greeted.map_err(|e| (missing(&streams).unwrap_or(own), e))?;
    Ok(streams)
}

fn send(mut to: &TlsStream, values: &[f32]) -> io::Result<()> {
    to.write_all(&(values.len() as u64).to_le_bytes())?;
    let mut bytes = Vec::with_capacity(4 * CHUNK.min(values.len()));
    for values in values.chunks(CHUNK) {
        bytes.clear();
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        to.write_all(&bytes)?;
    }
    Ok(())
}

fn receive(mut from: &TlsStream, values: &mut [f32]) -> io::Result<()> {
    let mut len = [0; 8];
    from.read_exact(&mut len)?;
    let len = u64::from_le_bytes(len);
    if len != values.len() as u64 {
        let message = format!("it sent {len} numbers instead of {}: the ranks are out of step", values.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut bytes = vec![0; 4 * CHUNK.min(values.len())];
    for values in values.chunks_mut(CHUNK) {
        let bytes = &mut bytes[..4 * values.len()];
        from.read_exact(bytes)?;
        let (words, _) = bytes.as_chunks::<4>();
        values.iter_mut().zip(words).for_each(|(v, word)| *v = f32::from_le_bytes(*word));
    }
    Ok(())
}

impl<D: Device<Buf = HostBuffer, Grad = HostBuffer>> Collective<D> for Tcp {
    fn group(&mut self) -> &mut ProcessGroup {
        &mut self.group
    }

    fn reduce(&mut self, reduction: Reduction<'_, D>) -> Result<()> {
        let (own, ranks) = (self.group.rank(), self.group.ranks());
        let Reduction { bucket, even, sum, .. } = reduction;
        let len = bucket.range.len();
        let data = &mut bucket.buf[bucket.range];
        let share = part(len, even, own, ranks);
        self.trade(data, |rank| part(len, even, rank, ranks), |_| share.len())?;
        self.received[own].clear();
        self.received[own].extend_from_slice(&data[share]);
        for received in &self.received {
            let sum = &mut sum.buf[sum.range.clone()];
            sum.iter_mut().zip(received).for_each(|(s, r)| *s += r);
        }
        data.fill(0.0);
        Ok(())
    }

    fn wait_for_slot(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn gather(&mut self, bucket: BufferSliceMut<'_, HostBuffer>, even: usize) -> Result<()> {
        let (own, ranks) = (self.group.rank(), self.group.ranks());
        let len = bucket.range.len();
        let data = &mut bucket.buf[bucket.range];
        let mine = part(len, even, own, ranks);
        self.trade(data, |_| mine.clone(), |rank| part(len, even, rank, ranks).len())?;
        for rank in (0..ranks).filter(|rank| *rank != own) {
            data[part(len, even, rank, ranks)].copy_from_slice(&self.received[rank]);
        }
        Ok(())
    }

    fn wait_all(&mut self) -> Result<()> {
        self.group.check()
    }
}
