//! The connections of a server, and which of them wait for their client.

use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// Time after which a client that accepts no data may lose its place. A slow client often accepts none for some seconds.
const UNREAD_TIME: Duration = Duration::from_secs(2);

/// The connections that have a place.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Vec<Arc<Place>>>);

impl Places {
    /// Returns a place for a new connection. If all `limit` places are taken, closes the connection that has waited longest
    /// for its client. Returns `None` if none waits.
    pub(crate) fn take(self: &Arc<Self>, limit: usize) -> Option<TakenPlace> {
        let mut places = lock(&self.0);
        if places.len() >= limit {
            let now = Instant::now();
            let waiting =
                places.iter().enumerate().filter_map(|(i, place)| Some((place.waits_since(now)?, i)));
            let (_, oldest) = waiting.min()?;
            if let Some(task) = places.remove(oldest).task.get() {
                task.abort();
            }
        }
        let place = Arc::new(Place::default());
        places.push(Arc::clone(&place));
        Some(TakenPlace { place, places: Arc::clone(self) })
    }
}

/// A place that is free again when this value is dropped.
pub(crate) struct TakenPlace {
    pub(crate) place: Arc<Place>,
    places: Arc<Places>,
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        lock(&self.places.0).retain(|place| !Arc::ptr_eq(place, &self.place));
    }
}

/// The state of a connection.
#[derive(Debug)]
pub(crate) struct Place {
    /// The task that serves the connection, as soon as it is spawned.
    pub(crate) task: OnceLock<AbortHandle>,
    /// Time since which the connection has waited for a whole request, or for the next part of one.
    request: Mutex<Option<Instant>>,
    /// Time since which the client has accepted no data.
    unread: Mutex<Option<Instant>>,
}

impl Default for Place {
    fn default() -> Self {
        let request = Mutex::new(Some(Instant::now()));
        Self { task: OnceLock::new(), request, unread: Mutex::default() }
    }
}

impl Place {
    fn waits_since(&self, now: Instant) -> Option<Instant> {
        match *lock(&self.unread) {
            // A reply is being sent, and its body may have been dropped already.
            Some(since) => (now.duration_since(since) >= UNREAD_TIME).then_some(since),
            None => *lock(&self.request),
        }
    }

    fn set_waits(&self, waits: bool) {
        *lock(&self.request) = waits.then(Instant::now);
    }

    /// Records whether the client accepts no data.
    pub(crate) fn set_unread(&self, is_unread: bool) {
        let mut unread = lock(&self.unread);
        *unread = if is_unread { unread.or_else(|| Some(Instant::now())) } else { None };
    }
}

/// Locks a value. Poisoning is ignored, because the values are consistent after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body of a request. Until it has arrived, its connection waits for the client.
#[derive(Debug)]
pub struct RequestBody {
    body: Incoming,
    place: Arc<Place>,
}

impl RequestBody {
    pub(crate) fn new(body: Incoming, place: Arc<Place>) -> Self {
        place.set_waits(!body.is_end_stream());
        Self { body, place }
    }
}

impl Body for RequestBody {
    type Data = <Incoming as Body>::Data;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(frame) = &polled {
            self.place.set_waits(frame.is_some() && !self.body.is_end_stream());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a reply. When it is dropped, its connection waits for the next request.
pub(crate) struct ReplyBody<B> {
    pub(crate) body: B,
    pub(crate) place: Arc<Place>,
}

impl<B> Drop for ReplyBody<B> {
    fn drop(&mut self) {
        self.place.set_waits(true);
    }
}

impl<B: Body + Unpin> Body for ReplyBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
