//! Drops connections whose peer does not read.

use crate::places::Place;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Maximum time for which a peer may accept no data that is ready to be sent. Linux reports progress only when a third of the
/// send buffer is free, so a peer behind a slow link needs some seconds for each report.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// A stream whose writes fail if the peer accepts nothing for `timeout`.
pub(crate) struct TimedWrites<S> {
    stream: S,
    timeout: Duration,
    /// Timer that runs while a write is blocked.
    blocked: Option<Pin<Box<Sleep>>>,
    place: Arc<Place>,
}

impl<S: AsyncWrite + Unpin> TimedWrites<S> {
    /// Wraps a stream, with a timeout of [`WRITE_TIMEOUT`].
    pub(crate) fn new(stream: S, place: Arc<Place>) -> Self {
        Self { stream, timeout: WRITE_TIMEOUT, blocked: None, place }
    }

    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let polled = poll(Pin::new(&mut self.stream), context);
        if polled.is_ready() {
            if self.blocked.take().is_some() {
                self.place.set_unread(false);
            }
            return polled;
        }
        self.place.set_unread(true);
        let timeout = self.timeout;
        let blocked = self.blocked.get_or_insert_with(|| Box::pin(sleep(timeout)));
        blocked.as_mut().poll(context).map(|()| Err(ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedWrites<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedWrites<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(context, |stream, context| stream.poll_write_vectored(context, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(context, |stream, context| stream.poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::runtime::Builder;

    #[test]
    fn a_peer_that_does_not_read_is_dropped_and_a_slow_one_is_not() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let timed = |stream, millis| TimedWrites {
            timeout: Duration::from_millis(millis),
            ..TimedWrites::new(stream, Arc::default())
        };
        runtime.block_on(async {
            let (stream, _deaf) = duplex(16);
            let error = timed(stream, 50).write_all(&[0; 100]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            let (stream, mut slow) = duplex(16);
            // Read for longer than the timeout, with pauses of a quarter of it.
            let reader = tokio::spawn(async move {
                let mut bytes = [0; 20];
                for _ in 0..5 {
                    sleep(Duration::from_secs(1)).await;
                    slow.read_exact(&mut bytes).await.unwrap();
                }
            });
            timed(stream, 4_000).write_all(&[0; 100]).await.unwrap();
            reader.await.unwrap();
        });
    }
}
