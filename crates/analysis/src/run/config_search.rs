//! What the analysis wants to know of a configuration, wherever it stands in it.

use sgs_selfplay::Method;
use std::str::FromStr;

/// The value of the first line `key = value` in TOML text, in any table; quotes are taken off.
fn first_value<'a>(config: &'a str, key: &str) -> Option<&'a str> {
    config.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        let value = value.split('#').next().unwrap_or(value).trim();
        (name.trim() == key).then(|| value.trim_matches(['"', '\'']))
    })
}

/// The method's name under `method`.
pub(super) fn method(config: &str) -> Option<Method> {
    Method::from_str(first_value(config, "method")?).ok()
}

/// The size's name under `size`.
pub(super) fn size(config: &str) -> Option<String> {
    first_value(config, "size").map(str::to_owned)
}

/// The number under `seed`.
pub(super) fn seed(config: &str) -> Option<u64> {
    first_value(config, "seed")?.replace('_', "").parse().ok()
}

/// The program's version under `version` in the table `frozen`, which the run directory records at the end.
pub(super) fn version(config: &str) -> Option<String> {
    let (_, frozen) = config.rsplit_once("[frozen]")?;
    first_value(frozen, "version").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_any_table() {
        let config =
            "[run]\nmethod = \"sgs-no-guide\" # ablation\nseed = 1_000\n[frozen]\nversion = '0.1.0'\n";
        assert_eq!(method(config), Some(Method::SgsNoGuide));
        assert_eq!(seed(config), Some(1000));
        assert_eq!(version(config).as_deref(), Some("0.1.0"));
        assert_eq!(method("method = 3"), None);
        assert_eq!(seed(""), None);
    }
}
