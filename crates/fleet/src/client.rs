//! The coordinator from afar: the worker's calls over HTTP. Without TLS requests and answers are signed with the token (see
//! `proof`): an answer by somebody who has it not is none.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{HeaderMap, Response};
#[cfg(feature = "tls")]
use ureq::tls::{Certificate, TlsConfig};
use ureq::{Agent, Body};

use crate::board::BoardStatus;
use crate::coordinator::{Beat, CallError, Coordinator, Grant};
use crate::proof::{self, Nonce, Signed};
use crate::shelf::Part;
use crate::task::{LeaseId, Receipt, Report, TaskKind, WorkerName};
use crate::token::Token;
use crate::wire::{
    ErrorReply, Form, HeartbeatReply, HeartbeatRequest, LeaseReply, LeaseRequest, ResultsReply,
    ResultsRequest,
};

/// A client of the service. One is enough for all threads of a worker.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
    url: String,
    token: Option<Token>,
    /// Whether whoever answers at the address has proved once that it knows the token.
    is_known: Arc<AtomicBool>,
    /// What the service wants requests to be signed over. It tells who does not know yet.
    challenge: Arc<Mutex<Nonce>>,
}

/// Time for a connection to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// Time for an answer, beyond the wait that the call itself asks for.
const ANSWER: Duration = Duration::from_secs(60);
/// The same for requests for work, heartbeats and small documents: who is asked to leave within 20 s cannot wait longer
/// for them.
const SOON: Duration = Duration::from_secs(12);
/// Bodies from this size on are compressed.
const COMPRESS_FROM: usize = 16 << 10;
/// Largest answer, unpacked.
const LARGEST_ANSWER: u64 = 1 << 30;
/// A request that came with an old challenge is signed again, so often: the service may give another meanwhile.
const SIGNED_AT_MOST: usize = 3;

impl Client {
    /// A client of the service at `http(s)://host:port`; nothing is sent yet. `trusted` are the certificates (DER)
    /// to trust instead of the public ones, for a service that signed its own.
    ///
    /// # Errors
    /// [`CallError::Refused`] if the URL cannot be used.
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "no address here has a use for it"))]
    pub fn new(url: &str, token: Option<Token>, trusted: Option<&[Vec<u8>]>) -> Result<Self, CallError> {
        let url = url.trim_end_matches('/').to_owned();
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            return Err(CallError::Refused(format!(
                "{url}: the coordinator's URL begins with http:// or https://"
            )));
        }
        if url.starts_with("https://") && !cfg!(feature = "tls") {
            return Err(CallError::Refused(format!(
                "{url}: this build has no TLS; build it with the feature `tls`"
            )));
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT))
            .max_idle_connections_per_host(8)
            .max_redirects(0)
            .proxy(None);
        #[cfg(feature = "tls")]
        let config = match trusted {
            None => config,
            Some(certificates) => {
                let roots = certificates.iter().map(|der| Certificate::from_der(der).to_owned());
                config.tls_config(TlsConfig::builder().root_certs(roots.into()).build())
            }
        };
        Ok(Self {
            agent: config.build().into(),
            url,
            token,
            is_known: Arc::default(),
            challenge: Arc::default(),
        })
    }

    /// The board in numbers.
    ///
    /// # Errors
    /// [`CallError`] if no answer came.
    pub fn status(&self) -> Result<BoardStatus, CallError> {
        self.status_within(ANSWER)
    }

    /// The board in numbers, for those who would rather go without than wait for long.
    ///
    /// # Errors
    /// [`CallError`] if no answer came in that time.
    pub fn status_within(&self, patience: Duration) -> Result<BoardStatus, CallError> {
        read(self.get("/v1/status", None, patience)?)
    }

    /// Up to `most` bytes, from `from` on, of an item that the coordinator has laid out (see [`crate::Shelf`]); the
    /// service may give fewer. `None` if there is no such item.
    ///
    /// # Errors
    /// [`CallError`] if no answer came, or one that makes no sense.
    pub fn read_file(&self, name: &str, from: u64, most: usize) -> Result<Option<Part>, CallError> {
        self.read_part(name, from, most, 2 * ANSWER)
    }

    fn read_part(
        &self,
        name: &str,
        from: u64,
        most: usize,
        patience: Duration,
    ) -> Result<Option<Part>, CallError> {
        let last = from.saturating_add(most.max(1) as u64 - 1);
        let range = format!("bytes={from}-{last}");
        let answer = self.get(&format!("/v1/files/{name}"), Some(&range), patience)?;
        if answer.status().as_u16() == 404 {
            return Ok(None);
        }
        if !answer.status().is_success() {
            return read::<()>(answer).map(|()| None);
        }
        let total = text_of(answer.headers(), "content-range").rsplit('/').next().unwrap_or_default().parse();
        let garbled = |problem: &str| CallError::Away(format!("a garbled answer: {name}: {problem}"));
        let total = total.map_err(|_| garbled("it has no content-range"))?;
        Ok(Some(Part { bytes: answer.into_body(), total }))
    }

    /// A small item that the coordinator has laid out, whole. `None` if there is no such item.
    ///
    /// # Errors
    /// [`CallError`] if no answer came.
    pub fn read_document(&self, name: &str) -> Result<Option<Vec<u8>>, CallError> {
        let Some(mut part) = self.read_part(name, 0, 4 << 20, SOON)? else { return Ok(None) };
        let mut bytes = std::mem::take(&mut part.bytes);
        while (bytes.len() as u64) < part.total {
            match self.read_part(name, bytes.len() as u64, 4 << 20, SOON)? {
                Some(next) if !next.bytes.is_empty() && next.total == part.total => bytes.extend(next.bytes),
                _ => return Err(CallError::Away(format!("{name} changed while it was read"))),
            }
        }
        Ok(Some(bytes))
    }

    fn get(
        &self,
        path: &str,
        range: Option<&str>,
        patience: Duration,
    ) -> Result<Response<Vec<u8>>, CallError> {
        let words = range.unwrap_or_default();
        let call = proof::Call { method: "GET", path, range: words, content_type: "", content_encoding: "" };
        self.ask(call, b"", |authorization| {
            let mut request = self.agent.get(format!("{}{path}", self.url));
            let packs = if range.is_none() { Some(("accept-encoding", "zstd")) } else { None };
            let range = range.map(|range| ("range", range));
            for (name, value) in [packs, range, authorization].into_iter().flatten() {
                request = request.header(name, value);
            }
            request.config().timeout_global(Some(patience)).build().call()
        })
    }

    /// Makes a call, `send` with the header that shows or proves the token. A signed one is made again if the service wants
    /// it signed over another challenge.
    fn ask(
        &self,
        call: proof::Call<'_>,
        body: &[u8],
        send: impl Fn(Option<(&str, &str)>) -> Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Vec<u8>>, CallError> {
        let away = |error: ureq::Error| CallError::Away(format!("{}: {error}", self.url));
        let Some(token) = &self.token else { return whole(send(None).map_err(away)?) };
        // To whom the certificate names it is shown.
        if self.url.starts_with("https://") {
            return whole(send(Some(("authorization", &token.header()))).map_err(away)?);
        }
        for _ in 0..SIGNED_AT_MOST {
            let challenge = *self.challenge.lock().unwrap_or_else(PoisonError::into_inner);
            let signed = Signed::sign(token, challenge, call, body);
            let (signed, header) = signed.map_err(|e| CallError::Refused(e.to_string()))?;
            let answer = send(Some(("authorization", &header))).map_err(away)?;
            let answer = self.receive(answer, &signed, token)?;
            // Only what is old or damaged is refused to who has proved that it knows the token.
            if answer.status().as_u16() != 401 {
                return Ok(answer);
            }
        }
        let (url, times) = (&self.url, SIGNED_AT_MOST);
        Err(CallError::Away(format!(
            "{url} took a request for an old or a changed one, {times} times in a row"
        )))
    }

    /// An answer with its whole body as it was sent. One that is not proved is nobody's: it may have been made to mislead, and
    /// nothing is read of it but its head.
    fn receive(
        &self,
        answer: Response<Body>,
        signed: &Signed,
        token: &Token,
    ) -> Result<Response<Vec<u8>>, CallError> {
        let headers = answer.headers();
        let challenge = text_of(headers, proof::CHALLENGE);
        let head = proof::Reply {
            status: answer.status().as_u16(),
            challenge,
            content_type: text_of(headers, "content-type"),
            content_encoding: text_of(headers, "content-encoding"),
            content_range: text_of(headers, "content-range"),
        };
        let shown = headers.get(proof::ANSWER).map(|value| value.as_bytes()).unwrap_or_default();
        let Some(proved) = signed.answered_by(token, head, shown) else {
            return Err(self.unproved(answer.status().as_u16()));
        };
        self.is_known.store(true, Ordering::Relaxed);
        if let Some(challenge) = proof::unhex(challenge) {
            *self.challenge.lock().unwrap_or_else(PoisonError::into_inner) = challenge;
        }
        let answer = read_at_most(answer, proved.length.min(LARGEST_ANSWER))?;
        if proved.is_of(answer.body()) {
            Ok(answer)
        } else {
            Err(CallError::Away(format!("{}: an answer was changed on the way", self.url)))
        }
    }

    fn unproved(&self, status: u16) -> CallError {
        let url = &self.url;
        let reason = format!(
            "{url} answers HTTP {status} and does not prove that it knows the token: is it this run's coordinator, and \
             is the token its own?"
        );
        // Who refuses the token from the beginning has another and will not come to know it. Anything else may be a
        // gateway's error, or somebody at the address of a coordinator that is away: nobody ends a worker without proof.
        let refused = status == 401 && !self.is_known.load(Ordering::Relaxed);
        if refused { CallError::Refused(reason) } else { CallError::Away(reason) }
    }

    fn post<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        body: &Q,
        patience: Duration,
    ) -> Result<A, CallError> {
        let body = Form::Binary.write(body);
        let body = body.map_err(|e| CallError::Refused(format!("cannot write the request: {e}")))?;
        let packed = if body.len() < COMPRESS_FROM { None } else { zstd::bulk::compress(&body, 1).ok() };
        let content_encoding = if packed.is_some() { "zstd" } else { "" };
        let body = packed.unwrap_or(body);
        let content_type = Form::Binary.content_type();
        let call = proof::Call { method: "POST", path, range: "", content_type, content_encoding };
        let answer = self.ask(call, &body, |authorization| {
            let request = self.agent.post(format!("{}{path}", self.url));
            let mut request = request.header("content-type", content_type).header("accept-encoding", "zstd");
            let packed =
                Some(("content-encoding", content_encoding)).filter(|(_, coding)| !coding.is_empty());
            for (name, value) in [packed, authorization].into_iter().flatten() {
                request = request.header(name, value);
            }
            request.config().timeout_global(Some(patience)).build().send(&body[..])
        })?;
        read(answer)
    }
}

/// An answer with its whole body as it was sent, by whoever is trusted to have sent it.
fn whole(answer: Response<Body>) -> Result<Response<Vec<u8>>, CallError> {
    read_at_most(answer, LARGEST_ANSWER)
}

fn read_at_most(mut answer: Response<Body>, limit: u64) -> Result<Response<Vec<u8>>, CallError> {
    // The reader wants room for the end, too.
    let body = answer.body_mut().with_config().limit(limit + 1).read_to_vec();
    let body = body.map_err(|e| CallError::Away(format!("a garbled answer: {e}")))?;
    Ok(answer.map(|_| body))
}

/// Unpacks and parses an answer. What is garbled may come out whole the next time; what is refused stays refused.
fn read<A: DeserializeOwned>(answer: Response<Vec<u8>>) -> Result<A, CallError> {
    let garbled = |problem: String| CallError::Away(format!("a garbled answer: {problem}"));
    let status = answer.status();
    let kind = text_of(answer.headers(), "content-type");
    let form = Form::of(kind).ok_or_else(|| garbled(format!("content type {kind:?}")));
    let packed = text_of(answer.headers(), "content-encoding") == "zstd";
    let bytes = answer.into_body();
    let bytes = if packed { unpack(&bytes).map_err(|e| garbled(e.to_string()))? } else { bytes };
    if status.is_success() {
        return form?.read(&bytes).map_err(garbled);
    }
    let reason = serde_json::from_slice::<ErrorReply>(&bytes);
    let reason =
        reason.map_or_else(|_| format!("HTTP {status}"), |reply| format!("HTTP {status}: {}", reply.error));
    match status.as_u16() {
        // Timed out, too many requests, or the service's own trouble.
        408 | 429 | 500.. => Err(CallError::Away(reason)),
        _ => Err(CallError::Refused(reason)),
    }
}

/// A header's text; empty if there is none, or none that is text.
fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn unpack(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    let read = zstd::stream::Decoder::new(bytes)?.take(LARGEST_ANSWER + 1).read_to_end(&mut unpacked)?;
    if read as u64 > LARGEST_ANSWER {
        return Err(std::io::Error::other(format!("it is larger than {LARGEST_ANSWER} bytes")));
    }
    Ok(unpacked)
}

impl Coordinator for Client {
    fn lease(
        &self,
        worker: &WorkerName,
        kind: &TaskKind,
        capacity: usize,
        wait: Duration,
    ) -> Result<Grant, CallError> {
        let call =
            LeaseRequest { worker: worker.clone(), kind: kind.clone(), capacity, wait_s: wait.as_secs_f64() };
        let reply: LeaseReply = self.post("/v1/lease", &call, wait + SOON)?;
        Ok(Grant { leases: reply.tasks, lease_time: seconds(reply.lease_s)?, drain: reply.drain })
    }

    fn heartbeat(&self, worker: &WorkerName, held: &[LeaseId]) -> Result<Beat, CallError> {
        let call = HeartbeatRequest { worker: worker.clone(), tasks: held.to_vec() };
        let reply: HeartbeatReply = self.post("/v1/heartbeat", &call, SOON)?;
        Ok(Beat { abandon: reply.abandon, lease_time: seconds(reply.lease_s)?, drain: reply.drain })
    }

    fn report(&self, worker: &WorkerName, reports: Vec<Report>) -> Result<Vec<Receipt>, CallError> {
        let call = ResultsRequest { worker: worker.clone(), results: reports };
        let reply: ResultsReply = self.post("/v1/results", &call, 2 * ANSWER)?;
        if reply.receipts.len() == call.results.len() {
            Ok(reply.receipts)
        } else {
            Err(CallError::Away("a garbled answer: not as many receipts as results".into()))
        }
    }
}

fn seconds(number: f64) -> Result<Duration, CallError> {
    Duration::try_from_secs_f64(number)
        .map_err(|e| CallError::Away(format!("a garbled answer: lease_s {number}: {e}")))
}
