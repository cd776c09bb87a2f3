//! The round that is being sampled, and its recovery from the journal.

use crate::error::{Result, bail};
use crate::round::dispatcher::Work;
use crate::round::event::EventStream;
use crate::round::infra::FaultCounts;
use crate::round::record::{self, Entry};
use crate::train::update::Completions;
use sgs_rundir::{Journal, RecordKey};
use sgs_selfplay::{Command, Event, Progress, Round};

/// A round with the completions of its results so far.
pub(crate) struct SampledRound {
    pub round: Round,
    pub completions: Completions,
}

impl SampledRound {
    /// Applies the journal's records of the round and returns the number of results. If the round `is_open`, discards
    /// lost results, so that their tasks are tried again.
    pub(crate) fn replay(
        &mut self,
        journal: &Journal,
        is_open: bool,
        faults: &mut FaultCounts,
    ) -> Result<u64> {
        let mut count = 0;
        let (mut damaged, mut lost): (Vec<String>, Vec<RecordKey>) = (Vec::new(), Vec::new());
        let Self { round, completions } = self;
        journal.reader().for_each_record(round.number(), None, |record| {
            match record::entries(&record.payload) {
                Ok(entries) => {
                    for entry in entries {
                        // A lost result is the only entry of its record, because commands that fail together are
                        // retried one by one.
                        if is_open && matches!(entry.event, Event::Lost { .. }) {
                            lost.push(record.key.clone());
                            continue;
                        }
                        faults.note_submitted(entry.event.key().kind);
                        faults.note(&entry.event);
                        if let Some(completion) = entry.completion {
                            completions.insert(entry.event.key().clone(), completion);
                        }
                        round.apply(entry.event);
                        count += 1;
                    }
                }
                Err(error) => damaged.push(format!("{:?}: {error:#}", record.key)),
            }
            Ok(())
        })?;
        if let Some(first) = damaged.first() {
            bail!(
                "{} records of round {} in the journal cannot be read, the first is {first}; resume with the program \
                 version that created the run, or move journal.sqlite to another folder: the run then continues after its \
                 last published round",
                damaged.len(),
                self.round.number()
            );
        }
        if !lost.is_empty() {
            tracing::info!("round {}: {} lost tasks are retried", self.round.number(), lost.len());
            // Remove the records before the tasks are submitted again, because if two records have the same key, the
            // journal keeps the first.
            journal.remove(lost)?;
        }
        Ok(count)
    }

    /// Returns the number of tokens sampled in the round so far.
    pub(crate) fn sampled_tokens(&self) -> u64 {
        self.completions.values().map(|c| c.tokens.len() as u64).sum()
    }
}

impl Work for SampledRound {
    fn name(&self) -> String {
        format!("round {}", self.round.number())
    }

    fn describe_open(&self, tasks: usize) -> String {
        let first = self.round.pending().first().map(|command| command.key().to_string());
        format!("{tasks} tasks are open, the first is {}", first.unwrap_or_default())
    }

    fn begin(&mut self) -> Vec<Command> {
        let pending = self.round.pending();
        self.completions.reserve(pending.len());
        pending
    }

    fn apply(&mut self, entry: Entry, events: &mut EventStream<'_>) -> Vec<Command> {
        events.result(&entry.event);
        if let Some(completion) = entry.completion {
            self.completions.insert(entry.event.key().clone(), completion);
        }
        self.round.apply(entry.event)
    }

    fn is_complete(&self) -> bool {
        self.round.is_complete()
    }

    fn progress(&self) -> Progress {
        self.round.progress()
    }
}
