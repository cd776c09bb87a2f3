//! Tests the report and the live page in a browser. `SGS_SCREENSHOTS` names a directory for screenshots.

use crate::chromium;
use crate::synthetic;
use chromium::{Browser, DARK_PAPER, PAPER};
use sgs_analysis::figures::FigureOptions;
use sgs_analysis::live::{LiveOptions, LiveServer, LiveStage, LiveStatus, LiveWorker, Recent};
use sgs_analysis::report::write;
use sgs_analysis::run::RunData;
use sgs_selfplay::Method;

fn run(method: Method, rounds: u32) -> RunData {
    synthetic::run(method, 1, synthetic::Size { rounds, targets: 60 })
}

#[test]
fn a_report_works_in_a_browser() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let methods = [Method::Sgs, Method::ReinforceHalf, Method::Cispo, Method::SgsNoGuide];
    let runs: Vec<RunData> = methods.map(|m| run(m, 40)).into();
    let options = FigureOptions::default();
    let written = write(&runs, dir.path(), &options).unwrap();
    let address = format!("file://{}", written.index.display());
    browser.prefer("light");
    browser.open(&address);
    assert_eq!(browser.text("document.title"), "Comparison of 4 runs · sgs");
    assert!(browser.value("document.querySelectorAll('.panel svg.full').length").as_u64().unwrap() > 10);

    // Hover: the values of all curves under the pointer are shown until the pointer leaves the figure.
    let panel = "#cumulative-solve-rate .panel";
    browser.point_at(panel, 0.6, 0.5, "!document.getElementById('tip').hidden");
    let tip = browser.text("document.getElementById('tip').innerText");
    for part in ["Generations", "SGS", "CISPO", "No Guide", "%"] {
        assert!(tip.contains(part), "{part} in {tip}");
    }
    browser.screenshot("report-hover");
    browser.point_at("h1", 0.5, 0.5, "document.getElementById('tip').hidden");

    // Sorting: a click on a heading orders the rows by number, and a second click reverses them.
    let solved = "#rows-runs tr>:nth-child(7)";
    let ordered = |sign: i32| {
        format!(
            "(()=>{{let v=Array.from(document.querySelectorAll('{solved}')).map(c=>{sign}*Number(c.dataset.v));\
             return v.length===4&&v[0]<v[3]&&v.every((x,i)=>!i||v[i-1]<=x)}})()"
        )
    };
    browser.click("#runs table th:nth-child(7) button");
    browser.wait(&ordered(1));
    browser.click("#runs table th:nth-child(7) button");
    browser.wait(&ordered(-1));

    // A link to a folded section opens it. Its table can be filtered by round.
    assert_eq!(browser.value("document.querySelector('#targets-0>details').open"), false);
    browser.run("location.hash='targets-0'");
    browser.wait("document.querySelector('#targets-0>details').open");
    let rows = "Array.from(document.querySelectorAll('#rows-targets-0 tr')).filter(r=>!r.hidden)";
    let choose = |round: &str| {
        browser.run(&format!(
            "let s=document.querySelector('select[data-list=rows-targets-0]');s.value='{round}';\
             s.dispatchEvent(new Event('input',{{bubbles:true}}))"
        ));
    };
    choose("0");
    browser.wait(&format!(
        "{rows}.length>0&&{rows}.every(r=>r.dataset.round==='0'&&r.children[1].textContent==='yes')"
    ));
    choose("none");
    browser.wait(&format!("{rows}.length>0&&{rows}.every(r=>r.children[1].textContent==='no')"));
    choose("");
    browser.wait(&format!("{rows}.length===60"));
    browser.is_labelled();

    // Search: entries without all words are hidden, and shown again.
    let shown = "Array.from(document.querySelectorAll('#solved-0>*')).filter(e=>!e.hidden)";
    let all = browser.value(&format!("{shown}.length")).as_u64().unwrap();
    let word = browser.text("document.querySelector('#solved-0 code').textContent");
    browser.type_into("input[data-list=solved-0]", &format!("{word} "));
    browser.wait(&format!(
        "{shown}.length<{all}&&{shown}.every(e=>e.textContent.includes({word:?}))&&{shown}.length>0"
    ));
    assert!(
        browser
            .text("document.querySelector('input[data-list=solved-0]~output').textContent")
            .contains("found")
    );
    browser.type_into("input[data-list=solved-0]", "\u{e003}".repeat(word.len() + 1).as_str());
    browser.wait(&format!("{shown}.length==={all}"));

    // Dark theme: by the viewer's preference and by the button.
    let light = browser.text(PAPER);
    browser.prefer("dark");
    browser.wait(&format!("{PAPER}==='{DARK_PAPER}'"));
    browser.screenshot("report-dark");
    browser.click("#theme");
    browser.wait(&format!("{PAPER}==='{light}'"));
    browser.click("#theme");
    browser.wait(&format!("{PAPER}==='{DARK_PAPER}'"));
    browser.prefer("light");
    browser.click("#theme");
    browser.wait(&format!("{PAPER}==='{light}'"));

    // Wide screen: the navigation shows all sections.
    browser.screen(1280, 900);
    let nav = "document.getElementById('nav')";
    browser.wait(&format!("innerWidth===1280&&{nav}.scrollWidth<={nav}.clientWidth"));

    // Narrow screen: a single column, no overflowing figures, and wide panels in their narrow form.
    browser.fits();
    browser.screenshot("report-wide");
    browser.screen(390, 844);
    browser.wait("innerWidth===390");
    browser.fits();
    browser.run("document.querySelectorAll('main details').forEach(d=>d.open=true)");
    browser.fits();
    // No heading of a table is broken inside a word, and no cell extends into the next one.
    let broken = browser.run(
        "let lines=n=>{let r=document.createRange();r.selectNodeContents(n);return new Set(Array.from(r.getClientRects()).map(b=>b.top)).size};\
         let texts=b=>Array.from(b.childNodes).filter(n=>n.nodeType===3);\
         let isBroken=b=>texts(b).some(n=>lines(n)>n.data.trim().split(/\\s+/).length);\
         let wide=Array.from(document.querySelectorAll('main :is(td,th)')).filter(c=>c.scrollWidth>c.clientWidth+1);\
         return Array.from(document.querySelectorAll('main th button')).filter(isBroken).concat(wide).map(e=>e.outerHTML)",
    );
    assert_eq!(broken, serde_json::json!([]));
    let display = |kind: &str| {
        let svg = format!("document.querySelector('#cumulative-solve-rate svg.{kind}')");
        browser.text(&format!("getComputedStyle({svg}).display"))
    };
    assert_eq!((display("full").as_str(), display("narrow").as_str()), ("none", "block"));
    browser.screenshot("report-narrow");
    browser.keeps_to_itself(&address);

    // A standalone figure with a dark theme.
    browser.prefer("dark");
    browser.open(&format!("file://{}", dir.path().join("figures/health.svg").display()));
    browser.wait(&format!("getComputedStyle(document.querySelector('rect')).fill==='{DARK_PAPER}'"));
    browser.screenshot("figure-dark");
}

fn status(done: u64, recent: Vec<Recent>) -> LiveStatus {
    let worker = LiveWorker { name: "generate-0".into(), kind: "generate".into(), tasks: 32, silent_s: 0.2 };
    LiveStatus {
        round: Some(12),
        stages: vec![LiveStage { name: "Rollouts".into(), done, total: 800, rate: Some(99.5) }],
        queue: vec![("pending".into(), 800 - done), ("leased".into(), 32)],
        workers: vec![worker],
        recent,
        message: "sampling".into(),
    }
}

fn recent(kind: &str, problem: &str, statement: &str) -> Recent {
    let text = format!("the text for {problem}");
    Recent {
        kind: kind.into(),
        problem: problem.into(),
        statement: statement.into(),
        text,
        scores: "relevance 4/5".into(),
    }
}

#[test]
fn the_live_page_follows_a_run_in_a_browser() {
    let Some(browser) = Browser::start() else { return };
    let whole = run(Method::Sgs, 40);
    let until = |rounds: usize| {
        let mut run = whole.clone();
        run.rounds.truncate(rounds);
        run
    };
    let options = FigureOptions::default();
    let server = LiveServer::start(&LiveOptions::default()).unwrap();
    browser.prefer("light");
    browser.open(&server.url());
    browser.wait("document.body.innerText.includes('No round is finished yet')");

    // The first figures appear without a reload, followed by the status.
    server.publish(&[until(20)], &options);
    let rounds = "Array.from(document.querySelectorAll('.tiles div')).find(d=>d.textContent.includes('rounds (numbered')).textContent";
    browser.wait("document.querySelectorAll('.panel svg.full').length>10");
    browser.wait(&format!("{rounds}==='20rounds (numbered from 0)'"));
    let attack = "|- <img src=x onerror=alert(1)>";
    let first = [recent("proof", "addrid", "|- ( A + 0 ) = A"), recent("conjecture", "c12-a-0", attack)];
    server.set_status(&status(200, first.to_vec()));
    browser.wait("document.querySelectorAll('#live-recent .card').length===2");
    browser.wait("document.getElementById('live-state').textContent==='Round 12 · sampling'");
    let live = browser.text("document.getElementById('live').innerText");
    // The title and the result are above the current activity.
    let top = |id: &str| {
        browser
            .value(&format!("document.getElementById('{id}').getBoundingClientRect().top"))
            .as_f64()
            .unwrap()
    };
    assert!(top("head") < top("live") && top("live") < top("cumulative-solve-rate"));
    browser.is_labelled();
    for part in ["Rollouts", "200 of 800 · 100/s", "pending 600", "1 worker", attack] {
        assert!(live.contains(part), "{part} in {live}");
    }
    assert_eq!(browser.value("document.querySelectorAll('#live img').length"), 0);

    // Opened details, typed text and the order of tables are kept when the page is updated.
    browser.click("#targets-0 table th:nth-child(6) button");
    browser.click("#live-recent .card:nth-child(2) summary");
    browser.type_into("#live-recent-search", "c12");
    browser
        .wait("Array.from(document.querySelectorAll('#live-recent .card')).filter(c=>!c.hidden).length===1");
    browser.run("location.hash='conjecture-examples-0'");
    browser.wait("document.querySelector('#conjecture-examples-0>details').open");
    browser.click("#conjectures-0 .card:nth-child(3) summary");
    browser.type_into("input[data-list=conjectures-0]", "round");
    browser.run("window.sgsSame=document.getElementById('configuration')");
    let mut more = first.to_vec();
    more.insert(0, recent("conjecture", "c12-b-0", "|- ph"));
    server.set_status(&status(640, more));
    server.publish(&[until(30)], &options);
    browser.wait(&format!("{rounds}==='30rounds (numbered from 0)'"));
    browser.wait("document.querySelectorAll('#live-recent .card').length===3");
    browser.wait("document.getElementById('live').innerText.includes('640 of 800')");
    browser
        .wait("Array.from(document.querySelectorAll('#live-recent .card')).filter(c=>!c.hidden).length===2");
    assert_eq!(browser.value("document.querySelector('#live-recent .card:nth-child(3) details').open"), true);
    browser.wait("document.querySelector('input[data-list=conjectures-0]').value==='round'");
    assert_eq!(
        browser.value("document.querySelector('#conjectures-0 .card:nth-child(3) details').open"),
        true
    );
    assert_eq!(
        browser.value("window.sgsSame===document.getElementById('configuration')"),
        true,
        "kept as it was"
    );
    browser
        .wait("document.querySelector('#targets-0 th:nth-child(6)').getAttribute('aria-sort')==='ascending'");
    browser.point_at("#cumulative-solve-rate .panel", 0.6, 0.5, "!document.getElementById('tip').hidden");
    browser.screenshot("live");

    browser.prefer("dark");
    browser.wait(&format!("{PAPER}==='{DARK_PAPER}'"));
    browser.screen(390, 844);
    browser.wait("innerWidth===390");
    browser.fits();
    browser.screenshot("live-narrow-dark");
    browser.keeps_to_itself(&server.url());

    drop(server);
    browser.wait("document.getElementById('live-state').textContent.includes('does not respond')");
    browser.wait("document.querySelectorAll('.panel svg.full').length>10");
}
