//! Reads the rows of rounds' tables and collects notes about rows that could not be read.

use sgs_rundir::PublishedRound;
use sgs_rundir::directories::check_file;
use sgs_rundir::table::{RowReader, TableRow};
use std::collections::HashMap;
use std::path::PathBuf;

/// Maximum number of notes about damaged tables.
const MAX_TABLE_NOTES: usize = 20;

/// Reads tables whose checksums match. Each table is checked once, when it is first read.
#[derive(Default)]
pub(super) struct TableRows {
    /// Whether a table matches its checksum.
    checked: HashMap<PathBuf, bool>,
    notes: Vec<String>,
    table_notes: usize,
}

impl TableRows {
    /// Calls `visit` with each row of a table until it returns `false`. Damage is noted and ends the table.
    pub(super) fn each<R: TableRow>(
        &mut self,
        round: &PublishedRound,
        table: &str,
        mut visit: impl FnMut(R) -> bool,
    ) {
        let path = round.directory().join(table);
        let is_sound = match self.checked.get(&path) {
            Some(is_sound) => *is_sound,
            None => {
                let checked = check_file(round.directory(), table);
                let is_sound = checked.is_ok();
                self.checked.insert(path.clone(), is_sound);
                checked.unwrap_or_else(|error| self.note_table(round, &error));
                is_sound
            }
        };
        if !is_sound {
            return;
        }
        let read = RowReader::<R>::open(&path).and_then(|rows| {
            for row in rows {
                if !visit(row?) {
                    break;
                }
            }
            Ok(())
        });
        if let Err(error) = read {
            self.note_table(round, &error);
        }
    }

    /// Returns all rows of a table that can be read.
    pub(super) fn all<R: TableRow>(&mut self, round: &PublishedRound, table: &str) -> Vec<R> {
        let mut rows = Vec::new();
        self.each(round, table, |row| {
            rows.push(row);
            true
        });
        rows
    }

    /// Adds a note unless it exists already.
    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    fn note_table(&mut self, round: &PublishedRound, error: &sgs_rundir::Error) {
        if self.table_notes < MAX_TABLE_NOTES {
            self.table_notes += 1;
            self.note(format!("part of round {} is left out: {error}", round.round()));
        }
    }
}
