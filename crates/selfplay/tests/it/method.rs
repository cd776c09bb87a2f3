//! The named methods.

use sgs_selfplay::{AlgorithmConfig, Method};

#[test]
fn every_method_is_valid_and_distinct() {
    let configs: Vec<AlgorithmConfig> = Method::ALL.iter().map(|method| method.config()).collect();
    for (i, config) in configs.iter().enumerate() {
        config.validate().unwrap();
        assert!(!configs[..i].contains(config), "{} equals an earlier method", Method::ALL[i]);
    }
}

#[test]
fn every_name_parses_and_is_listed_in_the_error() {
    for method in Method::ALL {
        assert_eq!(method.as_str().parse::<Method>().unwrap(), method);
        assert_eq!(serde_json::to_value(method).unwrap(), method.as_str());
    }
    let message = "sggs".parse::<Method>().unwrap_err().to_string();
    assert!(Method::ALL.iter().all(|method| message.contains(method.as_str())));
}
