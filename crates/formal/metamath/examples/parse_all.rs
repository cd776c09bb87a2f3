//! Parses every formula of a database and says how long that takes.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]
use std::time::Instant;
fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        let database = sgs_metamath::database::Database::read(path.as_ref())?;
        let read = start.elapsed();
        match sgs_metamath::theory::Theory::new(database) {
            Ok(t) => {
                println!("{path}: read {read:?}, {} rules, {:?} in all", t.rules().len(), start.elapsed())
            }
            Err(e) => println!("{path}: {e}"),
        }
    }
    Ok(())
}
