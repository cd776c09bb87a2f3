//! Third-party verifiers: the crate `metamath-rs`, and the `metamath` program if installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the errors that `metamath-rs` finds in a database, by the label of the statement.
pub fn metamath_rs(text: Vec<u8>) -> BTreeMap<String, Vec<String>> {
    use metamath_rs::Database;
    use metamath_rs::database::DbOptions;
    let mut database = Database::new(DbOptions { jobs: 2, autosplit: true, ..DbOptions::default() });
    database.parse("exported.mm".to_owned(), vec![("exported.mm".to_owned(), text)]);
    database.verify_pass();
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (address, diagnostic) in database.diag_notations() {
        let label = String::from_utf8_lossy(database.statement_by_address(address).label()).into_owned();
        out.entry(label).or_default().push(format!("{diagnostic:?}"));
    }
    out
}

/// Verifies a database file with the `metamath` program. Returns `None` if the program is not installed.
pub fn metamath_c(path: &Path) -> Option<Result<(), String>> {
    let found = Command::new("metamath")
        .args([&format!("read '{}'", path.display()), "verify proof *", "exit"])
        .stdin(std::process::Stdio::null())
        .output();
    let Ok(output) = found else {
        println!("skipped: the program `metamath` is not installed (Debian package `metamath`)");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let fine = text.contains("All proofs in the database were verified")
        && !text.contains("?Error")
        && !text.contains("?Warning");
    Some(if fine { Ok(()) } else { Err(text) })
}

/// Returns the path of a database of the Debian package `metamath-databases`; `None` if it is not installed.
pub fn debian(name: &str) -> Option<PathBuf> {
    let path = Path::new("/usr/share/metamath/databases").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not installed (Debian package `metamath-databases`)", path.display());
    None
}
