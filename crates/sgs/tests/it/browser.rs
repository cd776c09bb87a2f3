//! The live page and the report of a real run, in a real browser.
//!
//! Screenshots are written to the folder `SGS_SCREENSHOTS`.
#![cfg(unix)]

use crate::chromium::{Browser, DARK_PAPER, PAPER};
use crate::program::{command, path, sgs, small_model};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

/// A child process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Arguments of the smallest run with targets, conjectures, reviews and updates.
fn run_arguments(folder: &str, rounds: u32) -> Vec<String> {
    let rounds = format!("rounds={rounds}");
    let mut arguments: Vec<String> = ["run", "--out", folder].map(str::to_owned).into();
    for setting in [
        small_model().as_str(),
        rounds.as_str(),
        "minutes=0",
        "algorithm.batch.size=24",
        "algorithm.rollouts_per_problem=4",
        "sampling.batch=64",
        "sampling.memory_mib=64",
        "algorithm.optimizer.batch_size=8",
        "training.micro_batch_tokens=512",
        "evaluation.problems=5",
        "evaluation.samples=2",
    ] {
        arguments.extend(["--set".to_owned(), setting.to_owned()]);
    }
    arguments
}

/// Checks that the page fits desktop and phone widths in light and dark mode, and takes a screenshot of each.
fn check_layouts(browser: &Browser, name: &str) {
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

/// Checks the tooltip with the values of the curves at the pointer.
fn check_tooltip(browser: &Browser) {
    browser.point_at("#cumulative-solve-rate .panel", 0.5, 0.5, "!document.getElementById('tip').hidden");
    let tip = browser.text("document.getElementById('tip').innerText");
    assert!(tip.contains("Generations") && tip.contains('%'), "{tip}");
}

/// Checks that a search term hides the cards without it, and that deleting the term shows them again.
fn check_search(browser: &Browser, list: &str) {
    let shown = format!("Array.from(document.querySelectorAll('#{list}>*')).filter(e=>!e.hidden)");
    let input = format!("input[data-list={list}]");
    browser.type_into(&input, "no-card-contains-this");
    browser.wait(&format!("{shown}.length===0"));
    browser.type_into(&input, &"\u{e003}".repeat("no-card-contains-this".len()));
    browser.wait(&format!("{shown}.length>0"));
}

#[test]
fn live_page_and_report_of_a_real_run() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let folder = path(dir.path(), "run");
    let mut run = command(&run_arguments(&folder, 3));
    let run = run.args(["--serve", "0"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut run = Running(run.spawn().unwrap());
    let mut lines = BufReader::new(run.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let found = lines.by_ref().find_map(|l| l.strip_prefix("live page: ").map(str::to_owned));
    let address = found.expect("an address on standard error");
    // Drain the remaining output, so that the program never blocks on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    browser.prefer("light");
    browser.open(&address);

    // The page updates itself: first the current activity, then the figures of the first and the last round.
    browser.wait("document.getElementById('live').innerText.includes('Rollouts')");
    browser.wait("document.querySelectorAll('#live-recent .card').length>3");
    check_search(&browser, "live-recent");
    browser.wait(&format!("{FIGURES}>10"));
    browser.wait("document.title.startsWith('run')");
    let rounds = "Array.from(document.querySelectorAll('.tiles div')).find(d=>d.textContent.includes('rounds (numbered'))?.textContent";
    browser.wait(&format!("{rounds}==='3rounds (numbered from 0)'"));
    check_tooltip(&browser);
    check_layouts(&browser, "real-live");
    browser.keeps_to_itself(&address);
    assert!(run.0.wait().unwrap().success());
    // The page is still open, but its server has ended.
    browser.wait("document.getElementById('live-state').textContent.includes('finished')");
    // The last evaluation follows the last round, and the page has requested its figures.
    let late = browser.requests();
    assert!(late.iter().all(|url| url.starts_with(&address)), "{late:?}");

    // Open the report that the run has written.
    let page = format!("file://{}/report/index.html", folder);
    browser.open(&page);
    assert!(browser.value(FIGURES).as_u64().unwrap() > 20);
    assert!(
        browser.text("document.querySelector('.proof').textContent").contains("|-"),
        "the report contains no proofs"
    );
    check_tooltip(&browser);
    let verdict = browser.text("document.querySelector('.verdict').textContent");
    for part in ["The Solver proved ", "held-out problems, pass@1 ", "Guide"] {
        assert!(verdict.contains(part), "{part} in {verdict}");
    }
    check_search(&browser, "solved-0");
    browser.run("location.hash='conjecture-examples-0'");
    browser.wait("document.querySelector('#conjecture-examples-0>details').open");
    check_search(&browser, "conjectures-0");
    browser.is_labelled();
    browser.click("#conjectures-0 .card summary");
    assert_eq!(browser.value("document.querySelector('#conjectures-0 .card details').open"), true);
    check_layouts(&browser, "real-report");
    browser.keeps_to_itself(&page);

    // Serve the same run from another process.
    let mut watcher = command(&["status", folder.as_str(), "--serve"]);
    let mut watcher = Running(watcher.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut address = String::new();
    BufReader::new(watcher.0.stdout.take().unwrap()).read_line(&mut address).unwrap();
    browser.open(address.trim());
    browser.wait(&format!("{rounds}==='3rounds (numbered from 0)'"));
    browser.wait("document.getElementById('live-state').textContent.includes('finished')");
    browser.keeps_to_itself(address.trim());
}

#[test]
fn comparison_report_of_real_runs() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut folders = Vec::new();
    for (method, seed) in [("sgs", 1), ("sgs", 2), ("reinforce-half", 1), ("reinforce-half", 2)] {
        let folder = path(dir.path(), &format!("{method}-{seed}"));
        let mut arguments = run_arguments(&folder, 2);
        arguments.insert(1, method.to_owned());
        for setting in [&format!("seed={seed}"), "algorithm.batch.size=6", "algorithm.guide.min_readable=0"] {
            arguments.extend(["--set", setting].map(str::to_owned));
        }
        sgs(&arguments).expect(0);
        folders.push(folder);
    }
    let out = path(dir.path(), "comparison");
    let mut arguments = vec!["report".to_owned(), "--out".to_owned(), out.clone()];
    arguments.extend(folders.iter().cloned());
    arguments.extend(["--yardstick", "another model, pass@8=42%"].map(str::to_owned));
    sgs(&arguments).expect(0);
    let page = format!("file://{out}/index.html");
    browser.prefer("light");
    browser.open(&page);
    let body = browser.text("document.body.textContent");
    for part in ["SGS, 2 seeds", "another model, pass@8", "from the lowest to the highest"] {
        assert!(body.contains(part), "{part}");
    }
    assert_eq!(browser.value("document.querySelectorAll('#runs table').length"), 1);
    check_tooltip(&browser);
    check_layouts(&browser, "real-comparison");
    browser.keeps_to_itself(&page);
}
