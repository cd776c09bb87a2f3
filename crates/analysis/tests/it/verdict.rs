//! The verdict at the top of a report.

use sgs_analysis::baseline::Baseline;
use sgs_analysis::figures::FigureOptions;
use sgs_analysis::report::{Cell, fragment};
use sgs_analysis::run::{EvaluationData, ReviewCounts, RunData, metric};
use sgs_rundir::MetricValues;
use sgs_selfplay::Method;

fn run(method: Method, rates: &[f64]) -> RunData {
    let rounds = (0..).zip(rates).map(|(round, rate)| {
        let mut values = MetricValues::new(round);
        values.set(metric::GENERATIONS, 800.0 * f64::from(round + 1));
        values.set(metric::CUMULATIVE, *rate);
        values
    });
    let config = format!("method = \"{}\"\n", method.as_str());
    RunData { method: Some(method), seed: Some(1), config, rounds: rounds.collect(), ..RunData::default() }
}

/// Returns the text of the verdict, which has three sentences.
fn verdict(runs: &[RunData]) -> String {
    let head = fragment(runs, &FigureOptions::default()).parts[0].html(false);
    let text = head.split("<div class=\"verdict\">").nth(1).unwrap_or_default();
    let text = text.split("</div>").next().unwrap_or_default();
    let paragraphs: Vec<&str> = text.split("<p>").skip(1).map(|part| part.trim_end_matches("</p>")).collect();
    assert!(text.is_empty() || paragraphs.len() == 3, "{text}");
    let is_sentence = |text: &&str| text.ends_with('.') && text.matches(". ").count() == 0;
    assert!(paragraphs.iter().all(is_sentence), "{text}");
    paragraphs.join(" ").replace("&#39;", "'")
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_single_run_is_compared_with_its_first_round_and_its_base_model() {
    let mut run = run(Method::Sgs, &[0.13, 0.36]);
    let tallies = |proved: &dyn Fn(u32) -> u32| (0..40).map(|i| (format!("h{i}"), (8, proved(i)))).collect();
    let held_out =
        |after, proved| EvaluationData { after, held_out: tallies(&|_| proved), ..EvaluationData::default() };
    run.evaluations = vec![held_out(0, 1), held_out(2, 2)];
    run.reviews = ReviewCounts { reviewed: 9, rewarded: 4, removed: 1 };
    let text = verdict(std::slice::from_ref(&run));
    assert_contains(
        &text,
        &[
            "The Solver proved 36.0% of the targets in 1,600 generations (13.0% in the first round); this report",
            "no measured baseline (a run of sampling-only is one). On 40",
            "On 40 held-out problems, pass@1 went from the base model's 12.5% to 25.0%, a significant gain on these problems (95% interval of \
             the change +12.5 to +12.5 points); pass@8 stayed at 100.0%, not a significant change.",
            "Of 9 reviewed conjectures, 4 were hard but solvable, and the Guide gave 1 of these a score of 0, so that they \
             earned no reward; to see whether this helped, compare with a run of sgs-no-guide.",
        ],
    );
    // A curve that begins after the run's end is neither compared nor drawn.
    let text = "# Late.\nseed,generations,rate\n1,2000,0.2\n1,4000,0.3\n2,1800,0.2\n2,4000,0.3\n";
    let late = RunData { baseline: Baseline::parse(text).unwrap().pop(), ..run.clone() };
    assert_contains(
        &verdict(std::slice::from_ref(&late)),
        &[
            "(13.0% in the first round); the measured curve of the base model begins at 2,000 generations. On 40",
        ],
    );
    let page = fragment(std::slice::from_ref(&late), &FigureOptions::default());
    let page: String = page.parts.iter().map(|part| part.html(false)).collect();
    assert!(!page.contains("Base model without training") && !page.contains("base-curves.sh"));
    run.reviews.removed = 0;
    assert_contains(
        &verdict(std::slice::from_ref(&run)),
        &["4 were hard but solvable, and the Guide gave none of these a score of 0; to see whether"],
    );
    // Half of the problems improve and half get worse.
    run.evaluations[1].held_out = tallies(&|i| if i % 2 == 0 { 2 } else { 0 });
    assert_contains(
        &verdict(std::slice::from_ref(&run)),
        &["pass@1 stayed at the base model's 12.5%, not a significant change (95%"],
    );
    let tile =
        |run: &RunData| fragment(std::slice::from_ref(run), &FigureOptions::default()).parts[0].html(false);
    assert_contains(&tile(&run), &["held out, pass@1 (base model 12.5%)"]);
    run.evaluations.pop();
    assert_contains(&verdict(std::slice::from_ref(&run)), &["only the base model has been evaluated"]);
    assert_contains(&tile(&run), &["held out, pass@1 of the base model"]);
}

#[test]
fn held_out_results_are_compared_only_after_similar_training() {
    let evaluated = |method, rates: &[f64]| {
        let held_out = |after, proved| EvaluationData {
            after,
            held_out: (0..40).map(|i| (format!("h{i}"), (8, proved))).collect(),
            ..EvaluationData::default()
        };
        let last = u32::try_from(rates.len()).unwrap();
        RunData { evaluations: vec![held_out(0, 1), held_out(last, 2)], ..run(method, rates) }
    };
    let sgs = evaluated(Method::Sgs, &[0.1, 0.2]);
    for (rates, end) in [
        (&[0.1, 0.2][..], "."),
        (&[0.1], " after 50% fewer generations, so the two are not comparable."),
        (&[0.1, 0.2, 0.3], " after 50% more generations, so the two are not comparable."),
    ] {
        let text = verdict(&[sgs.clone(), evaluated(Method::Cispo, rates)]);
        assert_contains(&text, &[&format!("; CISPO reached a pass@1 of 25.0%{end}")]);
    }
}

#[test]
fn a_run_is_compared_with_the_measured_curve_of_its_base_model() {
    let mut one = run(Method::Sgs, &[0.1, 0.3, 0.4]);
    let text = "# a = 1\n1,800,0.1\n1,1700,0.25\n2,800,0.2\n2,2000,0.3\n";
    one.baseline = Baseline::parse(text).unwrap().pop();
    let parts =
        ["; at 1,700 generations, the Solver had proved 30.0% and the base model without training 22.5% \
         (2 seeds: 20.0% to 25.0%), so the Solver is above that range."];
    assert_contains(&verdict(std::slice::from_ref(&one)), &parts);
    let mut conjectures = one.clone();
    conjectures.rounds[0].set(metric::CONJECTURES_ACCEPTED, 3.0);
    let part = "the base model without training, which attempts only targets, 22.5% (2 seeds: 20.0% to 25.0%), so the Solver is";
    assert_contains(&verdict(&[conjectures]), &[part]);
    let mut short = one.clone();
    short.rounds.truncate(2);
    short.rounds.iter_mut().for_each(|round| round.set(metric::TARGETS, 50.0));
    let part = "The Solver proved 15 of 50 targets (30.0%) in 1,600 generations; with as many generations, the base model \
         without training proves 15.0% (2 seeds: 10.0% to 20.0%), so the Solver is above that range.";
    assert_contains(&verdict(&[short]), &[part]);
    for (rate, place) in [(0.15, "within that range"), (0.05, "below that range")] {
        let mut other = one.clone();
        other.rounds.truncate(2);
        other.rounds[1].set(metric::CUMULATIVE, rate);
        assert_contains(&verdict(&[other]), &[&format!("so the Solver is {place}.")]);
    }
    let drawn = |runs: &[RunData]| {
        let page = fragment(runs, &FigureOptions::default());
        page.parts.iter().any(|part| part.html(false).contains("Base model without training, 2 seeds"))
    };
    assert!(drawn(std::slice::from_ref(&one)));
    // Both are compared, because they answer different questions.
    let half = [one.clone(), run(Method::ReinforceHalf, &[0.1, 0.2])];
    let both = "SGS proved 40.0% of the targets in 2,400 generations; at 1,600 generations, SGS had proved 30.0% and RL \
                (REINFORCE-1/2) 20.0% (one seed each); at 1,700 generations, SGS had proved 30.0% and the base model without \
                training 22.5% (2 seeds: 20.0% to 25.0%), so SGS is above that range.";
    assert_contains(&verdict(&half), &[both]);
    let stp = [one.clone(), run(Method::Stp, &[0.1, 0.2, 0.45])];
    assert_contains(
        &verdict(&stp),
        &["at 2,400 generations, SGS had proved 40.0% and STP 45.0% (one seed each); at"],
    );
    // A run of sampling-only replaces the measured curve.
    let sampled = [one, run(Method::SamplingOnly, &[0.1, 0.25])];
    assert_contains(&verdict(&sampled), &["SGS had proved 30.0% and Parallel sampling 25.0%"]);
    assert!(!drawn(&sampled));
}

#[test]
fn a_comparison_names_the_measured_baseline_and_the_run_without_a_guide() {
    let runs = [
        run(Method::Sgs, &[0.1, 0.3, 0.4]),
        run(Method::ReinforceHalf, &[0.1, 0.2]),
        run(Method::SamplingOnly, &[0.1, 0.25]),
        run(Method::SgsNoGuide, &[0.1, 0.35, 0.45]),
    ];
    assert_contains(
        &verdict(&runs),
        &[
            "at 1,600 generations, SGS had proved 30.0% and Parallel sampling 25.0% (one seed each).",
            "No held-out problems",
            "; with the Guide, 40.0% of the targets were proved at equal generations; without it, 45.0% (fewer than three",
        ],
    );
    assert_eq!(verdict(&[RunData::default()]), "");
    // Other methods are compared with their own runs without a Guide.
    let proofs = |guide: bool, rates: &[f64]| RunData {
        config: format!("[algorithm.guide]\non = {guide}\n"),
        name: format!("guide-{guide}"),
        ..run(Method::SgsProofs, rates)
    };
    let runs = [proofs(true, &[0.1, 0.3, 0.4]), proofs(false, &[0.1, 0.3, 0.35])];
    assert_contains(
        &verdict(&runs),
        &["with the Guide, 40.0% of the targets were proved at equal generations; without it, 35.0%"],
    );
    let other = verdict(&[runs[0].clone(), run(Method::SgsNoGuide, &[0.1, 0.35, 0.45])]);
    assert!(!other.contains("without it"), "{other}");
    let alone = verdict(&[proofs(false, &[0.1, 0.2])]);
    assert!(alone.ends_with("No Guide took part."), "{alone}");
    let sampled = verdict(&[run(Method::SamplingOnly, &[0.1, 0.2])]);
    assert_contains(&sampled, &["(10.0% in the first round); nothing was trained. "]);
}

/// Returns the summary table as its columns and rows.
fn summary(runs: &[RunData]) -> (Vec<String>, Vec<Vec<String>>) {
    let page = fragment(runs, &FigureOptions::default());
    let (_, table) = page.tables.iter().find(|(name, _)| name == "runs").unwrap();
    let row = |row: &Vec<_>| row.iter().map(Cell::text).collect();
    (table.columns.clone(), table.rows.iter().map(row).collect())
}

#[test]
fn the_table_of_runs_compares_them_at_the_generations_of_the_verdict() {
    let ending = |mut run: RunData, ends: [f64; 3]| {
        for (round, end) in run.rounds.iter_mut().zip(ends) {
            round.set(metric::GENERATIONS, end);
        }
        run
    };
    // Where the second run ends, the first one was last measured long before.
    let runs = [
        ending(run(Method::Sgs, &[0.1, 0.13, 0.2]), [800.0, 1488.0, 2976.0]),
        ending(run(Method::Stp, &[0.12, 0.17, 0.21]), [800.0, 1488.0, 2800.0]),
        // This run ends long before.
        ending(run(Method::Cispo, &[0.01, 0.02, 0.03]), [100.0, 200.0, 300.0]),
    ];
    assert_contains(&verdict(&runs[..2]), &["at 1,488 generations, SGS had proved 13.0% and STP 17.0%"]);
    let (columns, rows) = summary(&runs[..2]);
    assert_eq!(columns[7], "At 1,488 generations");
    assert_eq!([&rows[0][7], &rows[1][7]], ["13.0%", "17.0%"]);
    // With a measured baseline, the verdict compares only the two.
    assert_contains(&verdict(&runs), &["SGS and CISPO have no rounds that end after almost equal numbers"]);
    assert!(summary(&runs).0.iter().all(|column| !column.starts_with("At ")));
    let sampled = RunData { method: Some(Method::SamplingOnly), ..runs[1].clone() };
    let (columns, rows) = summary(&[runs[0].clone(), sampled, runs[2].clone()]);
    assert_eq!(columns[7], "At 1,488 generations");
    assert_eq!([&rows[0][7], &rows[1][7], &rows[2][7]], ["13.0%", "17.0%", "–"]);
}
