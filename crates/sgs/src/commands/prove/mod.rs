//! `sgs prove`: samples proofs of statements and prints the first valid one.

mod search;

use crate::args::ProveArgs;
use crate::exit::{Outcome, Usage};
use crate::model_source::{ModelSource, RoleModel};
use crate::output;
use crate::statement_input::{CheckerSession, StatementInput};
use anyhow::Result;
use search::{BATCH, ProofSearch, options_of, search};
use serde_json::{Value, json};
use sgs_formal::FormalSystem;
use sgs_lean::data::Target;
use sgs_lm::Device;
use sgs_lm_sampler::Decode;
use sgs_run::with_device;
use sgs_selfplay::{Problem, Role};
use std::io::{BufRead, IsTerminal, Read, Write};
use std::time::Instant;

/// Samples until a proof is valid or the budget is spent; without a statement, does so for each line of standard input.
pub fn run(args: &ProveArgs) -> Result<Outcome> {
    let players = ModelSource::choose(&args.sample.play)?;
    let mut statements = StatementInput::new(&players, &args.sample)?;
    // Parse before anything starts, so that an invalid statement is reported immediately.
    let given = || statements.given_target("a statement", args.statement.as_deref());
    let first = if args.is_interactive() { None } else { Some(given()?) };
    let folder = players.solver()?;
    let mut session = statements.start(first.as_ref())?;
    with_device!(args.sample.play.device, 0, device => {
        players.check(Role::Solver, &*device, args.max_new_tokens, &options_of(args), BATCH)?;
        let prover = ProofSampler { args, solver: RoleModel::load(&players, Role::Solver, &device)? };
        match players.round() {
            Some(round) => eprintln!("Solver after round {round}: {}", folder.display()),
            None if players.config().is_some() => {
                eprintln!("Solver: {}", players.described(&folder.display().to_string()));
            }
            None => {}
        }
        match first {
            Some(target) => prover.prove(&*session.system, &target.problem),
            None => prover.converse(&mut statements, &mut session),
        }
    })
}

/// The Solver's model with the arguments of the command.
struct ProofSampler<'a, D: Device + Decode> {
    args: &'a ProveArgs,
    solver: RoleModel<D>,
}

impl<D: Device + Decode> ProofSampler<'_, D> {
    fn prove(&self, system: &dyn FormalSystem, problem: &Problem) -> Result<Outcome> {
        let started = Instant::now();
        let search = search(system, problem, &self.solver, self.args)?;
        let seconds = started.elapsed().as_secs_f64();
        match (self.args.sample.json, self.args.is_interactive()) {
            (true, false) => output::json(&as_json(problem, &search, seconds))?,
            (true, true) => output::line(as_json(problem, &search, seconds))?,
            (false, _) => print(system, problem, &search, seconds)?,
        }
        Ok(if search.proof.is_some() { Outcome::Done } else { Outcome::Failed })
    }

    /// Proves the problems of standard input, one per line.
    fn converse(&self, statements: &mut StatementInput<'_>, session: &mut CheckerSession) -> Result<Outcome> {
        let typed = std::io::stdin().is_terminal();
        if typed {
            eprintln!("{}", statements.greeting());
        }
        // The outcome is the first failure, or success; `None` before the first statement.
        let mut outcome = None;
        let mut input = std::io::stdin().lock();
        for number in 1_u64.. {
            if typed {
                let _ = write!(std::io::stderr(), "> ");
            }
            let line = match read_line(&mut input)? {
                None => break,
                Some(Ok(line)) => line,
                Some(Err(why)) => {
                    eprintln!("error: line {number}: {why}");
                    outcome = Some(Outcome::Failed);
                    continue;
                }
            };
            let line = line.trim_start_matches('\u{feff}').trim();
            if line == "quit" || line == "exit" {
                outcome = outcome.or(Some(Outcome::Done));
                break;
            }
            if !line.is_empty() {
                // A user who types sees the line above the answer.
                let place = (!typed).then_some(number);
                let answer = self.answer(place, line, statements, session)?;
                outcome = outcome.filter(|so_far| *so_far != Outcome::Done).or(Some(answer));
            }
        }
        if typed {
            // End the line for the shell's prompt. The user has already seen the failures; a script needs the exit
            // code.
            eprintln!();
            return Ok(Outcome::Done);
        }
        let none = "no statement was given: give one as an argument, or one per line on standard input";
        outcome.ok_or_else(|| Usage(none.to_owned()).into())
    }

    /// Answers one line, whose number is given for input from a file or a program. An invalid line does not end the
    /// session.
    fn answer(
        &self,
        number: Option<u64>,
        line: &str,
        statements: &mut StatementInput<'_>,
        session: &mut CheckerSession,
    ) -> Result<Outcome> {
        let read = |statements: &mut StatementInput<'_>, session: &mut CheckerSession| -> Result<Target> {
            let target = statements.typed(line)?;
            session.prepare(&target)?;
            Ok(target)
        };
        if let Some(number) = number.filter(|_| !self.args.sample.json) {
            output::line(format!("line {number}: {line}"))?;
        }
        let done = read(statements, session).and_then(|target| self.prove(&*session.system, &target.problem));
        if let Err(error) = &done
            && error.chain().all(|cause| !cause.is::<std::io::Error>())
        {
            if self.args.sample.json {
                output::line(json!({ "statement": line, "error": format!("{error:#}") }))?;
            }
            let place = number.map_or_else(String::new, |number| format!("line {number}: "));
            eprintln!("{}", crate::exit::format_error_at(&place, error));
            return Ok(Outcome::Failed);
        }
        done
    }
}

fn print(system: &dyn FormalSystem, problem: &Problem, search: &ProofSearch, seconds: f64) -> Result<()> {
    let statement = system.display_statement(&problem.statement);
    if let Some(proof) = &search.proof {
        output::line(format!("{statement}\n"))?;
        output::line(system.display_proof(problem, proof).trim_end())?;
        return output::line(format!(
            "\nproved by sample {} in {seconds:.1} s; checked by {}",
            search.sampled,
            system.identity()
        ));
    }
    let samples = output::counted(search.sampled as usize, "sample");
    output::prose(format!("no proof of {statement} in {samples} ({seconds:.1} s):"))?;
    let mut rows: Vec<_> = search.failures.iter().collect();
    rows.sort_by_key(|(_, (n, _))| std::cmp::Reverse(*n));
    for ((verdict, kind), (n, reason)) in rows {
        let reason: String = reason.chars().take(160).collect();
        output::prose(format!(
            "{n:>6}  {:<9}  {kind}\n                   such as: {reason}",
            verdict.as_str()
        ))?;
    }
    output::prose("Try a larger --samples, another --seed, or a longer-trained model.")
}

fn as_json(problem: &Problem, search: &ProofSearch, seconds: f64) -> Value {
    let failures: Vec<_> = search
        .failures
        .iter()
        .map(|((verdict, kind), (n, reason))| {
            json!({ "verdict": verdict, "kind": kind, "count": n, "example": reason })
        })
        .collect();
    json!({
        "problem": problem, "proof": search.proof, "samples": search.sampled, "seconds": seconds,
        "failures": failures,
    })
}
/// Maximum length of a line, in bytes.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// Reads the next line, or the reason why it is not valid. Returns `None` at the end of the input.
fn read_line(input: &mut impl BufRead) -> Result<Option<Result<String, String>>> {
    let mut bytes = Vec::new();
    let read = input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes)?;
    if read == 0 {
        return Ok(None);
    }
    if read as u64 == MAX_LINE_BYTES && bytes.last() != Some(&b'\n') {
        // Skip the rest of the line.
        while input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes)? > 0
            && bytes.last() != Some(&b'\n')
        {
            bytes.clear();
        }
        return Ok(Some(Err(format!("the line is longer than {MAX_LINE_BYTES} bytes"))));
    }
    Ok(Some(String::from_utf8(bytes).map_err(|e| format!("the line is not UTF-8: {e}"))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_invalid_line_does_not_end_the_session() {
        let long = [vec![b'x'; 3 * MAX_LINE_BYTES as usize], b"\nlast".to_vec()].concat();
        let mut input = &[b"one\n\xff\xfe\ntwo\n".to_vec(), long].concat()[..];
        let mut next = || read_line(&mut input).unwrap();
        assert_eq!(next().unwrap().unwrap().trim(), "one");
        assert!(next().unwrap().unwrap_err().contains("UTF-8"));
        assert_eq!(next().unwrap().unwrap().trim(), "two");
        assert!(next().unwrap().unwrap_err().contains("bytes"));
        assert_eq!(next().unwrap().unwrap(), "last");
        assert!(next().is_none());
    }
}
