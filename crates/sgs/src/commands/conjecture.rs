//! `sgs conjecture`: what the Conjecturer invents for a statement.

use crate::args::ConjectureArgs;
use crate::desk::Desk;
use crate::exit::{Outcome, Usage};
use crate::output;
use crate::players::Players;
use anyhow::Result;
use serde_json::json;
use sgs_formal::{Condition, FormalSystem};
use sgs_lm::Device;
use sgs_lm::model::Model;
use sgs_lm::sampler::Decode;
use sgs_lm::tokenizer::Tokenizer;
use sgs_run::evaluate;
use sgs_run::with_device;
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{Problem, ReadConjecture, Role};
use std::collections::BTreeMap;

/// Samples conjectures for a statement and prints those that are statements, the most frequent first.
pub fn run(args: &ConjectureArgs) -> Result<Outcome> {
    if args.samples == 0 {
        return Err(Usage("--samples is 0: give at least 1".to_owned()).into());
    }
    let players = Players::choose(&args.play)?;
    let desk = Desk::new(&players, args.context.as_deref().unwrap_or_default(), &args.play.lean)?;
    let target = desk.asked(args.problem.as_deref(), args.statement.as_deref())?;
    let session = desk.start(Some(&target))?;
    let (tokenizer, weights) = players.load(Role::Conjecturer)?;
    let invented = with_device!(args.play.device, 0, device => {
        let model = Model::new(device, weights, players.positions())?;
        let tokens = players.tokens(Role::Conjecturer);
        invent(&*session.system, &target.problem, &tokenizer, &model, tokens, args)?
    });
    match args.json {
        true => output::json(&invented.as_json(&target.problem))?,
        false => output::line(invented.as_text(&*session.system, &target.problem))?,
    }
    Ok(if invented.conjectures.is_empty() { Outcome::Failed } else { Outcome::Done })
}

/// What came of the samples.
#[derive(Default)]
struct Invented {
    samples: u32,
    /// How often each statement came, in the order in which they came first.
    conjectures: Vec<(ReadConjecture, u32)>,
    /// Defects with their number and one in full.
    defects: BTreeMap<String, (u32, String)>,
}

fn invent<D: Device + Decode>(
    system: &dyn FormalSystem,
    target: &Problem,
    tokenizer: &Tokenizer,
    model: &Model<D>,
    tokens: usize,
    args: &ConjectureArgs,
) -> Result<Invented> {
    let prompt = system.conjecturer_prompt(Condition::Target(target));
    let seeds = (0..args.samples).map(|i| task_seed(args.play.seed, 0, Role::Conjecturer, &target.id, i));
    let texts = evaluate::sample_one(model, tokenizer, &prompt, seeds, tokens, args.play.memory_mib)?;
    let mut invented = Invented { samples: args.samples, ..Invented::default() };
    for text in texts {
        match system.read_conjecture(Condition::Target(target), &text) {
            Ok(read) => {
                match invented.conjectures.iter_mut().find(|(known, _)| known.statement == read.statement) {
                    Some((_, count)) => *count += 1,
                    None => invented.conjectures.push((read, 1)),
                }
            }
            Err(e) => invented.defects.entry(e.kind).or_insert((0, e.detail)).0 += 1,
        }
    }
    invented.conjectures.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Ok(invented)
}

impl Invented {
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
            text.push_str(&format!("{count:>5}  no statement, {kind}: {example}\n"));
        }
        let well = self.conjectures.iter().map(|(_, count)| count).sum::<u32>();
        text.push_str(&format!(
            "\n{well} of {} samples are statements, {} different ones",
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
