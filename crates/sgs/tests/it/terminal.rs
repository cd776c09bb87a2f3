//! The live view in a real terminal (tmux): at 60, 80 and 120 columns, when the terminal is resized, and at the end.
//!
//! Screens are written to the folder `SGS_SCREENSHOTS`.
#![cfg(unix)]

use crate::program::{file, path, sgs, small_model};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Time limit of waits. It is much longer than needed, so that tests also pass on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// A tmux session with a shell.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// Starts a terminal. Returns `None` if tmux is not installed; panics instead if `SGS_REQUIRE` contains `tmux`.
    fn start(name: &str, columns: u32, lines: u32) -> Option<Self> {
        let terminal = Self { socket: format!("sgs-{name}-{}", std::process::id()) };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let start = ["new-session", "-d", "-x", &columns, "-y", &lines, "sh"];
        match terminal.tmux(&start) {
            Some(_) => {}
            None => {
                let required = std::env::var("SGS_REQUIRE").unwrap_or_default();
                assert!(!required.contains("tmux"), "SGS_REQUIRE names tmux, which does not start here");
                println!("skipped: tmux is not installed (Debian package `tmux`)");
                return None;
            }
        }
        // Use a short prompt without escape sequences.
        terminal.type_line("PS1='$ '; clear");
        // A line that is typed before its prompt is not echoed after it.
        terminal.wait("the prompt", |screen| screen.trim_end().lines().last() == Some("$"));
        Some(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> Option<String> {
        let output = Command::new("tmux")
            .args(["-L", &self.socket, "-f", "/dev/null"])
            .args(arguments)
            .output()
            .ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Types a line and presses Enter.
    fn type_line(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]).unwrap();
        self.tmux(&["send-keys", "Enter"]).unwrap();
    }

    /// Returns the screen and the last lines that have scrolled off.
    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-S", "-200"]).unwrap()
    }

    /// Returns the same text with wrapped lines joined.
    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-J", "-S", "-200"]).unwrap()
    }

    /// Waits until `is_so` accepts the screen, and returns it.
    fn wait(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let started = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(started.elapsed() < PATIENCE, "{what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Saves the screen to the folder `SGS_SCREENSHOTS`, if it is set.
    fn save(&self, name: &str) {
        if let Some(folder) = std::env::var_os("SGS_SCREENSHOTS") {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(Path::new(&folder).join(format!("terminal-{name}.txt")), self.screen()).unwrap();
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Returns the shell command of a run with this number of rounds.
fn run(folder: &str, rounds: u32, more: &str) -> String {
    let (cache, model) = (env!("CARGO_TARGET_TMPDIR"), small_model());
    format!(
        "XDG_CACHE_HOME={cache} {} run --out {folder} --set {model} --set rounds={rounds} --set minutes=0 --set \
         algorithm.batch.size=12 --set algorithm.rollouts_per_problem=4 --set evaluation.problems=5 {more}; echo code $?",
        env!("CARGO_BIN_EXE_sgs")
    )
}

/// Returns the lines about finished rounds.
fn rounds(screen: &str) -> Vec<&str> {
    screen.lines().filter(|line| line.starts_with("round ") && line.contains("ever solved")).collect()
}

/// Enough rounds that a busy machine sees the view between the first and the last.
const ROUNDS: u32 = 24;

fn check_live_view(columns: u32, lines: u32) {
    let name = format!("{columns}x{lines}");
    let Some(terminal) = Terminal::start(&name, columns, lines) else { return };
    let dir = tempfile::tempdir().unwrap();
    let folder = path(dir.path(), "run");
    terminal.type_line(&run(&folder, ROUNDS, ""));
    let stage = format!(" of {ROUNDS})  sampling");
    let live = terminal.wait("the live view", |screen| {
        assert!(!screen.contains("\ncode "), "the run ended before the view was seen:\n{screen}");
        let live = |line: &str| {
            line.contains("rollouts ") && !line.contains("of rollouts") && !line.contains("--set")
        };
        let filled = |line: &str| line.starts_with('█') && line.contains(&stage);
        screen.lines().any(filled) && screen.lines().any(live) && !rounds(screen).is_empty()
    });
    terminal.save(&format!("{name}-live"));
    // The view is on the screen once, without remains of an older one and without wrapped lines.
    for part in [stage.as_str(), "rollouts ", "ever solved "] {
        let lines = live.lines().filter(|line| line.contains(part) && !line.contains("--set"));
        // "last round 20.8% of rollouts" is another line of the view.
        let lines = lines.filter(|line| {
            !line.starts_with("round ") && (part != "rollouts " || !line.contains("of rollouts"))
        });
        assert_eq!(lines.count(), 1, "{part}\n{live}");
    }
    assert!(!live.contains(" 0 of 0") && !live.contains("0/0"), "an empty count:\n{live}");
    let bar = live.lines().find(|line| line.contains(&stage)).unwrap();
    assert!(bar.starts_with('█') && bar.contains(" left"), "a bar over the run with the time left:\n{live}");
    let end = terminal.wait("the end", |screen| screen.contains("\ncode 0"));
    terminal.save(&format!("{name}-end"));
    let last = format!("round {:>4} ", ROUNDS - 1);
    // The lines are those of the first round, of rounds that solve something, and of the last one.
    assert!((2..=ROUNDS as usize).contains(&rounds(&end).len()), "{end}");
    assert!(rounds(&end).last().is_some_and(|line| line.starts_with(&last)), "{end}");
    let place = |part: &str| end.find(part).unwrap_or_else(|| panic!("{part}\n{end}"));
    assert!(place("selected rounds") < place("round    0 "), "{end}");
    assert!(place(&last) < place(&format!("held out, after {ROUNDS} rounds")), "{end}");
    // A narrow terminal breaks some lines and the command.
    let most = if columns < 80 { 56 } else { 40 };
    assert!(end.lines().filter(|line| !line.is_empty()).count() <= most, "{end}");
    assert!(rounds(&end).iter().all(|line| line.ends_with(" s")), "each round must take one line:\n{end}");
    for part in ["solved      ", "time        ", "next        sgs prove --run "] {
        assert!(end.lines().any(|line| line.starts_with(part)), "{part}\n{end}");
    }
    assert!(!end.contains(" verdicts "), "the progress bars must be gone:\n{end}");
    // Only commands and paths are broken inside words.
    let text = terminal.text();
    let broken = text.lines().filter(|line| line.chars().count() > columns as usize);
    for line in
        broken.filter(|line| !["next ", "to continue ", "report ", "$ "].iter().any(|s| line.starts_with(s)))
    {
        assert!(line.contains(&folder), "broken inside a word: {line}\n{end}");
    }
}

#[test]
fn the_live_view_fits_60_columns() {
    check_live_view(60, 40);
}

#[test]
fn the_live_view_fits_80_columns() {
    check_live_view(80, 24);
}

#[test]
fn the_live_view_fits_120_columns() {
    check_live_view(120, 40);
}

#[test]
fn an_error_is_broken_between_words() {
    let Some(terminal) = Terminal::start("error", 60, 24) else { return };
    terminal.type_line(&format!("{} run no-such-method; echo code $?", env!("CARGO_BIN_EXE_sgs")));
    let screen = terminal.wait("the end", |screen| screen.contains("\ncode 2"));
    let text = terminal.text();
    let error: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("error: ")).collect();
    assert!(error.len() > 3 && error.iter().all(|line| line.chars().count() <= 60), "{screen}");
    assert!(error[1].starts_with("    "), "{screen}");
}

#[test]
fn a_warning_stays_above_the_view_when_the_terminal_is_resized() {
    let Some(terminal) = Terminal::start("resized", 120, 40) else { return };
    let dir = tempfile::tempdir().unwrap();
    let folder = path(dir.path(), "run");
    // Simulate a cluster that accepts no jobs. Its error message appears while the view is on the screen.
    let sbatch = dir.path().join("sbatch");
    std::fs::write(&sbatch, "#!/bin/sh\necho 'no jobs are taken today' >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&sbatch, std::fs::Permissions::from_mode(0o755)).unwrap();
    let bin = dir.path().display();
    let pool = format!("by = \"slurm\"\ncount = 1\npoll-s = 0.3\nbin = \"{bin}\"\n");
    let fleet = file(dir.path(), "fleet.toml", &format!("listen = \"127.0.0.1:0\"\n[generate]\n{pool}"));
    terminal.type_line(&run(&folder, 3, &format!("--workers {fleet}")));
    terminal.wait("the view with a warning above it", |screen| {
        let warned = screen.find("sbatch rejects");
        warned.is_some() && warned < screen.rfind("evaluating the base model")
    });
    terminal.tmux(&["resize-window", "-x", "80", "-y", "24"]).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let screen = terminal.text();
    terminal.save("resized");
    assert!(screen.contains("no jobs are taken today"), "the warning has vanished:\n{screen}");
    terminal.tmux(&["send-keys", "C-c"]).unwrap();
    let end = terminal.wait("the end", |screen| screen.contains("\ncode 130"));
    assert!(end.contains("stopped; to continue: `sgs resume"), "{end}");
}

/// Checks that an interactive Bash, which splits words at `=`, completes values after it and keeps its own settings.
#[test]
fn bash_completes_values_after_an_equals_sign() {
    let Some(terminal) = Terminal::start("completion", 100, 24) else { return };
    let dir = tempfile::tempdir().unwrap();
    let script = file(dir.path(), "sgs.bash", &sgs(&["completions", "bash"]).expect(0).out);
    // Keys that arrive while Bash starts or runs a command may be lost.
    terminal.type_line("PS1='$ ' exec bash --norc --noprofile");
    terminal.wait("the prompt", |screen| screen.lines().any(|line| line.trim_end() == "$"));
    terminal.type_line(&format!("source {script}; clear"));
    terminal.wait("an empty screen", |screen| screen.trim() == "$");
    for (typed, completed) in [
        ("sgs run --size=lean-c", "sgs run --size=lean-core"),
        ("sgs run --size=\"metamath-q", "sgs run --size=\"metamath-quick\""),
        ("sgs run --set='model.device=cu", "sgs run --set='model.device=cuda'"),
        ("sgs run --size metamath-q", "sgs run --size metamath-quick"),
        ("sgs run --set algorithm.guide.kind=ru", "sgs run --set algorithm.guide.kind=rubric"),
        ("sgs run --set=model.device=cu", "sgs run --set=model.device=cuda"),
        ("sgs run --set rou", "sgs run --set rounds="),
        ("sgs run --set rounds=3 cis", "sgs run --set rounds=3 cispo"),
    ] {
        terminal.tmux(&["send-keys", "-l", typed]).unwrap();
        terminal.tmux(&["send-keys", "Tab"]).unwrap();
        let expected = format!("$ {completed}");
        terminal.wait(completed, |screen| screen.lines().any(|line| line.trim_end() == expected));
        terminal.tmux(&["send-keys", "C-u"]).unwrap();
    }
}

#[test]
fn statements_are_proved_interactively() {
    let Some(terminal) = Terminal::start("prove", 80, 24) else { return };
    let cache = env!("CARGO_TARGET_TMPDIR");
    let program = env!("CARGO_BIN_EXE_sgs");
    terminal.type_line(&format!("XDG_CACHE_HOME={cache} {program} prove -n 64; echo code $?"));
    terminal.wait("the greeting", |screen| screen.contains("Type a statement") && screen.contains("\n>"));
    terminal.type_line("ph -> ph");
    terminal.wait("the suggestion", |screen| screen.contains("did you mean `|- ( ph -> ph )`"));
    terminal.type_line("( ph -> ph )");
    terminal
        .wait("an answer", |screen| screen.contains("proved by sample") || screen.contains("no proof of"));
    terminal.save("prove");
    terminal.type_line("quit");
    terminal.wait("the end", |screen| screen.contains("\ncode 0"));
}
