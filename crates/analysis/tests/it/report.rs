//! Reports on ordinary, unusual and hostile runs.

use crate::synthetic;
use sgs_analysis::figures::{FigureOptions, Yardstick};
use sgs_analysis::plot::{PanelContent, SeriesStyle, panel_svg, write_csv};
use sgs_analysis::report::{fragment, page, write};
use sgs_analysis::run::{RunData, ShownConjecture, SolvedExample, metric};
use sgs_rundir::MetricValues;
use sgs_selfplay::Method;

fn html(runs: &[RunData]) -> String {
    page(&fragment(runs, &FigureOptions::default()), None)
}

fn size(rounds: u32) -> synthetic::Size {
    synthetic::Size { rounds, targets: 60 }
}

#[test]
fn a_report_on_one_run_has_all_its_figures() {
    let run = synthetic::run(Method::Sgs, 1, size(60));
    let fragment = fragment(&[run], &FigureOptions::default());
    let ids: Vec<&str> = fragment.figures.iter().map(|f| f.id.as_str()).collect();
    let expected = ["cumulative-solve-rate", "training-dynamics", "conjecture-quality", "health", "timings"];
    assert_eq!(ids, expected);
    for name in ["scaling-laws", "pass-at-k", "targets", "timings-by-stage"] {
        assert!(fragment.tables.iter().any(|(n, t)| n == name && !t.rows.is_empty()), "{name}");
    }
    for (name, table) in &fragment.tables {
        assert!(table.columns.iter().any(|column| column == "Round"), "{name} has no column with the round");
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{name}");
    }
    let shown =
        |id: &str| fragment.parts.iter().any(|part| part.html(false).contains(&format!("id=\"{id}\"")));
    let missing: Vec<&str> = ids.iter().copied().filter(|id| !shown(id)).collect();
    assert_eq!(missing, [] as [&str; 0], "figures without a section");
    let page = page(&fragment, None);
    assert!(page.contains("seed = 1") && page.contains("sgs run sgs --seed 1"));
}

#[test]
fn curves_are_not_drawn_across_rounds_that_are_missing_or_not_measured() {
    let run = |damage: bool| {
        let mut run = synthetic::run(Method::Sgs, 1, size(30));
        if damage {
            run.rounds[12].scalars.retain(|name, _| !name.ends_with(metric::CUMULATIVE));
            run.rounds.remove(5);
        }
        run
    };
    // Returns the pieces of the curve, the number of its values, and that of the rows of its file.
    let drawn = |runs: &[RunData]| {
        let figure = fragment(runs, &FigureOptions::default()).figures.swap_remove(0);
        let PanelContent::Xy(xy) = &figure.panels[0].content else { panic!("curves") };
        let curve = xy.series.iter().find(|s| s.style == SeriesStyle::Line).unwrap();
        let svg = panel_svg(&figure.panels[0], "", false);
        let path = svg.split("<path").find(|path| path.contains("stroke-width=\"2\"")).unwrap();
        let path = path.split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
        let mut csv = Vec::new();
        write_csv(&figure, &mut csv).unwrap();
        let rows = std::str::from_utf8(&csv).unwrap().lines().filter(|row| row.contains(&curve.name)).count();
        (path.matches('M').count(), curve.points.iter().filter(|p| p.1.is_finite()).count(), rows)
    };
    assert_eq!(drawn(&[run(false)]), (1, 30, 30));
    assert_eq!(drawn(&[run(true)]), (3, 28, 28));
    // A mean at equal generations uses the last value of each run.
    let other = RunData { seed: Some(2), ..run(false) };
    assert_eq!(drawn(&[run(true), other]), (1, 30, 30));
}

#[test]
fn a_comparison_has_tables_of_the_runs() {
    let methods =
        [Method::Sgs, Method::ReinforceHalf, Method::Cispo, Method::SgsNoGuide, Method::ExpertIteration];
    let runs: Vec<RunData> = (1..).zip(methods).map(|(seed, m)| synthetic::run(m, seed, size(40))).collect();
    let yardsticks = vec![Yardstick { label: "a larger model".into(), rate: 0.4 }];
    let fragment = fragment(&runs, &FigureOptions { yardsticks, ..FigureOptions::default() });
    assert!(fragment.tables.iter().any(|(name, table)| name == "runs" && table.rows.len() == 5));
    assert!(fragment.parts.iter().any(|p| p.html(false).contains("a larger model")));
    // A table for one of several runs names it in its title or in its rows.
    for (name, table) in fragment.tables.iter().filter(|(name, _)| !name.starts_with("targets-")) {
        assert_eq!(table.columns[0], "Run", "{name}");
        for row in &table.rows {
            assert!(runs.iter().any(|run| row[0] == run.name.as_str().into()), "{name}: {row:?}");
        }
    }
}

#[test]
fn seeds_of_a_method_are_averaged_with_a_band_and_an_uncertainty() {
    // Use long runs with many targets, so that the fits are confirmed.
    let of = |m, seed| synthetic::run(m, seed, synthetic::Size { rounds: 200, targets: 600 });
    let runs =
        [of(Method::Sgs, 1), of(Method::Sgs, 2), of(Method::ReinforceHalf, 3), of(Method::ReinforceHalf, 4)];
    let fragment = fragment(&runs, &FigureOptions::default());
    for id in ["cumulative-solve-rate", "training-dynamics", "health"] {
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
    let column =
        |name: &str, i: usize| table(name).rows.iter().map(|row| row[i].text()).collect::<Vec<String>>();
    // For each method, one of two fits is confirmed, so that there is no spread between seeds.
    assert_eq!(column("scaling-laws", 2)[..2], ["yes", "no"]);
    assert_eq!(column("scaling-laws", 6)[..2], ["this fit alone", "–"]);
    assert_eq!(column("scaling-laws", 0)[..3], ["SGS, seed 1", "SGS, seed 2", "SGS, 2 seeds: mean"]);
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
    // Write a report on all runs together, with all files.
    let dir = tempfile::tempdir().unwrap();
    let runs = [empty, single, zeros, broken, nothing_but_nan];
    let options = FigureOptions::default();
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
    let written = write(&[run], dir.path(), &FigureOptions::default()).unwrap();
    let svg = std::fs::read_to_string(dir.path().join("figures/cumulative-solve-rate.svg")).unwrap();
    assert!(
        svg.starts_with("<svg xmlns=")
            && !svg.contains("var(--")
            && svg.contains("prefers-color-scheme: dark")
    );
    // The page links to every file next to it, and to no other file.
    let page = std::fs::read_to_string(&written.index).unwrap();
    let mut links: Vec<&str> =
        page.split("<a href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    links.retain(|link| !link.starts_with('#'));
    links.sort_unstable();
    let beside =
        |path: &std::path::PathBuf| path.strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned();
    let mut files: Vec<String> = written.files.iter().filter(|f| **f != written.index).map(beside).collect();
    files.sort_unstable();
    assert_eq!(links, files);
    let csv = std::fs::read_to_string(dir.path().join("tables/cumulative-solve-rate.csv")).unwrap();
    let observed = csv.lines().filter(|l| l.starts_with("cumulative-solve-rate,1,SGS,")).count();
    assert_eq!(observed, rounds);
    assert!(written.files.contains(&written.index));
}

/// Spreadsheets evaluate cells that begin with certain characters. Names come from folders, problem files and models.
#[test]
fn no_csv_file_contains_a_formula() {
    let dir = tempfile::tempdir().unwrap();
    let formula = "=HYPERLINK(\"http://example.com\",\"x\")";
    let run = |seed| {
        let mut run = synthetic::run(Method::Sgs, seed, size(12));
        run.method = None;
        run.name = formula.into();
        for target in &mut run.targets {
            target.id = format!("@{}", target.id);
            target.statement = format!("+1+{}", target.statement);
        }
        run
    };
    let written = write(&[run(1), run(2)], dir.path(), &FigureOptions::default()).unwrap();
    let (mut cells, mut names) = (0, 0);
    for file in written.files.iter().filter(|f| f.extension().is_some_and(|end| end == "csv")) {
        for row in
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_path(file).unwrap().records()
        {
            for cell in &row.unwrap() {
                let is_formula =
                    cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err();
                assert!(!is_formula, "{cell} in {}", file.display());
                (cells, names) = (cells + 1, names + usize::from(cell.contains("HYPERLINK")));
            }
        }
    }
    assert!(cells > 1000 && names > 10, "{cells} cells, {names} names");
}
