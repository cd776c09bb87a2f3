//! Measures how much a rank uses its device and its machine.

use sgs_base::host;
use sgs_rundir::metrics::names::OF_RANKS;
use std::time::{Duration, Instant};

/// Values of the metrics [`OF_RANKS`], in their order; `None` where a rank has no value.
pub type RankUsage = [Option<f64>; OF_RANKS.len()];

/// Returns the time in which a step of the rank's sampler was in flight so far, in seconds.
pub type BusyTime = Box<dyn Fn() -> f64 + Send>;

/// Times of a rank since the end of the last update.
pub(super) struct UsageClock {
    /// The rank's sampler, if it samples.
    sampler: Option<BusyTime>,
    /// The end of the last update, and the sampler's busy time until then, in seconds.
    since: (Instant, f64),
    /// The same at the beginning of this update.
    update: Option<(Instant, f64)>,
    /// Time in training passes of this update.
    trained: Duration,
}

impl UsageClock {
    pub(super) fn new(sampler: Option<BusyTime>) -> Self {
        Self { sampler, since: (Instant::now(), 0.0), update: None, trained: Duration::ZERO }
    }

    fn now(&self) -> (Instant, f64) {
        (Instant::now(), self.sampler.as_ref().map_or(0.0, |busy| busy()))
    }

    /// Measures a training pass. The first one begins the update.
    pub(super) fn train<T>(&mut self, pass: impl FnOnce() -> T) -> T {
        let now = self.now();
        self.update.get_or_insert(now);
        let done = pass();
        self.trained += now.0.elapsed();
        done
    }

    /// Returns the usage since the last call, at the end of an update, and the peaks and totals of this process so far.
    pub(super) fn take(&mut self, device_memory: Option<usize>, sent: Option<u64>) -> RankUsage {
        let now = self.now();
        let (begun, busy) = self.update.unwrap_or(now);
        let idle = |used: f64, span: Duration| (1.0 - used / span.as_secs_f64().max(1e-9)).clamp(0.0, 1.0);
        let usage = [
            self.sampler.as_ref().map(|_| idle(busy - self.since.1, begun - self.since.0)),
            self.update.map(|_| idle(self.trained.as_secs_f64(), now.0 - begun)),
            host::peak_memory().map(|bytes| bytes as f64),
            device_memory.map(|bytes| bytes as f64),
            host::written_bytes().map(|bytes| bytes as f64),
            sent.map(|bytes| bytes as f64),
        ];
        *self = Self { since: now, ..Self::new(self.sampler.take()) };
        usage
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn idle_time_is_that_without_steps_or_passes() {
        let busy = Arc::new(Mutex::new(0.0));
        let of_sampler = Arc::clone(&busy);
        let mut clock = UsageClock::new(Some(Box::new(move || *of_sampler.lock().unwrap())));
        let nap = Duration::from_millis(250);
        std::thread::sleep(nap);
        *busy.lock().unwrap() = clock.since.0.elapsed().as_secs_f64() / 2.0;
        clock.train(|| std::thread::sleep(nap));
        // A step that is in flight during the update does not count.
        *busy.lock().unwrap() += 10.0;
        let of = |usage: RankUsage| (usage[0].unwrap(), usage[1]);
        let (sampling, update) = of(clock.take(None, None));
        assert!((0.3..0.7).contains(&sampling) && update.unwrap() < 0.5, "{sampling} {update:?}");
        std::thread::sleep(nap);
        assert_eq!(of(clock.take(None, Some(7))), (1.0, None), "no step and no update");
        let without = UsageClock::new(None).take(Some(3), Some(7));
        assert_eq!([without[0], without[1], without[3], without[5]], [None, None, Some(3.0), Some(7.0)]);
    }
}
