//! `sgs status`.

use crate::program::{command, file, path, sgs};
use sgs_run::round::record::{Entry, record};
use sgs_rundir::metrics::names::HELD_OUT;
use sgs_rundir::{FrozenConfig, MetricValues, RunDir};
use sgs_selfplay::{Event, ProblemId, TaskKey, TaskKind};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

fn create(path: &Path) -> RunDir {
    let text = "rounds = 3\n[method]\nmethod = \"sgs\"\n".to_owned();
    let config = FrozenConfig { text, version: "0.9".into(), data: Default::default() };
    RunDir::create(path, &config, None).unwrap()
}

fn round(run: &RunDir, round: u32) {
    run.start_round(round).unwrap();
    run.finish_sampling(round).unwrap();
    run.publish_checkpoint(round, "", |dir| Ok(std::fs::write(dir.join("weights"), "w")?)).unwrap();
    let mut metrics = MetricValues::new(round);
    for (name, value) in [
        ("generations", 800.0 * f64::from(round + 1)),
        ("cumulative_solve_rate", 0.125),
        ("targets", 100.0),
        ("targets_solved_ever", 12.5),
        ("target_solve_rate", f64::NAN),
        ("conjectures_accepted", 86.0),
        ("conjectures_solved", 4.0),
        ("r_guide", 3.0),
    ] {
        metrics.set(name, value);
    }
    run.publish_round(&metrics, |_| Ok(())).unwrap();
}

#[test]
fn status_follows_a_run_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let name = path(dir.path(), "run");
    let run = create(Path::new(&name));

    let json = sgs(&["status", "--json", &name]).expect(0).json();
    assert_eq!((&json["state"], &json["published"]), (&"running".into(), &0.into()));
    assert!(json["holder"].as_str().unwrap().contains(&format!("process {}", std::process::id())));
    assert_eq!(
        (&json["rounds"], &json["method"], &json["version"]),
        (&3.into(), &"sgs".into(), &"0.9".into())
    );
    assert!(json["progress"].is_null());

    round(&run, 0);
    run.start_round(1).unwrap();
    let key = TaskKey { round: 1, kind: TaskKind::Rollout, problem: ProblemId::new("p"), index: 0 };
    let mut entries = [Entry { event: Event::Lost { key, reason: "gone".into() }, completion: None }];
    run.journal().append_durably(vec![record(&mut entries).unwrap().unwrap()]).unwrap();
    let json = sgs(&["status", "--json", &name]).expect(0).json();
    assert_eq!(json["published"], 1);
    assert_eq!((&json["progress"]["round"], &json["progress"]["stage"]), (&1.into(), &"started".into()));
    assert_eq!(json["progress"]["records"]["rollout"], 1);
    assert_eq!(json["checkpoints"], serde_json::json!([0]));
    assert_eq!(json["last"][0]["scalars"]["generations"], 800.0);

    drop(run);
    let text = sgs(&["status", &name]).expect(0).out;
    let resume = format!("\nto continue  sgs resume {name}\n");
    for part in [&resume, "1 of 3 published (numbered from 0)", "1 rollout", "12.5%", "newest of round 0"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let table: Vec<&str> = text.lines().skip_while(|line| !line.trim().starts_with("this ")).collect();
    let expected = [
        "this conjec-",
        "ever newly round conjec- tures Guide's",
        "round generations solved solved pass@1 tures solved score entropy",
        "0 800 12.5% - - 86 4 3.00 -",
    ];
    assert_eq!(table.iter().map(|line| words(line)).collect::<Vec<_>>(), expected, "{text}");

    let run = RunDir::open(Path::new(&name)).unwrap();
    run.finish_sampling(1).unwrap();
    run.skip_update(1, "").unwrap();
    run.publish_round(&MetricValues::new(1), |_| Ok(())).unwrap();
    round(&run, 2);
    drop(run);
    assert_eq!(sgs(&["status", "--json", &name]).expect(0).json()["state"], "finished");
    let none = sgs(&["status", "--rounds", "0", &name]).expect(0).out;
    assert!(none.lines().any(|line| line.starts_with("solved ")), "{none}");
    let text = sgs(&["status", "--rounds", "2", &name]).expect(0).out;
    assert!(text.contains(&format!("\nfor a report sgs report {name}\n")), "{text}");
    assert!(text.lines().any(|line| line == "state        finished"), "{text}");
    assert!(!text.contains("\n0 "), "more than the last two rounds: {text}");
}

/// Returns a text with single spaces instead of line breaks and columns.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn status_fits_80_columns_and_shows_the_last_evaluation_and_the_report() {
    let dir = tempfile::tempdir().unwrap();
    let name = path(dir.path(), "run");
    let text = "rounds = 1000000\ngenerations = 500000000\n[method]\nmethod = \"sgs\"\n".to_owned();
    let config = FrozenConfig { text, version: "0.9".into(), data: Default::default() };
    let run = RunDir::create(Path::new(&name), &config, None).unwrap();
    let show = || sgs(&["status", &name]).expect(0).out;
    assert!(!show().contains("held out") && !show().contains("report"), "{}", show());
    let evaluate = |after, pass: f64| {
        let mut metrics = MetricValues::of_evaluation(after);
        for (name, value) in [("problems", 50.0), ("samples", 8.0), ("solved", 6.0), ("pass@1", pass)] {
            metrics.set(format!("{HELD_OUT}{name}"), value);
        }
        run.publish_evaluation(&metrics, Vec::new()).unwrap();
    };
    evaluate(0, 0.05);
    assert!(show().contains("\nheld out     pass@1 5.0%, the base model\n"), "{}", show());
    for number in 0..3 {
        round(&run, number);
    }
    evaluate(3, 0.1);
    std::fs::create_dir(dir.path().join("run/report")).unwrap();
    let page = file(&dir.path().join("run/report"), "index.html", "");
    let shown = show();
    let held_out = "\nheld out     pass@1 10.0% (base model 5.0%), after 3 rounds\n";
    assert!(shown.contains(held_out), "{shown}");
    assert!(shown.contains(&format!("\nreport       {page}\n")), "{shown}");
    // Long numbers and a note; commands and paths are never broken.
    std::fs::write(dir.path().join("run/rounds/0001/metrics.json"), "{").unwrap();
    for line in sgs(&["status", &name]).expect(1).out.lines().filter(|line| !line.contains(&name)) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let json = sgs(&["status", "--json", &name]).expect(1).json();
    assert_eq!(json["last_evaluation"]["scalars"]["held_out/pass@1"], 0.1, "{json}");
    assert_eq!((&json["base_evaluation"]["round"], &json["report"]), (&0.into(), &page.into()));
}

#[test]
fn status_does_not_lock_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let name = path(dir.path(), "run");
    drop(create(Path::new(&name)));
    sgs(&["status", &name]).expect(0);
    drop(RunDir::open(Path::new(&name)).unwrap());
}

#[test]
fn damaged_rounds_are_noted_and_the_rest_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let name = path(dir.path(), "run");
    let run = create(Path::new(&name));
    round(&run, 0);
    round(&run, 1);
    drop(run);
    std::fs::write(dir.path().join("run/rounds/0001/metrics.json"), "{").unwrap();
    let done = sgs(&["status", &name]).expect(1);
    assert!(done.out.contains("note: round 1:") && done.out.contains("2 of 3 published"), "{}", done.out);
    std::fs::remove_dir_all(dir.path().join("run/rounds/0001")).unwrap();
    let missing = "rounds/0001 is damaged: it is missing, although the journal marks it as published";
    sgs(&["status", "--json", &name]).expect(1);
    let done = sgs(&["status", &name]).expect(1);
    assert!(done.out.contains("note: ") && words(&done.out).contains(missing), "{}", done.out);
    let done = sgs(&["report", &name]).expect(1);
    assert!(done.err.contains("warning: ") && done.err.contains(missing), "{}", done.err);
    let done = sgs(&["doctor", &name]).expect(1);
    assert!(done.out.contains("bad   damage") && done.out.contains(missing), "{}", done.out);
}

#[test]
fn lost_rounds_of_a_finished_run_are_the_state() {
    let dir = tempfile::tempdir().unwrap();
    let name = path(dir.path(), "run");
    let run = create(Path::new(&name));
    round(&run, 0);
    drop(run);
    let end = r#"{"by":"rounds","rounds":2,"unix_time":1.0}"#;
    std::fs::write(dir.path().join("run/ended.json"), end).unwrap();
    let shown = sgs(&["status", &name]).expect(1).out;
    let damage = "rounds is damaged: it has 1 round, but the run ended with 2; restore them from a copy";
    assert!(words(&shown).contains(&format!("state {name}/{damage}")), "{shown}");
}

#[test]
fn a_run_inside_a_run_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let name = path(dir.path(), "run");
    drop(create(Path::new(&name)));
    let inner = path(dir.path(), "run/a/b");
    let refused = sgs(&["run", "--out", &inner]).expect(2);
    assert!(
        refused.err.contains(&format!("{inner} is inside the run {name}: choose another folder")),
        "{}",
        refused.err
    );
    assert!(!dir.path().join("run/a").exists());
}

#[test]
fn a_damaged_journal_is_the_state() {
    let dir = tempfile::tempdir().unwrap();
    let name = path(dir.path(), "run");
    let run = create(Path::new(&name));
    round(&run, 0);
    drop(run);
    std::fs::write(dir.path().join("run/journal.sqlite"), "xx\n").unwrap();
    let shown = sgs(&["status", &name]).expect(1).out;
    let damage = "journal.sqlite is damaged: it is not an SQLite database";
    assert!(words(&shown).contains(&format!("state {name}/{damage}")), "{shown}");
}

#[cfg(unix)]
#[test]
fn the_page_is_served_until_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let name = path(dir.path(), "run");
    round(&create(Path::new(&name)), 0);
    let mut child =
        command(&["status", "--serve", "127.0.0.1:0", &name]).stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
    let address = url.trim().trim_start_matches("http://").trim_end_matches('/');
    let mut page = String::new();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<html"), "{page}");
    let stopped = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_public_address_needs_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let name = path(dir.path(), "run");
    drop(create(Path::new(&name)));
    let done = sgs(&["status", &name, "--serve", "0.0.0.0:0"]).expect(2);
    assert!(done.err.contains("give --token"), "{}", done.err);
}

/// A run or a database may come from an untrusted source, so its texts must not control the terminal.
#[test]
fn quoted_files_print_no_escape_codes() {
    let dir = tempfile::tempdir().unwrap();
    let name = path(dir.path(), "run");
    let text = "method = \"\\u001b[2J\\u001b]0;mine\\u0007\"\n".to_owned();
    let config = FrozenConfig { text, version: "0.9".into(), data: Default::default() };
    drop(RunDir::create(Path::new(&name), &config, None).unwrap());
    let shown = sgs(&["status", &name]).expect(0).out;
    assert!(!shown.contains('\x1b') && shown.contains("\\u001b[2J\\u001b]0;mine\\u0007"), "{shown:?}");
    let json = sgs(&["status", "--json", &name]).expect(0).json();
    assert_eq!(json["method"], "\x1b[2J\x1b]0;mine\x07");
    let proofs = file(dir.path(), "proofs.jsonl", "");
    let database = file(dir.path(), "bad.mm", "$c \x1b[31mred $.\n");
    let error = sgs(&["verify", &proofs, "--database", &database]).expect(2).err;
    assert!(!error.contains('\x1b') && error.contains("bad.mm"), "{error:?}");
}
