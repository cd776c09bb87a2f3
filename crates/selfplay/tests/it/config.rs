//! The algorithm's configuration: invalid values and combinations.

use serde_json::{Value, json};
use sgs_selfplay::AlgorithmConfig;
use sgs_selfplay::config::{BatchSize, Objective};
use std::num::NonZeroU32;

#[test]
fn default_is_valid_and_survives_a_round_trip() {
    let config = AlgorithmConfig::default();
    config.validate().unwrap();
    let text = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<AlgorithmConfig>(&text).unwrap(), config);
}

#[test]
fn unknown_keys_and_wrong_values_are_errors() {
    let read = |value: Value| serde_json::from_value::<AlgorithmConfig>(value).map_err(|e| e.to_string());
    assert!(read(json!({"solver": {"objectiv": "cispo"}})).unwrap_err().contains("objectiv"));
    assert!(read(json!({"solver": {"objective": "ppo"}})).unwrap_err().contains("expert-iteration"));
    assert!(read(json!({"batch": {"size": 0}})).unwrap_err().contains("\"all\""));
    assert!(read(json!({"batch": {"size": -3}})).unwrap_err().contains("-3"));
    assert!(read(json!({"batch": {"size": "some"}})).unwrap_err().contains("some"));
    let sized = read(json!({"batch": {"size": 5}})).unwrap();
    assert_eq!(sized.batch.size, BatchSize::Count(NonZeroU32::new(5).unwrap()));
}

/// Sets one key of the default configuration.
fn with(key: &str, value: Value) -> Result<AlgorithmConfig, serde_json::Error> {
    let mut table = serde_json::to_value(AlgorithmConfig::default()).unwrap();
    *key.split('.').fold(&mut table, |table, part| &mut table[part]) = value;
    serde_json::from_value(table)
}

/// Each case sets one key of the default to a value that conflicts with another key, which the error must name.
#[test]
fn conflicting_keys_are_rejected_by_name() {
    let cases = [
        ("solver.selection", json!("few-proofs"), "solver.objective"),
        ("batch.retire_after", json!(17), "batch.retire_after"),
        ("conjecturer.on", json!(false), "guide.on"),
        ("conjecturer.rule", json!("stp"), "guide.on"),
        ("penalties.max_proof_characters", json!(1000), "penalties.length"),
    ];
    for (key, value, blamed) in cases {
        let error = with(key, value).unwrap().validate().expect_err(key);
        assert_eq!(error.key, blamed, "{key}");
        assert!(error.to_string().contains(&error.expected));
    }
    let mut one = AlgorithmConfig { rollouts_per_problem: 1, ..AlgorithmConfig::default() };
    one.solver.objective = Objective::Cispo;
    assert_eq!(one.validate().unwrap_err().key, "rollouts_per_problem");
}

#[test]
fn nan_is_out_of_every_range() {
    let config = AlgorithmConfig { temperature: f64::NAN, ..AlgorithmConfig::default() };
    assert_eq!(config.validate().unwrap_err().key, "temperature");
    let mut config = AlgorithmConfig::default();
    config.conjecturer.hardest_fraction = f64::NAN;
    assert_eq!(config.validate().unwrap_err().key, "conjecturer.hardest_fraction");
}
