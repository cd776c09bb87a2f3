//! A REPL by script: speaks the protocol of the community REPL and misbehaves on request.
//!
//! What to do stands in the proof: `exact scripted_crash` and so on. Everything else is answered as Lean would
//! answer a proof without errors. `--lean FILE` plays plain `lean --json` over a file instead.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program whose output is its protocol")]

use std::fmt::Write as _;
use std::io::{self, BufRead, Write};
use std::time::Duration;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("--lean") => lean(args.last().map_or("", String::as_str)),
        Some("--judge") => judge(&args),
        _ => repl(),
    }
}

fn repl() -> io::Result<()> {
    let mut env = 0_u64;
    let mut request = String::new();
    let mut ballast: Vec<Vec<u8>> = Vec::new();
    for line in io::stdin().lock().lines() {
        let line = line?;
        if !line.trim().is_empty() {
            request.push_str(&line);
            continue;
        }
        if request.is_empty() {
            continue;
        }
        let value: serde_json::Value = serde_json::from_str(&request).unwrap_or_default();
        request.clear();
        let text = value["cmd"].as_str().unwrap_or_default().to_owned();
        let reply = answer(&text, env);
        env += 1;
        act(&text, &reply, &mut ballast)?;
    }
    Ok(())
}

/// The REPL's answer to a text without errors: one message for each `#print axioms`.
fn answer(text: &str, env: u64) -> String {
    let mut messages = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(name) = line.strip_prefix("#print axioms ") {
            let axioms = if text.contains("scripted_axiom") {
                "depends on axioms: [propext, cheat]"
            } else {
                "does not depend on any axioms"
            };
            messages.push(serde_json::json!({"severity": "info", "pos": {"line": index + 1, "column": 0},
                "endPos": {"line": index + 1, "column": 6}, "data": format!("'{name}' {axioms}")}));
        }
        if line.contains("scripted_wrong") {
            messages.push(serde_json::json!({"severity": "error", "pos": {"line": index + 1, "column": 2},
                "endPos": null, "data": "unsolved goals\n⊢ False"}));
        }
    }
    let mut reply = String::new();
    let value = if messages.is_empty() {
        serde_json::json!({"env": env})
    } else {
        serde_json::json!({"messages": messages, "env": env})
    };
    let _ = write!(reply, "{value:#}\n\n");
    reply
}

fn act(text: &str, reply: &str, ballast: &mut Vec<Vec<u8>>) -> io::Result<()> {
    let says = |word: &str| text.contains(&format!("scripted_{word}"));
    let mut out = io::stdout().lock();
    if let Some(millis) = text
        .split("scripted_sleep_")
        .nth(1)
        .and_then(|t| t.split(|c: char| !c.is_ascii_digit()).next())
        .and_then(|n| n.parse().ok())
    {
        std::thread::sleep(Duration::from_millis(millis));
    }
    if says("crash_once") {
        let mark = std::env::current_dir()?.join("crashed");
        if !mark.exists() {
            std::fs::write(mark, "")?;
            std::process::abort();
        }
    } else if says("crash") {
        std::process::abort();
    } else if says("exit") {
        std::process::exit(0);
    } else if says("hang") {
        std::thread::sleep(Duration::from_secs(600));
    } else if says("grandchild") {
        // A child that keeps the pipes open and outlives everything but the group's kill.
        std::process::Command::new("sleep").arg("600").spawn()?;
        std::thread::sleep(Duration::from_secs(600));
    } else if says("late") {
        std::thread::sleep(Duration::from_millis(4000));
    } else if says("flood_stderr") {
        let line = vec![b'x'; 64 * 1024];
        for _ in 0..200 {
            io::stderr().write_all(&line)?;
        }
    } else if says("flood_stdout") {
        let line = vec![b'x'; 64 * 1024];
        loop {
            out.write_all(&line)?;
        }
    } else if says("memory") {
        loop {
            ballast.push(vec![1; 8 << 20]);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    if says("grow") {
        ballast.push(vec![1; 96 << 20]);
    }
    if says("split") {
        for piece in reply.as_bytes().chunks(7) {
            out.write_all(piece)?;
            out.flush()?;
            std::thread::sleep(Duration::from_millis(1));
        }
    } else if says("torn") {
        out.write_all(reply.as_bytes().get(..reply.len() / 2).unwrap_or_default())?;
        out.write_all(b"\n\n")?;
    } else if says("forge") {
        out.write_all(b"{\"env\": 1}\n\n")?;
        out.write_all(reply.as_bytes())?;
    } else if says("wrong_id") {
        out.write_all(reply.replace("\"env\": ", "\"env\": 7").as_bytes())?;
    } else if says("silent") {
        out.write_all(
            reply
                .split("\"messages\"")
                .next()
                .unwrap_or_default()
                .trim_end_matches([' ', '\n', ','])
                .as_bytes(),
        )?;
        out.write_all(b"}\n\n")?;
    } else if says("refuse") {
        out.write_all(b"{\"message\": \"Unknown environment.\"}\n\n")?;
    } else {
        out.write_all(reply.as_bytes())?;
        if says("twice") {
            out.write_all(reply.as_bytes())?;
        }
    }
    out.flush()
}

/// Plays the judge: `--judge elaborate|replay REQUEST DECLARATIONS`.
fn judge(args: &[String]) -> io::Result<()> {
    let [_, what, request, delta] = args else { std::process::exit(2) };
    let text = std::fs::read_to_string(request)?;
    if what == "elaborate" {
        if text.contains("scripted_judge_crash") {
            std::process::abort();
        }
        if text.contains("scripted_judge_errors") {
            std::process::exit(1);
        }
        return std::fs::write(delta, "[]\n");
    }
    std::fs::read_to_string(delta)?;
    if text.contains("scripted_judge_axiom") {
        println!("{}", serde_json::json!({"proved": false, "reason": "axioms: [cheat]"}));
    } else if text.contains("scripted_judge_noise") {
        println!("noise");
    } else {
        println!("{}", serde_json::json!({"proved": true}));
    }
    Ok(())
}

/// Plays `lean --json FILE`: answers theorem by theorem, and misbehaves at the one that says so.
fn lean(path: &str) -> io::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let mut ballast = Vec::new();
    let mut errors = false;
    for (index, line) in text.lines().enumerate() {
        let at = index + 1;
        let mut out = io::stdout();
        if let Some(name) = line.strip_prefix("#print axioms ") {
            let message = serde_json::json!({"severity": "information", "kind": "[anonymous]", "pos": {"line": at, "column": 0},
                "endPos": null, "caption": "", "fileName": "x", "data": format!("'{name}' does not depend on any axioms")});
            writeln!(out, "{message}")?;
            out.flush()?;
        } else if line.contains("scripted_wrong") {
            errors = true;
            let message = serde_json::json!({"severity": "error", "kind": "x", "pos": {"line": at, "column": 0},
                "endPos": null, "caption": "", "fileName": "x", "data": "unsolved goals"});
            writeln!(out, "{message}")?;
        } else if line.contains("scripted_noise") {
            writeln!(out, "this is no message")?;
        } else if line.contains("scripted_") {
            act(line, "", &mut ballast)?;
        }
    }
    std::process::exit(i32::from(errors));
}
