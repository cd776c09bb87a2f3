//! A run in a real terminal (tmux): what a person sees at 80 and at 120 columns, when the terminal is resized, and at the
//! end. `SGS_SCREENSHOTS` names a folder for the screens to look at.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // tests say so by panicking

mod program;

use program::{file, path};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Far more than it takes, so that a busy machine fails no test.
const PATIENCE: Duration = Duration::from_secs(240);

/// A terminal with a shell in it.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// So many columns and lines; `None` where there is no tmux, which is an error if `SGS_REQUIRE` names it.
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
        // Colours only where they mean something: the text is what is looked at.
        terminal.types("PS1='$ '; clear");
        Some(terminal)
    }

    fn tmux(&self, words: &[&str]) -> Option<String> {
        let output =
            Command::new("tmux").args(["-L", &self.socket, "-f", "/dev/null"]).args(words).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn types(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]).unwrap();
        self.tmux(&["send-keys", "Enter"]).unwrap();
    }

    /// The screen, and the last lines that have left it.
    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-S", "-200"]).unwrap()
    }

    /// The same, with lines that the terminal has broken in one piece.
    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-J", "-S", "-200"]).unwrap()
    }

    /// Waits until the screen is as it should be.
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

    fn keep(&self, name: &str) {
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

/// A run of so many rounds, typed at the shell.
fn run(folder: &str, rounds: u32, more: &str) -> String {
    let cache = env!("CARGO_TARGET_TMPDIR");
    format!(
        "XDG_CACHE_HOME={cache} {} run --out {folder} --set rounds={rounds} --set minutes=0 --set \
         algorithm.batch.size=12 --set algorithm.rollouts_per_problem=4 --set evaluation.problems=5 {more}; echo code $?",
        env!("CARGO_BIN_EXE_sgs")
    )
}

/// Lines about rounds that are over.
fn rounds(screen: &str) -> Vec<&str> {
    screen.lines().filter(|line| line.starts_with("round ") && line.contains("ever solved")).collect()
}

fn at(columns: u32, lines: u32) {
    let name = format!("{columns}x{lines}");
    let Some(terminal) = Terminal::start(&name, columns, lines) else { return };
    let dir = tempfile::tempdir().unwrap();
    let folder = path(dir.path(), "run");
    terminal.types(&run(&folder, 3, ""));
    let live = terminal.wait("the live view", |screen| {
        screen.contains(" of 3  sampling") && screen.contains("rollouts") && rounds(screen).len() == 1
    });
    terminal.keep(&format!("{name}-live"));
    // The view stands once: nothing of an older one is left above it, and no line of it is broken.
    for part in [" of 3  sampling", " conjectures ", " rollouts ", " verdicts ", " reviews "] {
        let lines = live.lines().filter(|line| line.contains(part) && !line.contains("--set"));
        assert_eq!(lines.count(), 1, "{part}\n{live}");
    }
    assert!(live.lines().any(|line| line.starts_with("ever solved ")), "{live}");
    let end = terminal.wait("the end", |screen| screen.contains("\ncode 0"));
    terminal.keep(&format!("{name}-end"));
    assert_eq!(rounds(&end).len(), 3, "{end}");
    assert!(rounds(&end).iter().all(|line| line.ends_with(" s")), "each round is one line:\n{end}");
    for part in ["solved      ", "time        ", "next        sgs prove --run "] {
        assert!(end.lines().any(|line| line.starts_with(part)), "{part}\n{end}");
    }
    assert!(!end.contains(" verdicts "), "the bars are gone:\n{end}");
}

#[test]
fn a_run_is_seen_at_80_columns() {
    at(80, 24);
}

#[test]
fn a_run_is_seen_at_120_columns() {
    at(120, 40);
}

#[test]
fn a_warning_stays_above_the_view_and_a_resized_terminal_is_filled() {
    let Some(terminal) = Terminal::start("resized", 120, 40) else { return };
    let dir = tempfile::tempdir().unwrap();
    let folder = path(dir.path(), "run");
    // A cluster that takes no jobs: its words come while the view is up.
    let sbatch = dir.path().join("sbatch");
    std::fs::write(&sbatch, "#!/bin/sh\necho 'no jobs are taken today' >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&sbatch, std::fs::Permissions::from_mode(0o755)).unwrap();
    let bin = dir.path().display();
    let crew = format!("by = \"slurm\"\ncount = 1\npoll-s = 0.3\nbin = \"{bin}\"\n");
    let fleet = file(dir.path(), "fleet.toml", &format!("listen = \"127.0.0.1:0\"\n[generate]\n{crew}"));
    terminal.types(&run(&folder, 3, &format!("--workers {fleet}")));
    let told = "no jobs are taken today";
    terminal.wait("the view with a warning above it", |screen| {
        let warned = screen.find("sbatch does not take");
        warned.is_some() && warned < screen.rfind(" of 3  evaluating")
    });
    terminal.tmux(&["resize-window", "-x", "80", "-y", "24"]).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let screen = terminal.text();
    terminal.keep("resized");
    assert!(screen.contains(told), "the warning has vanished:\n{screen}");
    terminal.tmux(&["send-keys", "C-c"]).unwrap();
    let end = terminal.wait("the end", |screen| screen.contains("\ncode 130"));
    assert!(end.contains("stopped; go on with `sgs resume"), "{end}");
}

#[test]
fn statements_are_typed_and_answered() {
    let Some(terminal) = Terminal::start("prove", 80, 24) else { return };
    let cache = env!("CARGO_TARGET_TMPDIR");
    let program = env!("CARGO_BIN_EXE_sgs");
    terminal.types(&format!("XDG_CACHE_HOME={cache} {program} prove -n 64; echo code $?"));
    terminal.wait("the greeting", |screen| screen.contains("Type a statement") && screen.contains("\n>"));
    terminal.types("ph -> ph");
    terminal.wait("the suggestion", |screen| screen.contains("did you mean `|- ( ph -> ph )`"));
    terminal.types("( ph -> ph )");
    terminal
        .wait("an answer", |screen| screen.contains("proved by sample") || screen.contains("no proof of"));
    terminal.keep("prove");
    terminal.types("quit");
    terminal.wait("the end", |screen| screen.contains("\ncode 0"));
}
