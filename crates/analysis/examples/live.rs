//! Serves a synthetic run that grows by a round every second:
//! `cargo run --release -p sgs-analysis --example live [SECONDS]`.
#![allow(clippy::print_stdout)]

#[path = "../tests/it/synthetic/mod.rs"]
mod synthetic;

use sgs_analysis::figures::FigureOptions;
use sgs_analysis::live::{LiveOptions, LiveServer, LiveStage, LiveStatus, LiveWorker, Recent};
use sgs_selfplay::Method;
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: usize = std::env::args().nth(1).map_or(Ok(60), |s| s.parse())?;
    let whole = synthetic::run(Method::Sgs, 1, synthetic::Size { rounds: 200, targets: 1000 });
    let server = LiveServer::start(&LiveOptions::default())?;
    println!("{}", server.url());
    for round in 0..seconds {
        let mut run = whole.clone();
        run.rounds.truncate(100 + round);
        server.publish(&[run], &FigureOptions::default());
        for tenth in 0..10 {
            server.set_status(&status(round as u32, tenth * 800));
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

fn status(round: u32, done: u64) -> LiveStatus {
    let stage =
        |name: &str, done, total, rate| LiveStage { name: name.into(), done, total, rate: Some(rate) };
    let worker = |i: u32| LiveWorker {
        name: format!("worker-{i}"),
        kind: "generate".into(),
        tasks: 32,
        silent_s: 0.4,
    };
    LiveStatus {
        round: Some(100 + round),
        stages: vec![
            stage("Conjectures", 412, 412, 80.0),
            stage("Rollouts", done, 8000, 214.0),
            stage("Checks", done / 2, 8000, 950.0),
        ],
        queue: vec![
            ("pending".into(), 8000 - done),
            ("leased".into(), 64),
            ("done".into(), done),
            ("quarantined".into(), 0),
        ],
        workers: (0..3).map(worker).collect(),
        recent: vec![
            Recent {
                kind: "proof".into(),
                problem: "target0042".into(),
                statement: "|- ( A + 0 ) = A".into(),
                text: "1 addrid |- ( A + 0 ) = A".into(),
                scores: "3 of 8".into(),
            },
            Recent {
                kind: "conjecture".into(),
                problem: "c100-target0007-0".into(),
                statement: "|- <b>x</b> = x".into(),
                text: "relevance 4".into(),
                scores: "relevance 4/5 · redundancy 0/1 · complexity 1/4".into(),
            },
        ],
        message: String::new(),
    }
}
