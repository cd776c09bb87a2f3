//! The journal record of a finished task, and how to read it.

use crate::error::Result;
use crate::workers::tasks;
use serde::{Deserialize, Serialize};
use sgs_rundir::journal::JournalReader;
use sgs_rundir::{Record, RecordKey};
use sgs_selfplay::{Completion, Event};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The result of one command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The event to apply to the round.
    pub event: Event,
    pub completion: Option<Completion>,
}

/// Builds the record of a finished task under the key of its first command. Returns `None` if `entries` is empty. The
/// prompt that all entries share is written once.
pub fn record(entries: &mut [Entry]) -> Result<Option<Record>> {
    let Some(first) = entries.first() else { return Ok(None) };
    let key = RecordKey::from(first.event.key());
    let prompt = take_prompt(entries);
    let payload = tasks::packed(&(&prompt, &*entries));
    put_prompt(entries, &prompt);
    Ok(Some(Record { key, payload: payload? }))
}

fn take_prompt(entries: &mut [Entry]) -> Arc<[u32]> {
    let completions = entries.iter_mut().filter_map(|e| e.completion.as_mut());
    completions.map(|c| std::mem::take(&mut c.prompt_tokens)).last().unwrap_or_default()
}

fn put_prompt(entries: &mut [Entry], prompt: &Arc<[u32]>) {
    let completions = entries.iter_mut().filter_map(|e| e.completion.as_mut());
    completions.for_each(|c| c.prompt_tokens = Arc::clone(prompt));
}

/// Returns the entries of a record.
///
/// # Errors
/// Returns an error if the payload is damaged or was written by another version.
pub fn entries(payload: &[u8]) -> Result<Vec<Entry>> {
    let (prompt, mut entries): (Arc<[u32]>, Vec<Entry>) = tasks::unpack(payload)?;
    put_prompt(&mut entries, &prompt);
    Ok(entries)
}

/// Counts the results of each kind of a round in the journal. Skips records that cannot be read.
pub fn counts(journal: &JournalReader, round: u32) -> Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    journal.for_each_record(round, None, |record| {
        let found = entries(&record.payload).map_or(0, |entries| entries.len() as u64);
        *counts.entry(record.key.kind.to_string()).or_insert(0) += found;
        Ok(())
    })?;
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sgs_selfplay::{FinishReason, ProblemId, SampleFacts, TaskKey, TaskKind};

    fn entry(index: u32) -> Entry {
        let key = TaskKey { round: 2, kind: TaskKind::Rollout, problem: ProblemId::new("p"), index };
        let completion = Completion {
            text: "∀".into(),
            prompt_tokens: vec![4, 5].into(),
            tokens: vec![index],
            log_probs: vec![-0.5],
            entropy: None,
            finish: FinishReason::Stop,
            policy_version: 2,
        };
        let sample = SampleFacts::of(&completion);
        Entry {
            event: Event::Rollout { key, read: Err("no-end".into()), sample },
            completion: Some(completion),
        }
    }

    #[test]
    fn a_task_comes_back_from_its_record() {
        let all = vec![entry(3), entry(4)];
        let mut given = all.clone();
        let record = record(&mut given).unwrap().unwrap();
        assert_eq!(given, all, "what was written is as it was");
        assert_eq!((record.key.round, &*record.key.kind, record.key.index), (2, "rollout", 3));
        assert_eq!(entries(&record.payload).unwrap(), all);
        assert!(entries(&record.payload[..record.payload.len() - 1]).is_err());
        assert!(super::record(&mut []).unwrap().is_none());
    }
}
