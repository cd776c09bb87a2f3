//! Measures the overhead of pool and protocol over a bare loop:
//! `cargo run --release -p sgs-lean --example overhead -- REPL`.
//!
//! Both use the scripted REPL, which sleeps for the duration of a proof. The bare loop writes a prepared request and reads
//! up to the blank line. The program prints the median over the proofs.
#![allow(clippy::print_stdout, reason = "it prints its figures")]

use sgs_lean::check::{
    Candidate, CheckerConfig, Launch, Limits, Pool, Probe, Recycling, ReplChecker, assemble,
};
use sgs_lean::read::Proof;
use sgs_lean::text::{Bounds, LeanStatement};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let repl = std::env::args()
        .nth(1)
        .map_or_else(|| PathBuf::from("target/release/examples/scripted_repl"), PathBuf::from);
    let repl = repl.canonicalize()?;
    for (millis, count) in [(1_u64, 400_usize), (3000, 5)] {
        let bare = bare(&repl, millis, count)?;
        let pooled = pooled(&repl, millis, count)?;
        let over = pooled.saturating_sub(bare);
        let percent = over.as_secs_f64() / bare.as_secs_f64() * 100.0;
        println!("{millis} ms a proof: bare {bare:?}, pool {pooled:?}, overhead {over:?} ({percent:.2} %)");
    }
    Ok(())
}

fn candidate(millis: u64, index: usize) -> Candidate {
    let statement = "theorem t (x y z : ℝ) (h : x > 0) (h' : y > x) : x + y > 0 := by".into();
    let filler = "  have h1 : 0 < x + y := by positivity\n".repeat(20);
    let body = format!("\n{filler}  exact scripted_sleep_{millis}_{index}");
    Candidate { header: "import Mathlib".into(), statement, proof: Proof::new(body) }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn bare(repl: &Path, millis: u64, count: usize) -> Result<Duration, Box<dyn Error>> {
    let mut child = Command::new(repl).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().ok_or("no stdin")?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no stdout")?);
    let mut times = Vec::new();
    for index in 0..count {
        let candidate = candidate(millis, index);
        let statement = LeanStatement::read(&candidate.statement)?;
        let (text, _) = assemble(&statement, &candidate.proof, "0", Probe::Axioms);
        let request = serde_json::json!({"cmd": text, "env": 0}).to_string();
        let begun = Instant::now();
        input.write_all(request.as_bytes())?;
        input.write_all(b"\n\n")?;
        let mut line = String::new();
        loop {
            line.clear();
            if output.read_line(&mut line)? == 0 || line == "\n" {
                break;
            }
        }
        times.push(begun.elapsed());
    }
    drop(input);
    child.wait()?;
    Ok(median(times))
}

fn pooled(repl: &Path, millis: u64, count: usize) -> Result<Duration, Box<dyn Error>> {
    let launch = Launch {
        program: repl.to_owned(),
        args: vec![],
        env: vec![],
        folder: std::env::temp_dir(),
        cgroup: None,
    };
    let checker = ReplChecker {
        launch,
        options: vec![],
        probe: Probe::Axioms,
        limits: Limits::default(),
        recycling: Recycling { uses: u32::MAX, ..Recycling::default() },
    };
    let pool = Pool::new(&CheckerConfig::Repl(checker), 1)?;
    pool.check(Arc::new(candidate(0, 0)));
    let mut times = Vec::new();
    for index in 0..count {
        let candidate = candidate(millis, index);
        let begun = Instant::now();
        // The system does this for every proof: limits, request, protocol, verdict.
        Bounds::default().check(&candidate.proof.body)?;
        let outcome = pool.check(Arc::new(candidate));
        times.push(begun.elapsed());
        if outcome.verdict != sgs_selfplay::Verdict::Proved {
            return Err(outcome.reason.into());
        }
    }
    Ok(median(times))
}
