//! Measures how fast proofs are checked: of the shipped slice, or of the database files that are named.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]
use sgs_metamath::{bench::*, slice, theory::*, unify::*};
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let mut theories = Vec::new();
    if paths.is_empty() {
        theories.push(("slice".to_owned(), Theory::new(slice::shipped()?)?));
    }
    for path in paths {
        theories.push((path.clone(), Theory::read(path.as_ref())?));
    }
    for (name, theory) in theories {
        let book = RuleBook::new(&theory);
        println!("{name}: {}", bench(&theory, &book, BenchOptions::default())?);
    }
    Ok(())
}
