//! Tests parity with the paper's code. The results of its functions are recorded in `data/reference_vectors.json`.

use crate::simulation;
use serde_json::Value;
use sgs_selfplay::batch::select_batch;
use sgs_selfplay::config::{
    AlgorithmConfig, BatchConfig, BatchSize, EpochOrder, GuideScope, Normalisation, Objective, PenaltyConfig,
    RatePopulation, Selection, SolverConfig,
};
use sgs_selfplay::entropy::{mean, truncated_entropy};
use sgs_selfplay::objective::{RolloutFacts, group_advantages, rollout_weights, shaped_reward};
use sgs_selfplay::outcome::{ConjectureStatus, RoundOutcome};
use sgs_selfplay::penalty::{length_penalty, length_reward, short_proof_weight};
use sgs_selfplay::reward::{conjecture_threshold, guide_score, normalise, passes_threshold};
use sgs_selfplay::store::{SolvedTarget, StoredProof, in_window};
use sgs_selfplay::stp::{UnitEmbedding, match_to_targets};
use sgs_selfplay::{
    Command, Event, Method, ParsedConjecture, ParsedProof, Problem, ProblemId, Review, RoundMetrics,
    RunState, Verdict,
};
use simulation::{begin, facts, judgement};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

fn vectors(section: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("../data/reference_vectors.json")).unwrap();
    assert!(!all[section].is_null(), "{section}");
    all[section].clone()
}

fn cases(section: &str) -> Vec<Value> {
    vectors(section)["cases"].as_array().unwrap().clone()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn close(a: f64, b: f64, tolerance: f64) {
    assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{a} differs from {b}");
}

#[test]
fn guide_scores_equal_the_reference() {
    let grid = cases("guide_combine_grid");
    assert_eq!(grid.len(), 6 * 5 * 2);
    for row in &grid {
        let [relevance, complexity, redundancy, score] = numbers(row)[..] else { panic!("{row}") };
        assert_eq!(guide_score(&Review { relevance, redundancy, complexity }), score, "{row}");
    }
}

/// Compares with STP's rule in NumPy and with exact optimal transport by SciPy (`data/stp_matching.py`).
#[test]
fn matchings_equal_the_reference() {
    let all: Value = serde_json::from_str(include_str!("../data/stp_matching.json")).unwrap();
    let embeddings = |rows: &Value| -> Vec<UnitEmbedding> {
        let row = |row| numbers(row).iter().map(|x| *x as f32).collect::<Vec<_>>();
        rows.as_array().unwrap().iter().map(|r| UnitEmbedding::of(&row(r)).unwrap()).collect()
    };
    for case in all.as_array().unwrap() {
        let number = |name: &str| case[name].as_f64();
        let [conjectures, targets] = ["conjectures", "targets"].map(|name| embeddings(&case[name]));
        let matching = match_to_targets(&conjectures, &targets, number("max_weight").unwrap());
        let expected = numbers(&case["weights"]);
        assert_eq!(matching.weights.len(), expected.len());
        matching.weights.iter().zip(expected).for_each(|(got, want)| close(*got, want, 1e-8));
        let (distance, equals) = (matching.distance.unwrap(), matching.distance_of_equals.unwrap());
        close(distance, number("distance").unwrap(), 1e-6);
        if let (Some(least), Some(least_of_equals)) = (number("least"), number("least_of_equals")) {
            assert!(least - 1e-6 <= distance && distance <= 1.02 * least, "{distance} is far from {least}");
            assert!(least_of_equals - 1e-6 <= equals && equals <= 1.3 * least_of_equals, "{equals}");
        }
    }
}

#[test]
fn length_rewards_equal_the_reference() {
    for row in cases("dapo_length_reward") {
        let [tokens, reward] = numbers(&row)[..] else { panic!("{row}") };
        close(length_reward(tokens as u32, 8192, 0.8), reward, 1e-12);
    }
    for row in cases("stp_length_weight") {
        let [characters, weight] = numbers(&row)[..] else { panic!("{row}") };
        close(short_proof_weight(characters as u32, 0.001), weight, 1e-15);
    }
}

#[test]
fn thresholds_equal_the_reference() {
    for case in cases("conjecture_threshold") {
        let rates = numbers(&case["rates"]);
        let threshold = conjecture_threshold(&rates, RatePopulation::Interior, 0.7);
        assert_eq!(threshold, case["threshold"].as_f64().unwrap(), "{case}");
        let kept: Vec<f64> = rates.into_iter().filter(|&rate| passes_threshold(rate, threshold)).collect();
        assert_eq!(kept, numbers(&case["kept"]), "{case}");
    }
}

#[test]
fn thresholds_truncate_like_the_reference() {
    for row in cases("int_n_times_0.7") {
        let [n, position, exact] = numbers(&row)[..] else { panic!("{row}") };
        assert_ne!(position, exact);
        let rates: Vec<f64> = (0..n as usize).map(|i| (i as f64 + 1.0) / (n + 1.0)).collect();
        let threshold = conjecture_threshold(&rates, RatePopulation::Interior, 0.7);
        assert_eq!(threshold, rates[position as usize], "{n}");
    }
}

#[test]
fn group_advantages_equal_the_reference() {
    for case in cases("group_advantages") {
        let advantages = group_advantages(&numbers(&case["rewards"]), 1e-6).unwrap();
        for (ours, theirs) in advantages.iter().zip(numbers(&case["advantages"])) {
            close(*ours, theirs, 1e-6); // The reference divides by a 32-bit standard deviation.
        }
    }
    assert_eq!(group_advantages(&[0.0; 8], 1e-6), None);
}

#[test]
fn truncated_entropies_equal_the_reference() {
    for case in cases("entropy") {
        let steps = case["steps"].as_array().unwrap();
        let of_step = |step: &Value| {
            let top: Vec<f64> =
                step["top"].as_object().unwrap().values().map(|lp| lp.as_f64().unwrap()).collect();
            truncated_entropy(&top)
        };
        close(mean(steps.iter().map(of_step)).unwrap(), case["mean_entropy"].as_f64().unwrap(), 1e-12);
    }
}

#[test]
fn epochs_equal_the_reference() {
    let mut checked = 0;
    for case in cases("deterministic_epoch_batch") {
        let Some(batch) = case["batch"].as_array() else { continue };
        let n = case["N"].as_u64().unwrap() as usize;
        let names: Vec<String> = (0..n).map(|i| format!("{i:04}")).collect();
        let ids: Vec<&str> = names.iter().map(String::as_str).collect();
        let size = NonZeroU32::new(case["batch_size"].as_u64().unwrap() as u32).unwrap();
        let (size, order) = (BatchSize::Count(size), EpochOrder::Reference);
        let config = BatchConfig { size, order, ..BatchConfig::default() };
        let ours = select_batch(&ids, &config, 0, case["iteration"].as_u64().unwrap() as u32).indices;
        let theirs: Vec<usize> = batch.iter().map(|i| i.as_u64().unwrap() as usize).collect();
        assert_eq!(ours, theirs, "{case}");
        checked += 1;
    }
    assert_eq!(checked, 12);
}

/// With the choices of the paper's code, a malformed review counts as the mean of the well-formed ones.
#[test]
fn malformed_reviews_get_the_mean() {
    for case in cases("guide_failure_imputation") {
        let scores: Vec<Option<f64>> = case["scores"].as_array().unwrap().iter().map(Value::as_f64).collect();
        let mut config = Method::Sgs.config().with_code_choices();
        config.guide.scope = GuideScope::All;
        let targets = simulation::targets(scores.len());
        let state = RunState::default();
        let mut round = begin(&config, &targets, &state);
        let mut queue = round.pending();
        while let Some(command) = queue.pop() {
            let key = command.key().clone();
            let sample = facts(4);
            let slot =
                targets.iter().position(|target| key.problem.as_str().contains(target.id.as_str())).unwrap();
            queue.extend(round.apply(match command {
                Command::SampleConjecture { .. } => Event::Conjecture {
                    key,
                    read: Ok(ParsedConjecture::plain(format!("conj{slot}"))),
                    sample,
                },
                Command::SampleReview { .. } => {
                    // A redundancy of 0 and a complexity of 2 add 1 to the relevance.
                    let review = |score: f64| {
                        let bonus = (score - 6.0).max(0.0);
                        Review { relevance: score - 1.0 - bonus, redundancy: 0.0, complexity: 2.0 - bonus }
                    };
                    Event::Review {
                        key,
                        read: scores[slot].map(review).ok_or_else(|| "no tags".to_owned()),
                        sample,
                    }
                }
                _ => Event::Rollout { key, read: Err("malformed".to_owned()), sample },
            }));
        }
        let outcome = round.finish(&state).unwrap();
        let ours: Vec<f64> = outcome.conjectures.iter().map(|c| c.guide_score.unwrap()).collect();
        assert_eq!(ours, numbers(&case["reviews"]), "{case}");
    }
}

#[test]
fn the_window_of_expert_iteration_equals_the_reference() {
    for case in cases("ei_buffer") {
        let current = case["current_iteration"].as_u64().unwrap() as u32;
        let stored = case["stored"].as_array().unwrap();
        let trained: Vec<&str> = stored
            .iter()
            .filter(|proof| in_window(proof["iteration_created"].as_u64().unwrap() as u32, current, 3))
            .map(|proof| proof["gen"].as_str().unwrap())
            .collect();
        let theirs: Vec<&str> =
            case["trained"].as_array().unwrap().iter().map(|gen_| gen_.as_str().unwrap()).collect();
        assert_eq!(trained, theirs);
    }
}

#[test]
fn conjecturer_rewards_equal_the_reference() {
    let penalties = AlgorithmConfig::default().with_code_choices().penalties;
    for case in cases("conjecturer_rewards") {
        let spec = case["spec"].as_array().unwrap();
        let raw: Vec<f64> = spec
            .iter()
            .map(|c| c["review"].as_f64().unwrap_or(1.0) * (1.0 - c["correct_of_8"].as_f64().unwrap() / 8.0))
            .collect();
        assert_eq!(raw, numbers(&case["raw_reward"]), "{case}");
        for (conjecture, normalised) in spec.iter().zip(normalise(&raw, Normalisation::Reference)) {
            let sample = facts(conjecture["gen_tokens"].as_u64().unwrap() as u32);
            let penalty = length_penalty(&sample, &penalties, 8192);
            let weight = if penalty < 0.0 { penalty } else { normalised };
            close(weight, case["reward"][conjecture["gen"].as_str().unwrap()].as_f64().unwrap(), 1e-12);
        }
    }
}

/// Removes comments. The reference does so before it searches for `try` and counts characters; in this program, the
/// formal system does.
fn without_comments(proof: &str) -> String {
    let mut text = String::new();
    let mut rest = proof;
    while let Some((before, after)) = rest.split_once("/-") {
        text.push_str(before);
        rest = after.split_once("-/").map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.lines().map(|line| line.split("--").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

#[test]
fn solver_rewards_equal_the_reference() {
    let all = cases("prover_rewards");
    assert_eq!(all.len(), 13);
    for case in all {
        let name = case["name"].as_str().unwrap();
        let grouped = name.ends_with("using_groups=True");
        let mut penalties = AlgorithmConfig::default().with_code_choices().penalties;
        penalties.length = !name.contains("1000-char") && !name.contains("STP length");
        if name.contains("1000-char") {
            penalties.max_proof_characters = 1000;
        }
        if name.contains("STP length") {
            penalties.short_proof_rate = 0.001;
        }
        let objective = if grouped { Objective::Cispo } else { Objective::Reinforce };
        let solver = SolverConfig { objective, ..SolverConfig::default() };
        let mut ours = Vec::new();
        for statement in case["statements"].as_array().unwrap() {
            ours.extend(rows_of(statement, name, &solver, &penalties));
        }
        let mut theirs: Vec<[f64; 4]> = case["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| {
                ["reward", "advantage", "num_gen_tokens", "num_tokens_in_group"]
                    .map(|k| row[k].as_f64().unwrap())
            })
            .collect();
        let order = |a: &[f64; 4], b: &[f64; 4]| a[2].total_cmp(&b[2]).then(a[1].total_cmp(&b[1]));
        ours.sort_by(order);
        theirs.sort_by(order);
        assert_eq!(ours.len(), theirs.len(), "{name}");
        for (a, b) in ours.iter().flatten().zip(theirs.iter().flatten()) {
            close(*a, *b, 1e-6);
        }
    }
}

/// Returns the reward, weight, tokens and tokens of the group of each rollout that is trained on.
fn rows_of(statement: &Value, case: &str, solver: &SolverConfig, penalties: &PenaltyConfig) -> Vec<[f64; 4]> {
    let group: Vec<RolloutFacts> = statement["proofs"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
        .map(|(i, proof)| {
            let text = proof["proof_str"].as_str().unwrap();
            let plain = without_comments(text);
            let two_blocks = case.contains("double-lean") && i == 0;
            // Long proofs are recorded by their length. `<1213 chars>` contains a long comment, `<1203 chars>` does not.
            let raw =
                text.strip_prefix('<').and_then(|t| t.strip_suffix(" chars>")).and_then(|n| n.parse().ok());
            let proof_characters = match (raw, case.contains("1000-char")) {
                (Some(1213), true) => 13,
                (Some(length), _) => length,
                (None, _) => text.chars().count() as u32,
            };
            RolloutFacts {
                proved: proof["correct"].as_bool().unwrap(),
                penalised: plain.contains("try") && !case.contains("1000-char") || two_blocks,
                proof_characters,
                sample: facts(proof["gen_tokens"].as_u64().unwrap() as u32),
            }
        })
        .collect();
    let weights = rollout_weights(&group, solver, penalties, 8192);
    let trained: Vec<(&RolloutFacts, f64)> =
        group.iter().zip(weights).filter_map(|(rollout, weight)| Some((rollout, weight?))).collect();
    let tokens: u32 = trained.iter().map(|(rollout, _)| rollout.sample.generated_tokens).sum();
    let row = |(rollout, weight): &(&RolloutFacts, f64)| {
        let reward = shaped_reward(rollout, penalties, 8192);
        [reward, *weight, f64::from(rollout.sample.generated_tokens), f64::from(tokens)]
    };
    trained.iter().map(row).collect()
}

/// Runs one iteration of the reference's data generation through the round's state machine.
#[test]
fn data_generation_equals_the_reference() {
    let all = cases("data_gen_selection");
    assert_eq!(all.len(), 8);
    for case in all {
        let selection = selection_called(case["mode"].as_str().unwrap());
        let mut config = Method::Sgs.config().with_code_choices();
        config.solver.selection = selection;
        config.solver.objective =
            if selection == Selection::FewProofs { Objective::ExpertIteration } else { Objective::Reinforce };
        let (targets, mut state, correct) = scene(&case);
        let outcome = play_scene(&config, &targets, &state, &correct, &case);
        state.absorb(&outcome).unwrap();
        compare_with_reference(&case, &outcome, &state);
    }
}

/// Returns the rule with this name in the paper's code.
fn selection_called(name: &str) -> Selection {
    match name {
        "all" => Selection::All,
        "hard" => Selection::Hard,
        "unsolved" => Selection::Unsolved,
        "all_none_0_1" => Selection::Mixed,
        "less_16_proofs" => Selection::FewProofs,
        other => panic!("the paper's code has no rule {other}"),
    }
}

/// Returns the targets, the state before the iteration, and the number of correct rollouts of each target.
fn scene(case: &Value) -> (Vec<Arc<Problem>>, RunState, HashMap<ProblemId, u32>) {
    let mut state = RunState { next_round: 1, generations: 1000, ..RunState::default() };
    let mut targets = Vec::new();
    let mut correct = HashMap::new();
    for target in case["targets"].as_array().unwrap() {
        let name = target["id"].as_str().unwrap();
        let id = ProblemId::new(name);
        let prior = target["prior_proofs"].as_u64().unwrap() as u32;
        if prior > 0 {
            let solved = SolvedTarget { round: 0, index: 0, proof: Arc::from("old"), best_rate: 0.5 };
            state.solved.insert(id.clone(), solved);
            let old = |index| StoredProof {
                round: 0,
                index,
                weight: Some(1.0),
                generated_tokens: 5,
                fingerprint: index.into(),
            };
            state.proofs.extend(&id, (0..prior).map(old));
        }
        correct.insert(id.clone(), target["correct_now_of_8"].as_u64().unwrap() as u32);
        let statement = Arc::from(format!("theorem {name}"));
        targets.push(Arc::new(Problem { id, statement, context: Arc::from("") }));
    }
    (targets, state, correct)
}

fn play_scene(
    config: &AlgorithmConfig,
    targets: &[Arc<Problem>],
    state: &RunState,
    correct: &HashMap<ProblemId, u32>,
    case: &Value,
) -> RoundOutcome {
    let outcomes = case["conjecture_outcomes_by_unsolved_target_order"].as_array().unwrap();
    let mut round = begin(config, targets, state);
    let mut correct = correct.clone();
    let mut slot = 0;
    let mut queue = round.pending();
    while let Some(command) = queue.pop() {
        let key = command.key().clone();
        let sample = facts(4);
        queue.extend(round.apply(match command {
            Command::SampleConjecture { .. } => {
                // The loop pops commands from the end, so the last slot comes first.
                slot += 1;
                let number = outcomes.len() - slot;
                let read = match outcomes[number].as_str() {
                    Some("bad") => Err("malformed".to_owned()),
                    Some(_) => Ok(ParsedConjecture::plain(targets[0].statement.clone())),
                    None => {
                        let id = ProblemId::new(format!("c1-{}-0", key.problem));
                        correct.insert(id, outcomes[number].as_u64().unwrap() as u32);
                        Ok(ParsedConjecture::plain(format!("conj{number}")))
                    }
                };
                Event::Conjecture { key, read, sample }
            }
            Command::SampleRollout { .. } => {
                let read = Ok(ParsedProof {
                    text: Arc::from(format!("p{}", key.index)),
                    penalised: false,
                    steps: 1,
                });
                Event::Rollout { key, read, sample }
            }
            Command::Verify { problem, .. } => {
                let proved = key.index < correct[&problem.id];
                Event::Judgement {
                    key,
                    judgement: judgement(if proved { Verdict::Proved } else { Verdict::Refused }),
                }
            }
            Command::SampleReview { .. } => {
                let read = Ok(Review { relevance: 3.0, redundancy: 0.0, complexity: 0.0 });
                Event::Review { key, read, sample }
            }
        }));
    }
    round.finish(state).unwrap()
}

fn compare_with_reference(case: &Value, outcome: &RoundOutcome, state: &RunState) {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let chosen: Vec<String> =
        outcome.targets().filter(|t| t.selected).map(|t| t.problem.id.to_string()).collect();
    assert_eq!(chosen, texts(&case["selected_targets_for_solver"]), "{case}");
    let conjectures: Vec<String> = outcome
        .accepted_conjectures()
        .filter(|c| c.selected)
        .map(|c| c.problem.statement.to_string())
        .collect();
    assert_eq!(conjectures, texts(&case["selected_conjectures_for_solver"]), "{case}");

    let trained: Vec<(String, f64)> = outcome
        .conjectures
        .iter()
        .filter(|c| c.weight.is_some())
        .filter_map(|c| match &c.status {
            ConjectureStatus::Accepted { statement } => Some((statement.to_string(), c.tally?.rate()?)),
            _ => None,
        })
        .collect();
    let theirs: Vec<(String, f64)> = case["selected_conjectures_for_conjecturer"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| (pair[0].as_str().unwrap().to_owned(), pair[1].as_f64().unwrap()))
        .collect();
    assert_eq!(trained, theirs, "{case}");
    let reviewed = outcome.reviews.len();
    assert_eq!(reviewed, theirs.len(), "only selected conjectures are reviewed");

    for (target, count) in case["stored_proofs_after"].as_object().unwrap() {
        let stored = state.proofs.of(&ProblemId::new(target.as_str())).len() as u64;
        assert_eq!(Some(stored), count.as_u64(), "{target}: {case}");
    }
    assert_eq!(Some(state.generations + state.conjecture_samples), case["num_generations_after"].as_u64());
    assert_eq!(Some(outcome.conjecture_samples), case["num_conjecture_samples"].as_u64());
    assert_eq!(Some(outcome.rollouts.len() as u64), case["num_proofs"].as_u64());
    compare_logged(&case["logged"], outcome, state);
}

fn compare_logged(logged: &Value, outcome: &RoundOutcome, state: &RunState) {
    let metrics = RoundMetrics::compute(outcome, state, |_| Default::default());
    let counts = [
        ("data_gen/num_seed_statements", metrics.conjectures_asked),
        ("data_gen/num_malformed_conjectures", metrics.conjectures_malformed),
        ("data_gen/num_deduplicated_conjectures", metrics.conjectures_accepted),
        ("data_gen/num_provable_statements", metrics.targets_solved),
        ("data_gen/num_total_correct_proofs_statements", metrics.target_rollouts_proved),
        ("data_gen/num_provable_conjectures", metrics.conjectures_solved),
        ("data_gen/num_conjectures_to_train_prover", metrics.conjectures_trained_by_solver),
        ("data_gen/num_total_proofs_conjectures_in_difficulty_range", metrics.conjecture_rollouts_proved),
        ("data_gen/cumulative_num_target_problems_solved_d_3k", metrics.targets_solved_ever),
        ("data_gen/num_target_statements_total", metrics.targets_sampled),
    ];
    for (name, ours) in counts {
        let Some(theirs) = logged[name].as_u64() else { continue };
        assert_eq!(ours, theirs, "{name}");
    }
    let average = logged["data_gen/average_conjecture_solve_rate"].as_f64().unwrap();
    close(metrics.conjecture_solve_rate.unwrap(), average, 1e-12);
    close(
        metrics.target_share_solved.unwrap(),
        logged["data_gen/overall_solve_rate"].as_f64().unwrap(),
        1e-12,
    );
    // The reference divides by the rollouts of the whole batch, including targets that were not sampled.
    let all = (metrics.targets_in_batch * 8) as f64;
    close(metrics.target_rollouts_proved as f64 / all, logged["data_gen/pass_at_1"].as_f64().unwrap(), 1e-12);
    let solved = logged["data_gen/percent_target_problems_solved_d_3k"].as_f64().unwrap();
    close(metrics.cumulative_solve_rate.unwrap(), solved, 1e-12);
}
