//! Mutation of known inputs, for a given amount of processor time.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout)] // each test binary uses some of it

use std::time::{Duration, Instant};

/// A corpus of inputs, and statistics of the run.
pub struct Fuzzer {
    corpus: Vec<Vec<u8>>,
    random: u64,
    /// Processor time at the start, at the latest reading, and at the end of the run.
    processor: [Duration; 3],
    started: Instant,
    read_at: Instant,
    tried: u64,
    taken: u64,
}

/// Maximum number of inputs in the corpus.
const LARGEST_CORPUS: usize = 4096;
/// Maximum size of an input, in bytes.
const LONGEST: usize = 1 << 16;
/// Time between two readings of the processor time.
const READING_INTERVAL: Duration = Duration::from_millis(10);

/// Returns the processor time that all threads of this process have used. Its resolution is ten milliseconds.
fn processor_time() -> Duration {
    // `PID (NAME) STATE …`; the name may contain anything. The times are the fields 14 and 15, in ticks of 10 ms.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    Duration::from_millis(
        10 * fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>(),
    )
}

impl Fuzzer {
    /// Creates a run of `SGS_FUZZ_SECONDS` of processor time (default 10) with the seed `SGS_FUZZ_SEED` (default 1). A run
    /// that mostly waits ends after four times as long by the clock.
    pub fn new(corpus: Vec<Vec<u8>>) -> Self {
        let number =
            |name: &str, default| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
        let (started, begin) = (Instant::now(), processor_time());
        let processor = [begin, begin, begin + Duration::from_secs(number("SGS_FUZZ_SECONDS", 10))];
        let random = number("SGS_FUZZ_SEED", 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { corpus, random, processor, started, read_at: started, tried: 0, taken: 0 }
    }

    /// Returns a random number below `n`, or 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 11) as usize).checked_rem(n).unwrap_or(0)
    }

    /// Returns the next input, or `None` when the processor time is used up.
    pub fn input(&mut self) -> Option<Vec<u8>> {
        if self.read_at.elapsed() >= READING_INTERVAL {
            (self.read_at, self.processor[1]) = (Instant::now(), processor_time());
        }
        let [begin, now, end] = self.processor;
        if now >= end || self.started.elapsed() >= 4 * (end - begin) {
            return None;
        }
        self.tried += 1;
        let pick = self.below(self.corpus.len());
        let mut bytes = self.corpus.get(pick).cloned().unwrap_or_default();
        for _ in 0..=self.below(6) {
            self.damage(&mut bytes);
        }
        bytes.truncate(LONGEST);
        Some(bytes)
    }

    /// Applies one mutation.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        let (at, random) = (self.below(bytes.len()), self.random);
        let span = 1 + self.below(32.min(bytes.len().saturating_sub(at)));
        let end = (at + span).min(bytes.len());
        match self.below(9) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << (random % 8),
            1 if !bytes.is_empty() => {
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'/', b'.'][random as usize % 8]
            }
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            5 => {
                let noise: Vec<u8> = (0..span).map(|_| self.below(256) as u8).collect();
                bytes.splice(at..at, noise);
            }
            6 if bytes.len() >= at + 8 => {
                let extreme = [u64::MAX, u64::MAX >> 1, 1 << 32, 1 << 20, 0][random as usize % 5];
                bytes[at..at + 8].copy_from_slice(&extreme.to_le_bytes());
            }
            7 => {
                let other = self.below(self.corpus.len());
                let tail = self.corpus.get(other).map_or(&[][..], |other| &other[at.min(other.len())..]);
                bytes.truncate(at);
                bytes.extend_from_slice(tail);
            }
            _ => bytes.extend_from_slice(&random.to_le_bytes()),
        }
    }

    /// Adds a valid input to the corpus.
    pub fn keep(&mut self, input: Vec<u8>) {
        self.taken += 1;
        if self.corpus.len() < LARGEST_CORPUS {
            self.corpus.push(input);
        } else {
            let at = self.below(LARGEST_CORPUS);
            self.corpus[at] = input;
        }
    }

    /// Prints the statistics.
    pub fn report(&self, what: &str) {
        let (processor, clock) =
            ((self.processor[1] - self.processor[0]).as_secs_f64(), self.started.elapsed());
        println!(
            "{what}: {processor:.0} s of processor time ({:.0} s by the clock), {} inputs, {} of them taken for whole",
            clock.as_secs_f64(),
            self.tried,
            self.taken
        );
        assert!(self.tried > 0);
    }
}
