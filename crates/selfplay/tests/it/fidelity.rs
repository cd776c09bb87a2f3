//! Every option that `docs/fidelity.md` names must exist and accept the quoted value.

use sgs_keys::KeyTable;
use sgs_selfplay::AlgorithmConfig;

const DOCUMENT: &str = include_str!("../../../../docs/fidelity.md");

/// Returns all texts in backticks that look like configuration keys.
fn quoted() -> impl Iterator<Item = &'static str> {
    let tables = ["batch.", "solver.", "conjecturer.", "guide.", "penalties.", "optimizer."];
    let is_key = move |text: &&str| tables.iter().any(|table| text.starts_with(table));
    DOCUMENT.split('`').skip(1).step_by(2).filter(is_key)
}

#[test]
fn every_option_exists() {
    let keys = AlgorithmConfig::keys("");
    let mut count = 0;
    for text in quoted() {
        let key = text.split(" = ").next().unwrap();
        let known = match key.strip_suffix('*') {
            Some(table) => keys.iter().any(|known| known.key.starts_with(table)),
            None => keys.iter().any(|known| known.key == key),
        };
        assert!(known, "{key} is not an option");
        count += 1;
    }
    assert!(count >= 25, "found only {count} options");
}

#[test]
fn every_value_is_accepted_and_is_not_the_default() {
    let default = serde_json::to_value(AlgorithmConfig::default()).unwrap();
    let mut count = 0;
    for text in quoted() {
        let Some((key, value)) = text.split_once(" = ") else { continue };
        let mut table = default.clone();
        let slot = key.split('.').fold(&mut table, |table, part| &mut table[part]);
        let value: serde_json::Value = serde_json::from_str(value).unwrap();
        assert_ne!(*slot, value, "{text} is the default");
        *slot = value;
        let config: AlgorithmConfig = serde_json::from_value(table).unwrap();
        config.validate().unwrap();
        count += 1;
    }
    assert!(count >= 15, "found only {count} values");
}
