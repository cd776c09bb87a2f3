//! Mutation of known inputs, for a given time.
#![allow(dead_code)] // each test binary uses some of it

use std::time::{Duration, Instant};

/// A corpus of inputs, and statistics of the run.
pub struct Fuzzer {
    corpus: Vec<Vec<u8>>,
    random: u64,
    until: Instant,
    tried: u64,
    taken: u64,
}

/// Maximum number of inputs in the corpus.
const LARGEST_CORPUS: usize = 4096;
/// Maximum size of an input, in bytes.
const LONGEST: usize = 1 << 16;

impl Fuzzer {
    /// Creates a run of `SGS_FUZZ_SECONDS` (default 10) with the seed `SGS_FUZZ_SEED` (default 1).
    pub fn new(corpus: Vec<Vec<u8>>) -> Self {
        let number =
            |name: &str, default| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
        let until = Instant::now() + Duration::from_secs(number("SGS_FUZZ_SECONDS", 10));
        let random = number("SGS_FUZZ_SEED", 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { corpus, random, until, tried: 0, taken: 0 }
    }

    /// Returns a random number below `n`, or 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 11) as usize).checked_rem(n).unwrap_or(0)
    }

    /// Returns the next input, or `None` when the time is over.
    pub fn input(&mut self) -> Option<Vec<u8>> {
        if Instant::now() >= self.until {
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
        println!("{what}: {} inputs, {} of them taken for whole, none a panic", self.tried, self.taken);
        assert!(self.tried > 0);
    }
}
