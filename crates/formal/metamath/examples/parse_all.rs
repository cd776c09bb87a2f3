//! Parses every formula of the given databases and prints the time.
#![allow(clippy::print_stdout, reason = "a command-line program")]

use sgs_metamath::database::Database;
use sgs_metamath::theory::Theory;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        let database = Database::read(path.as_ref())?;
        let read = start.elapsed();
        match Theory::new(database) {
            Ok(theory) => {
                let rules = theory.rules().len();
                println!("{path}: read in {read:?}, {rules} rules, {:?} in total", start.elapsed());
            }
            Err(error) => println!("{path}: {error}"),
        }
    }
    Ok(())
}
