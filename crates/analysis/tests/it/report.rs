//! Reports on ordinary, unusual and hostile runs.

use crate::synthetic;
use sgs_analysis::figures::{FigureOptions, Yardstick};
use sgs_analysis::plot::{PanelContent, SeriesStyle};
use sgs_analysis::report::{ReportOptions, fragment, page, write};
use sgs_analysis::run::{RunData, ShownConjecture, SolvedExample};
use sgs_rundir::MetricValues;
use sgs_selfplay::Method;

fn html(runs: &[RunData]) -> String {
    page(&fragment(runs, &ReportOptions::default()), None)
}

fn size(rounds: u32) -> synthetic::Size {
    synthetic::Size { rounds, targets: 60 }
}

#[test]
fn a_report_on_one_run_has_all_its_figures() {
    let run = synthetic::run(Method::Sgs, 1, size(60));
    let fragment = fragment(&[run], &ReportOptions::default());
    let ids: Vec<&str> = fragment.figures.iter().map(|f| f.id.as_str()).collect();
    for id in [
        "cumulative-solve-rate",
        "training-dynamics",
        "conjecture-quality",
        "solve-proximity",
        "entropy",
        "fit-sensitivity",
        "verdicts",
        "health",
        "timings",
        "data-set",
    ] {
        assert!(ids.contains(&id), "{id} in {ids:?}");
    }
    for name in ["scaling-laws", "reaching", "pass-at-k", "timings-by-stage", "fit-sensitivity-parameters"] {
        assert!(fragment.tables.iter().any(|(n, t)| n == name && !t.rows.is_empty()), "{name}");
    }
    let page = page(&fragment, None);
    assert!(page.contains("seed = 1") && page.contains("sgs run sgs --set seed=1"));
}

#[test]
fn a_comparison_has_all_figures_of_the_paper() {
    let methods =
        [Method::Sgs, Method::ReinforceHalf, Method::Cispo, Method::SgsNoGuide, Method::ExpertIteration];
    let runs: Vec<RunData> = (1..).zip(methods).map(|(seed, m)| synthetic::run(m, seed, size(40))).collect();
    let yardsticks = vec![Yardstick { label: "a larger model".into(), rate: 0.4 }];
    let figures = FigureOptions { yardsticks, ..FigureOptions::default() };
    let fragment = fragment(&runs, &ReportOptions { figures, ..ReportOptions::default() });
    let ids: Vec<&str> = fragment.figures.iter().map(|f| f.id.as_str()).collect();
    for id in ["baselines", "ablations", "hard-targets", "wall-time", "baseline-entropy"] {
        assert!(ids.contains(&id), "{id} in {ids:?}");
    }
    for name in ["runs", "against", "reaching"] {
        assert!(fragment.tables.iter().any(|(n, t)| n == name && !t.rows.is_empty()), "{name}");
    }
    assert!(fragment.parts.iter().any(|p| p.html().contains("a larger model")));
}

#[test]
fn seeds_of_a_method_are_averaged_with_a_band_and_an_uncertainty() {
    // Long runs with many targets, so that the fits are confirmed.
    let of = |m, seed| synthetic::run(m, seed, synthetic::Size { rounds: 200, targets: 600 });
    let runs =
        [of(Method::Sgs, 1), of(Method::Sgs, 2), of(Method::ReinforceHalf, 3), of(Method::ReinforceHalf, 4)];
    let fragment = fragment(&runs, &ReportOptions::default());
    for id in ["cumulative-solve-rate", "hard-targets", "wall-time", "training-dynamics", "entropy"] {
        let figure = fragment.figures.iter().find(|f| f.id == id).unwrap();
        let PanelContent::Xy(xy) = &figure.panels[0].content else { panic!("{id}: not curves") };
        for name in ["SGS, 2 seeds", "RL (REINFORCE-1/2), 2 seeds"] {
            let curve = xy.series.iter().find(|s| s.name == name && s.style == SeriesStyle::Line).unwrap();
            assert!(curve.points.len() > 30 && curve.band.len() == curve.points.len(), "{id}: {name}");
            let is_within = |(p, b): (&(f64, f64), &(f64, f64))| b.0 <= p.1 && p.1 <= b.1;
            assert!(curve.points.iter().zip(&curve.band).all(is_within), "{id}: {name}");
        }
        assert!(xy.series.iter().any(|s| s.name == "SGS, seed 2" && s.style == SeriesStyle::Faint), "{id}");
        assert!(figure.caption.contains("from the lowest to the highest"), "{id}: {}", figure.caption);
    }
    let table = |name: &str| &fragment.tables.iter().find(|(n, _)| n == name).unwrap().1;
    let against = &table("against").rows;
    assert_eq!(against.len(), 1, "{against:?}");
    // For each method, one of two fits is confirmed, so that there is no spread between seeds.
    let laws = &table("scaling-laws").rows;
    let identified: Vec<&str> = laws.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(identified, ["true", "false", "false", "false", "true", "false"]);
    assert_eq!(
        (against[0][0].as_str(), against[0][4].as_str()),
        ("RL (REINFORCE-1/2), 2 seeds", "one fit each")
    );
    let laws: Vec<&str> = table("scaling-laws").rows.iter().map(|r| r[0].as_str()).collect();
    assert_eq!(laws[..3], ["SGS, seed 1", "SGS, seed 2", "SGS, 2 seeds: mean"]);
}

#[test]
fn pages_make_no_external_requests() {
    let run = synthetic::run(Method::Sgs, 1, size(30));
    let page = html(&[run]);
    // The only URLs are names of XML namespaces.
    let addresses: Vec<&str> =
        page.match_indices("http").map(|(i, _)| &page[i..(i + 30).min(page.len())]).collect();
    let is_name = |a: &&str| a.starts_with("http://www.w3.org/2000/svg") || a.starts_with("http-equiv");
    assert!(addresses.iter().all(is_name), "{addresses:?}");
    for asking in ["<link rel=\"stylesheet", "<img", "@import", "url(", "src=", "<iframe", "@font-face"] {
        assert!(!page.contains(asking), "{asking}");
    }
}

#[test]
fn unusual_runs_result_in_useful_pages() {
    let empty = RunData { name: "empty".into(), ..RunData::default() };
    assert!(html(std::slice::from_ref(&empty)).contains("No round is finished yet"));
    let single = synthetic::run(Method::Sgs, 1, size(1));
    assert!(html(std::slice::from_ref(&single)).contains("too few points for a fit"));
    let short = synthetic::run(Method::Sgs, 1, size(3));
    assert!(html(&[short]).contains("too few points for a fit"));
    let mut zeros = synthetic::run(Method::ReinforceHalf, 1, size(20));
    for round in &mut zeros.rounds {
        let names: Vec<String> = round.scalars.keys().filter(|k| *k != "generations").cloned().collect();
        names.into_iter().for_each(|n| round.set(n, 0.0));
        round.histograms.values_mut().for_each(|h| h.counts.fill(0));
    }
    zeros.targets.iter_mut().for_each(|t| {
        t.solved_round = None;
        t.rounds.iter_mut().for_each(|r| (r.judged, r.proved) = (0, 0));
    });
    assert!(html(std::slice::from_ref(&zeros)).contains("the curve is flat"));
    let mut broken = synthetic::run(Method::Sgs, 2, size(20));
    for (i, round) in broken.rounds.iter_mut().enumerate() {
        let names: Vec<String> = round.scalars.keys().cloned().collect();
        for (j, name) in names.into_iter().enumerate() {
            if (i + j) % 3 == 0 {
                round.set(name, if i % 2 == 0 { f64::NAN } else { f64::INFINITY });
            }
        }
    }
    let page = html(std::slice::from_ref(&broken));
    assert!(page.contains("Cumulative solve rate"));
    for text in ["NaN", ">inf<", "inf%", "\"inf\""] {
        let at = page.find(text).map(|at| page[..at + 20].chars().rev().take(120).collect::<Vec<_>>());
        assert!(at.is_none(), "{text}: {}", at.unwrap().into_iter().rev().collect::<String>());
    }
    let nothing_but_nan = RunData {
        rounds: (0..9)
            .map(|round| {
                let mut m = MetricValues { round, unix_time: f64::NAN, ..MetricValues::default() };
                m.set("generations", f64::NAN);
                m.set("cumulative_solve_rate", f64::NAN);
                m
            })
            .collect(),
        ..empty.clone()
    };
    html(std::slice::from_ref(&nothing_but_nan));
    // All runs together, with all files.
    let dir = tempfile::tempdir().unwrap();
    let runs = [empty, single, zeros, broken, nothing_but_nan];
    let options = ReportOptions { png_scale: Some(0.5), ..ReportOptions::default() };
    let written = write(&runs, dir.path(), &options).unwrap();
    assert!(written.files.iter().all(|f| std::fs::metadata(f).unwrap().len() > 0));
    assert!(write(&[], dir.path(), &options).unwrap_err().to_string().contains("no run"));
}

#[test]
fn model_output_is_escaped() {
    let attack = "</script><script>alert(1)</script><img src=x onerror=alert(1)> & \u{0} \u{202e} ]]>";
    let mut run = synthetic::run(Method::Sgs, 1, size(12));
    run.name = attack.into();
    run.config = attack.into();
    run.notes.push(attack.into());
    for target in &mut run.targets {
        target.id = format!("{attack}{}", target.id);
    }
    run.shown_conjectures = vec![ShownConjecture {
        statement: attack.repeat(2000),
        target: attack.into(),
        status: attack.into(),
        review_text: attack.into(),
        ..ShownConjecture::default()
    }];
    run.solved = vec![SolvedExample {
        statement: attack.into(),
        proof: attack.into(),
        id: attack.into(),
        ..SolvedExample::default()
    }];
    let twin = run.clone();
    for runs in [vec![run.clone()], vec![run, twin]] {
        let page = html(&runs);
        assert!(!page.contains("<script>alert") && !page.contains("<img"), "markup of a model came through");
        assert_eq!(page.matches("</script>").count(), page.matches("<script").count());
        assert!(page.len() < 3_000_000, "a long text is cut: {}", page.len());
    }
}

#[test]
fn figures_are_written_as_standalone_svg_and_csv() {
    let dir = tempfile::tempdir().unwrap();
    let run = synthetic::run(Method::Sgs, 1, size(30));
    let rounds = run.rounds.len();
    let written = write(&[run], dir.path(), &ReportOptions::default()).unwrap();
    let svg = std::fs::read_to_string(dir.path().join("figures/cumulative-solve-rate.svg")).unwrap();
    assert!(
        svg.starts_with("<svg xmlns=")
            && !svg.contains("var(--")
            && svg.contains("prefers-color-scheme: dark")
    );
    let csv = std::fs::read_to_string(dir.path().join("tables/cumulative-solve-rate.csv")).unwrap();
    let observed = csv.lines().filter(|l| l.starts_with("cumulative-solve-rate,1,SGS,")).count();
    assert_eq!(observed, rounds);
    assert!(written.files.contains(&written.index));
}
