//! `sgs conjecture`: samples conjectures for a statement.

use crate::args::ConjectureArgs;
use crate::exit::Outcome;
use crate::model_source::ModelSource;
use crate::output;
use crate::statement_input::StatementInput;
use anyhow::Result;
use serde_json::json;
use sgs_formal::{Condition, FormalSystem, conjecture_prompt, read_conjecture};
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{ParsedConjecture, Problem, Role};
use std::collections::BTreeMap;

/// Samples conjectures for a statement and prints the well-formed ones, most frequent first.
pub fn run(args: &ConjectureArgs) -> Result<Outcome> {
    let players = ModelSource::choose(&args.sample.play)?;
    let statements = StatementInput::new(&players, &args.sample)?;
    let target = statements.given_target("a statement", args.statement.as_deref())?;
    let session = statements.start(Some(&target))?;
    let counts = invent(&players, &*session.system, &target.problem, args)?;
    match args.sample.json {
        true => output::json(&counts.as_json(&target.problem))?,
        false => output::line(counts.as_text(&*session.system, &target.problem))?,
    }
    Ok(if counts.conjectures.is_empty() { Outcome::Failed } else { Outcome::Done })
}

/// The parsed samples.
#[derive(Default)]
struct ConjectureCounts {
    samples: u32,
    /// Number of occurrences of each statement, in order of first occurrence.
    conjectures: Vec<(ParsedConjecture, u32)>,
    /// Defects, with their count and an example.
    defects: BTreeMap<String, (u32, String)>,
}

fn invent(
    players: &ModelSource,
    system: &dyn FormalSystem,
    target: &Problem,
    args: &ConjectureArgs,
) -> Result<ConjectureCounts> {
    let conjecturer = players.conjecturer();
    let prompt = conjecture_prompt(system, conjecturer.form, Condition::Target(target))?;
    let seeds = (0..args.sample.samples)
        .map(|i| task_seed(args.sample.play.seed, 0, Role::Conjecturer, &target.id, i));
    let texts = players.sample(&args.sample.play, Role::Conjecturer, &prompt, seeds)?;
    let mut counts = ConjectureCounts { samples: args.sample.samples, ..ConjectureCounts::default() };
    for text in texts {
        match read_conjecture(system, &conjecturer, Condition::Target(target), &text) {
            Ok(read) => {
                match counts.conjectures.iter_mut().find(|(known, _)| known.statement == read.statement) {
                    Some((_, count)) => *count += 1,
                    None => counts.conjectures.push((read, 1)),
                }
            }
            Err(e) => counts.defects.entry(e.kind).or_insert((0, e.detail)).0 += 1,
        }
    }
    counts.conjectures.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Ok(counts)
}

impl ConjectureCounts {
    fn as_text(&self, system: &dyn FormalSystem, target: &Problem) -> String {
        let mut text = format!("for {}\n\n", system.display_statement(&target.statement));
        for (read, count) in &self.conjectures {
            let note = match &read.known {
                Some(label) => format!("    (this is {label})"),
                None if read.statement == target.statement => "    (this is the target)".to_owned(),
                None => String::new(),
            };
            text.push_str(&format!("{count:>5}  {}{note}\n", system.display_statement(&read.statement)));
        }
        for (kind, (count, example)) in &self.defects {
            let example: String = example.chars().take(120).collect();
            text.push_str(&format!("{count:>5}  malformed, {kind}: {example}\n"));
        }
        let well = self.conjectures.iter().map(|(_, count)| count).sum::<u32>();
        text.push_str(&format!(
            "\n{well} of {} samples are valid statements, {} of them distinct",
            self.samples,
            self.conjectures.len()
        ));
        text
    }

    fn as_json(&self, target: &Problem) -> serde_json::Value {
        let conjectures: Vec<_> = self
            .conjectures
            .iter()
            .map(|(read, count)| json!({ "statement": read.statement, "count": count, "known": read.known }))
            .collect();
        let defects: Vec<_> = self
            .defects
            .iter()
            .map(|(kind, (count, example))| json!({ "kind": kind, "count": count, "example": example }))
            .collect();
        json!({ "target": target, "samples": self.samples, "conjectures": conjectures, "defects": defects })
    }
}
