//! Measures the journal from a dispatcher's perspective: records per second, the longest call and the time to durability.
//!
//! `cargo run --release -p sgs-rundir --example journal_speed -- DIRECTORY [RECORDS] [PAYLOAD_BYTES]`
#![allow(clippy::print_stdout)] // its output is its purpose

use sgs_rundir::{CallerError, Journal, Record, RecordKey};
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn main() -> Result<(), CallerError> {
    let mut arguments = std::env::args().skip(1);
    let directory: PathBuf =
        arguments.next().ok_or("usage: journal_speed DIRECTORY [RECORDS] [BYTES]")?.into();
    let mut number = |default: u32| arguments.next().map_or(Ok(default), |text| text.parse());
    let (records, bytes) = (number(40_000)?, number(4_000)? as usize);
    let path = directory.join("journal_speed.sqlite");
    let journal = Journal::open(&path)?;

    let (mut longest, mut tickets) = (Duration::ZERO, Vec::new());
    let start = Instant::now();
    for index in 0..records {
        let key = RecordKey { round: 1, kind: "rollout".into(), problem: "p".into(), index };
        let payload = token_like(index, bytes);
        let call = Instant::now();
        tickets.push(journal.append(vec![Record { key, payload }])?);
        longest = longest.max(call.elapsed());
    }
    let handed_over = start.elapsed();
    journal.wait(tickets[tickets.len() - 1])?;
    let durable = start.elapsed();
    println!("{records} records of {bytes} bytes, one by one");
    println!(
        "handed over in {:.3} s, longest call {:.3} ms",
        handed_over.as_secs_f64(),
        longest.as_secs_f64() * 1e3
    );
    println!(
        "all durable after {:.3} s: {:.0} records/s",
        durable.as_secs_f64(),
        f64::from(records) / durable.as_secs_f64()
    );

    let start = Instant::now();
    let rounds = 200;
    for index in 0..rounds {
        let key = RecordKey { round: 1, kind: "verdict".into(), problem: "p".into(), index };
        journal.append_durably(vec![Record { key, payload: vec![0; 100] }])?;
    }
    println!(
        "one record at a time, waited for: {:.2} ms each",
        start.elapsed().as_secs_f64() * 1e3 / f64::from(rounds)
    );

    let start = Instant::now();
    let found = journal.reader().records(1, None)?.len();
    println!("{found} records read back in {:.3} s", start.elapsed().as_secs_f64());
    let size = std::fs::metadata(&path)?.len();
    let start = Instant::now();
    journal.retire(1)?;
    println!(
        "{} KiB retired to {} KiB in {:.3} s",
        size >> 10,
        std::fs::metadata(&path)?.len() >> 10,
        start.elapsed().as_secs_f64()
    );
    drop(journal);
    std::fs::remove_file(path)?;
    Ok(())
}

/// Returns bytes with about the entropy of token ids and log-probabilities.
fn token_like(seed: u32, bytes: usize) -> Vec<u8> {
    let mut state = u64::from(seed) << 20 | 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    };
    (0..bytes / 4).flat_map(|_| (next() % 4096).to_le_bytes()).collect()
}
