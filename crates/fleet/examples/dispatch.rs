//! Speed of the coordinator against the peer of `benches/peer`, same machine, same load.
//!
//! ```text
//! cargo run --release -p sgs-fleet --features http --example dispatch board
//! cargo run --release -p sgs-fleet --features http --example dispatch serve PORT OPEN     (in one shell)
//! cargo run --release -p sgs-fleet --features http --example dispatch load PORT WORKERS CAPACITY SECONDS [PAUSE_MS] [json]
//! ```
#![allow(clippy::print_stdout)]

use std::net::SocketAddr;
use std::time::Duration;

use sgs_fleet::bench::{KIND, Load, board_cost, memory_per_task, run_load};
use sgs_fleet::wire::Form;
use sgs_fleet::{BoardConfig, Fleet, Service, ServiceConfig, Task, TaskId, Token};

const TOKEN: &str = "dispatch-bench-token";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|w| w.parse::<u64>().ok());
    match words.first().map(String::as_str) {
        Some("board") => {
            // First, while the heap has nothing to give back.
            println!(
                "{{\"bytes_per_open_task_with_200_of_payload\":{:.0}}}",
                memory_per_task(1_000_000, 200)?
            );
            for open in [10_000, 100_000, 1_000_000] {
                println!("{}", serde_json::to_string(&board_cost(open))?);
            }
        }
        Some("serve") => {
            let (port, open) = (number(1).ok_or("serve PORT OPEN")?, number(2).ok_or("serve PORT OPEN")?);
            serve(u16::try_from(port)?, open)?;
        }
        Some("load") => {
            let usage = "load PORT WORKERS CAPACITY SECONDS [PAUSE_MS] [json]";
            let port = u16::try_from(number(1).ok_or(usage)?)?;
            let load = Load {
                address: SocketAddr::from(([127, 0, 0, 1], port)),
                token: Some(Token::new(TOKEN, "the bench")?),
                workers: usize::try_from(number(2).ok_or(usage)?)?,
                capacity: usize::try_from(number(3).ok_or(usage)?)?,
                length: Duration::from_secs(number(4).ok_or(usage)?),
                form: if words.last().is_some_and(|w| w == "json") { Form::Json } else { Form::Binary },
                pause: Duration::from_millis(number(5).unwrap_or(0)),
            };
            println!("{}", serde_json::to_string(&run_load(&load)?)?);
        }
        _ => return Err("what to do: board, serve or load".into()),
    }
    Ok(())
}

/// Keeps so many tasks open and throws the outcomes away.
fn serve(port: u16, open: u64) -> Result<(), Box<dyn std::error::Error>> {
    // As in a run: a worker hears that its outcome is safe when the consumer has removed it.
    let fleet = Fleet::journalled(BoardConfig::default());
    let task = |id: u64| Task {
        id: TaskId(id),
        kind: KIND,
        priority: 0,
        payload: format!("{{\"number\":{id},\"proof\":\"{}\"}}", "a1 a2 mp ".repeat(20)).into(),
    };
    fleet.submit((0..open).map(task))?;
    let config = ServiceConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], port)),
        token: Some(Token::new(TOKEN, "the bench")?),
        ..ServiceConfig::default()
    };
    let service = Service::start(fleet.clone(), config)?;
    println!("serving {open} tasks at {}", service.address());
    let mut next = open;
    loop {
        let finished = fleet.take_finished(None, 10_000, Duration::from_secs(1))?;
        let ids: Vec<TaskId> = finished.iter().map(|f| f.task).collect();
        fleet.remove(&ids)?;
        fleet.submit((next..next + ids.len() as u64).map(task))?;
        next += ids.len() as u64;
    }
}
