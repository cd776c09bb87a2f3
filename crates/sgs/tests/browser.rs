//! A real run in a real browser: its live page while it goes, and its report when it is over. `SGS_SCREENSHOTS` names a
//! folder for pictures to look at.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests say so by panicking

#[path = "../../analysis/tests/chromium/mod.rs"]
mod chromium;
mod program;

use chromium::{Browser, DARK_PAPER, PAPER};
use program::{command, path, sgs};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

/// A child that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The smallest run that has everything: targets, conjectures, reviews, updates.
fn run_arguments(folder: &str, rounds: u32) -> Vec<String> {
    let rounds = format!("rounds={rounds}");
    let mut arguments: Vec<String> = ["run", "--out", folder].map(str::to_owned).into();
    for setting in [
        rounds.as_str(),
        "minutes=0",
        "algorithm.batch.size=24",
        "algorithm.rollouts_per_problem=4",
        "sampling.batch=64",
        "sampling.memory_mib=64",
        "algorithm.optimizer.batch_size=8",
        "evaluation.problems=5",
        "evaluation.samples=2",
    ] {
        arguments.extend(["--set".to_owned(), setting.to_owned()]);
    }
    arguments
}

/// A screen as wide as a desk's or a phone's, in light or dark, that the page fits; a picture of it.
fn look(browser: &Browser, name: &str) {
    for (width, height, size) in [(1200, 900, "wide"), (390, 844, "narrow")] {
        browser.screen(width, height);
        browser.wait(&format!("innerWidth==={width}"));
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            browser.wait(&format!("({PAPER}==='{DARK_PAPER}')==={}", scheme == "dark"));
            browser.fits();
            browser.screenshot(&format!("{name}-{size}-{scheme}"));
        }
    }
    browser.screen(1200, 900);
    browser.prefer("light");
    browser.wait("innerWidth===1200");
}

const FIGURES: &str = "document.querySelectorAll('.panel svg.full').length";

/// The values of the curves under the pointer.
fn hover(browser: &Browser) {
    browser.point_at("#training-dynamics .panel", 0.5, 0.5, "!document.getElementById('tip').hidden");
    let tip = browser.text("document.getElementById('tip').innerText");
    assert!(tip.contains("Generations") && tip.contains('%'), "{tip}");
}

/// Typing a word hides the cards that do not hold it; taking it away shows them again.
fn search(browser: &Browser, list: &str) {
    let shown = format!("Array.from(document.querySelectorAll('#{list}>*')).filter(e=>!e.hidden)");
    let input = format!("input[data-list={list}]");
    browser.type_into(&input, "syntax-that-nobody-writes");
    browser.wait(&format!("{shown}.length===0"));
    browser.type_into(&input, &"\u{e003}".repeat("syntax-that-nobody-writes".len()));
    browser.wait(&format!("{shown}.length>0"));
}

#[test]
fn a_real_run_is_followed_and_reported() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let folder = path(dir.path(), "run");
    let mut run = command(&run_arguments(&folder, 3));
    let run = run.args(["--serve", "0"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut run = Running(run.spawn().unwrap());
    let mut lines = BufReader::new(run.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let found = lines.by_ref().find_map(|l| l.strip_prefix("live page: ").map(str::to_owned));
    let address = found.expect("the program says where the page is");
    // Whatever is said later is read away, so that the program never waits for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    browser.prefer("light");
    browser.open(&address);

    // What happens now comes by itself, and then the figures of the first round and of the last.
    browser.wait("document.getElementById('live').innerText.includes('Rollouts')");
    browser.wait("document.querySelectorAll('#live-recent .card').length>3");
    search(&browser, "live-recent");
    browser.wait(&format!("{FIGURES}>10"));
    browser.wait("document.title.startsWith('run')");
    let rounds = "Array.from(document.querySelectorAll('.tiles div')).find(d=>d.textContent.endsWith('rounds'))?.textContent";
    browser.wait(&format!("{rounds}==='3rounds'"));
    hover(&browser);
    look(&browser, "real-live");
    browser.keeps_to_itself(&address);
    assert!(run.0.wait().unwrap().success());
    // The page is still open, and nobody answers it any more.
    browser.wait("document.getElementById('live-state').textContent.includes('finished')");
    // The last evaluation comes after the last round, and the page has asked for its figures.
    let late = browser.requests();
    assert!(late.iter().all(|url| url.starts_with(&address)), "{late:?}");

    // The report that the run has left behind.
    let page = format!("file://{}/report/index.html", folder);
    browser.open(&page);
    assert!(browser.value(FIGURES).as_u64().unwrap() > 20);
    assert!(
        browser.text("document.querySelector('.proof').textContent").contains("|-"),
        "proofs are written out"
    );
    hover(&browser);
    search(&browser, "solved-0");
    search(&browser, "conjectures-0");
    browser.click("#conjectures-0 .card summary");
    assert_eq!(browser.value("document.querySelector('#conjectures-0 .card details').open"), true);
    look(&browser, "real-report");
    browser.keeps_to_itself(&page);

    // The same run as another process serves it.
    let mut watcher = command(&["status", folder.as_str(), "--serve"]);
    let mut watcher = Running(watcher.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut address = String::new();
    BufReader::new(watcher.0.stdout.take().unwrap()).read_line(&mut address).unwrap();
    browser.open(address.trim());
    browser.wait(&format!("{rounds}==='3rounds'"));
    browser.wait("document.getElementById('live-state').textContent.includes('finished')");
    browser.keeps_to_itself(address.trim());
}

#[test]
fn real_runs_are_compared() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut folders = Vec::new();
    for (method, seed) in [("sgs", 1), ("sgs", 2), ("reinforce-half", 1), ("reinforce-half", 2)] {
        let folder = path(dir.path(), &format!("{method}-{seed}"));
        let mut arguments = run_arguments(&folder, 2);
        arguments.insert(1, method.to_owned());
        let smaller = "algorithm.batch.size=12".to_owned();
        arguments.extend(["--set".to_owned(), format!("seed={seed}"), "--set".to_owned(), smaller]);
        sgs(&arguments).expect(0);
        folders.push(folder);
    }
    let out = path(dir.path(), "comparison");
    let mut arguments = vec!["report".to_owned(), "--out".to_owned(), out.clone()];
    arguments.extend(folders.iter().cloned());
    arguments.extend(["--yardstick", "another model, pass@8=42%", "--baseline"].map(str::to_owned));
    arguments.push(folders[3].clone());
    sgs(&arguments).expect(0);
    let page = format!("file://{out}/index.html");
    browser.prefer("light");
    browser.open(&page);
    let body = browser.text("document.body.textContent");
    for part in [
        "SGS, 2 seeds",
        "another model, pass@8",
        "from the lowest to the highest",
        "RL (REINFORCE-1/2), seed 2 never solves in its whole run",
    ] {
        assert!(body.contains(part), "{part}");
    }
    assert!(
        browser.value("document.querySelectorAll('#cumulative-solve-rate table').length").as_u64().unwrap()
            > 2
    );
    hover(&browser);
    look(&browser, "real-comparison");
    browser.keeps_to_itself(&page);
}
