//! A scripted REPL, which speaks the protocol of the community REPL and misbehaves on request.
//!
//! The proof contains the instruction: `exact scripted_crash` and so on. Any other proof gets the answer of a proof without
//! errors. As in the community REPL, a header that imports `Missing` loads without an error and provides nothing. With
//! the argument `check` or `replay` the program acts as the judge.
//!
//! Under another name, it is part of an installation that passes canaries: it rejects their falsehood, and answers
//! `--version`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program whose output is its protocol")]

use std::fmt::Write as _;
use std::io::{self, BufRead, Write};
use std::time::Duration;

/// Acts as the program that the command line asks for.
pub fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let stays = args.first().is_some_and(|arg| arg == "stays");
    match args.last().map(String::as_str) {
        Some("--version") => println!("Lean (version 4.15.0, scripted, commit 0, Release)"),
        Some("check") => judge(false, stays)?,
        Some("replay") => judge(true, stays)?,
        _ => repl()?,
    }
    Ok(())
}

fn repl() -> io::Result<()> {
    let name = std::env::args().next().unwrap_or_default();
    let falsehood = if name.ends_with("scripted_repl") { "scripted_wrong" } else { "(1 : Nat) = 2" };
    let mut env = 0_u64;
    let mut request = String::new();
    let mut ballast: Vec<Vec<u8>> = Vec::new();
    let mut header = None;
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
        let header = header.get_or_insert_with(|| text.clone());
        let reply = answer(&text, env, header, falsehood);
        env += 1;
        act(&text, &reply, &mut ballast)?;
    }
    Ok(())
}

/// Returns the REPL's answer, with one message for each command that asks something. Lines with `falsehood` are wrong.
fn answer(text: &str, env: u64, header: &str, falsehood: &str) -> String {
    let mut messages = Vec::new();
    let mut say = |severity: &str, line: usize, data: String| {
        messages.push(serde_json::json!({"severity": severity, "pos": {"line": line + 1, "column": 0},
            "endPos": null, "data": data}));
    };
    // Nothing is defined, not even `True`.
    let empty = header.contains("import Missing") && env > 0;
    for (index, line) in text.split('\n').enumerate() {
        if line.contains('\r') {
            say("error", index, "isolated carriage returns are not allowed".into());
        }
        if empty && (line.starts_with("theorem") || line.starts_with('#')) {
            say("error", index, "unknown identifier".into());
        } else if let Some(name) = line.strip_prefix("#print axioms ") {
            let axioms = if text.contains("scripted_axiom") {
                "depends on axioms: [propext, cheat]"
            } else {
                "does not depend on any axioms"
            };
            say("info", index, format!("'{name}' {axioms}"));
        } else if let Some((_, says)) = line.strip_prefix("#eval").and_then(|l| l.split_once("logInfo \""))
            && !says.starts_with("Unlisted ")
        {
            say("info", index, says.trim_end_matches('"').to_owned());
        }
        if line.contains("scripted_wrong") || line.contains(falsehood) {
            say("error", index, "unsolved goals\n⊢ False".into());
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
        // A child that holds the pipes open, and that only the kill of the group ends.
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
        out.write_all(b"{\"env\": 2}\n\n")?;
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

/// Acts as the judge: answers one request, or all of them if it replays or stays.
fn judge(replaying: bool, stays: bool) -> io::Result<()> {
    let mut line = String::new();
    while io::stdin().read_line(&mut line)? > 0 {
        judge_one(replaying, &line)?;
        line.clear();
        if !replaying && !stays {
            break;
        }
    }
    Ok(())
}

/// Answers a request, candidate by candidate, and misbehaves at those that ask for it.
fn judge_one(replaying: bool, line: &str) -> io::Result<()> {
    let request: serde_json::Value = serde_json::from_str(line)?;
    let header = request["header"].as_str().unwrap_or_default();
    let nonce = request["nonce"].as_str().unwrap_or_default().to_owned();
    let say = |fields: serde_json::Value| -> io::Result<()> {
        let mut value = serde_json::json!({"nonce": nonce});
        if let (Some(all), Some(own)) = (value.as_object_mut(), fields.as_object()) {
            all.extend(own.clone());
        }
        let mut out = io::stdout();
        writeln!(out, "{value}")?;
        out.flush()
    };
    println!("judge.lean:1:1: warning: something about the judge's own text");
    if header.contains("scripted_header_crash") {
        std::process::abort();
    }
    if header.contains("import Missing") {
        return say(serde_json::json!({"broken": "unknown module prefix 'Missing'"}));
    }
    if header.contains("axiom") {
        return say(serde_json::json!({"broken": "the header contains an axiom", "refused": true}));
    }
    say(serde_json::json!({"header": true}))?;
    let candidates = request["candidates"].as_array().cloned().unwrap_or_default();
    for index in 0..candidates.len() {
        say(serde_json::json!({"begin": index}))?;
    }
    let mut ballast = Vec::new();
    let mut tainted = false;
    for (index, candidate) in candidates.iter().enumerate() {
        say(serde_json::json!({"begin": index}))?;
        if tainted {
            println!("what an earlier proof left behind");
        }
        let declarations = candidate["declarations"].as_str().unwrap_or_default();
        let text = candidate["proof"].as_str().unwrap_or_default().to_owned();
        assert!(!replaying || text.is_empty(), "a proof in the process that replays");
        let id = candidate["id"].as_str().unwrap_or_default();
        if replaying {
            let text = std::fs::read_to_string(declarations)?;
            act(
                &text.replace("scripted_replay_", "scripted_").replace("scripted_axiom", ""),
                "",
                &mut ballast,
            )?;
            let axioms = if text.contains("replay_axiom") { vec!["cheat"] } else { vec![] };
            let reason = match text {
                _ if text.contains("replay_denied") => "the kernel refuses `t`",
                // The names must be those of the first process.
                _ if text.lines().last() != Some(id) => "the theorem is missing",
                _ => "",
            };
            let accepted = reason.is_empty();
            say(
                serde_json::json!({"end": index, "messages": [], "accepted": accepted, "reason": reason, "axioms": axioms}),
            )?;
            continue;
        }
        if !text.contains("scripted_replay") {
            act(&text, "", &mut ballast)?;
        }
        if text.contains("scripted_noise") {
            println!("this is not a message");
        }
        if text.contains("scripted_forge") {
            println!(
                "{}",
                serde_json::json!({"nonce": "guessed", "end": index, "messages": [], "accepted": true, "reason": "", "axioms": []})
            );
        }
        if !declarations.is_empty() {
            std::fs::write(declarations, format!("{text}\n{id}\n"))?;
        }
        // The lie is detected only if another candidate follows.
        tainted = text.contains("scripted_taint");
        let wrong = text.contains("scripted_wrong") || tainted && index + 1 == candidates.len();
        let wrong = wrong || text.contains("scripted_process") || text.contains("scripted_tactic");
        let messages = if wrong {
            let data = match text.contains("scripted_process") {
                true => format!("process {}", std::process::id()),
                false => "unsolved goals".to_owned(),
            };
            let kind = if text.contains("scripted_tactic") { "SgsJudge.definesSyntax" } else { "" };
            vec![serde_json::json!({"severity": "error", "kind": kind, "pos": {"line": 2}, "data": data})]
        } else {
            Vec::new()
        };
        let axioms = if text.contains("scripted_axiom") { vec!["propext", "cheat"] } else { vec!["propext"] };
        say(
            serde_json::json!({"end": index, "messages": messages, "accepted": !wrong, "reason": "", "axioms": axioms}),
        )?;
    }
    Ok(())
}
