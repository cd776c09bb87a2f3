//! `sgs data build`: the slice, the targets, the corpora and the tokenizer of the embedded formal system.

use crate::args::DataBuildArgs;
use crate::corpus::CorpusRow;
use crate::exit::Outcome;
use crate::output;
use anyhow::{Context, Result, bail};
use serde_json::json;
use sgs_formal::{FormalSystem, Prompt, Seed};
use sgs_metamath::corpus::splits::{Split, SplitRule, split};
use sgs_metamath::corpus::{conjecturer, guide, solver};
use sgs_metamath::database::Database;
use sgs_metamath::system::Metamath;
use sgs_metamath::theory::{RuleId, Theory};
use sgs_metamath::{slice, tokens};
use sgs_rundir::files::write_file;
use sgs_rundir::table::write_rows;
use sgs_selfplay::{Problem, ProblemId};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Builds everything into a folder.
pub fn run(args: &DataBuildArgs) -> Result<Outcome> {
    fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let (text, origin) = slice_text(args.source.as_deref())?;
    write_file(&args.out.join("set-slice.mm"), &text)?;
    let system = Metamath::new(Theory::new(Database::parse(slice::SLICE_NAME, text)?)?);
    let split = split(system.theory(), SplitRule::default());
    let rows = corpus_rows(&system, &split, args);
    let mut files = BTreeMap::new();
    let mut counts: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for (role, rows) in rows {
        for row in &rows {
            *counts.entry(role.to_owned()).or_default().entry(row.kind.clone()).or_insert(0) += 1;
        }
        let name = format!("{role}.parquet");
        write_rows(&args.out.join(&name), rows)?;
        files.insert(name.clone(), hash_of(&args.out.join(&name))?);
    }
    write_targets(&system, &split, &args.out)?;
    let tokenizer = serde_json::to_vec(&tokens::tokenizer_json(system.theory()))?;
    write_file(&args.out.join("tokenizer.json"), &tokenizer)?;
    let config = serde_json::to_vec_pretty(&tokens::tokenizer_config_json())?;
    write_file(&args.out.join("tokenizer_config.json"), &config)?;
    for name in ["targets.jsonl", "tokenizer.json", "tokenizer_config.json", "set-slice.mm"] {
        files.insert(name.to_owned(), hash_of(&args.out.join(name))?);
    }
    let card = card(args, &split, &counts, &files, &origin);
    write_file(&args.out.join("README.md"), card.as_bytes())?;
    output::line(card)?;
    Ok(Outcome::Done)
}

/// The slice's text and where it comes from.
fn slice_text(source: Option<&Path>) -> Result<(Vec<u8>, String)> {
    let Some(path) = source else {
        return Ok((slice::shipped_text()?, "the slice that ships with sgs".to_owned()));
    };
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let hash = slice::sha256(&text);
    let cut = slice::cut(&path.display().to_string(), &text, slice::SLICE_ASSERTIONS)?;
    let cut_hash = slice::sha256(&cut);
    if hash == slice::ORIGIN_SHA256 && cut_hash != slice::SLICE_SHA256 {
        bail!(
            "the slice of the known set.mm has hash {cut_hash}, not {}: this is a defect",
            slice::SLICE_SHA256
        );
    }
    let same = if cut_hash == slice::SLICE_SHA256 { "equal to" } else { "different from" };
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    Ok((cut, format!("{name} with SHA-256 {hash}; the slice is {same} the one that ships with sgs")))
}

fn corpus_rows(
    system: &Metamath,
    split: &Split,
    args: &DataBuildArgs,
) -> Vec<(&'static str, Vec<CorpusRow>)> {
    let (theory, book) = (system.theory(), system.book());
    let problem = |source: RuleId, statement: &str| Problem {
        id: ProblemId::new(theory.label(source)),
        statement: statement.into(),
        context: theory.label(source).into(),
    };
    let row = |role: &str, kind: &str, source: RuleId, prompt: Prompt, completion: String| {
        let (Prompt::Raw(prompt) | Prompt::Chat(prompt)) = prompt;
        CorpusRow {
            role: role.to_owned(),
            kind: kind.to_owned(),
            source: theory.label(source).to_owned(),
            prompt,
            completion: format!("{completion} {}", tokens::END),
        }
    };
    let composed = solver::Composer::new(theory, book, split).compose(args.seed, args.composed);
    let proofs = solver::theorems(theory, split)
        .into_iter()
        .chain(solver::sub_proofs(theory, book, split))
        .chain(composed)
        .map(|e| {
            let prompt = system.solver_prompt(&problem(e.source, &e.statement));
            row("solver", e.kind.as_str(), e.source, prompt, system.proof_completion(&e.proof))
        })
        .collect();
    let conjectures = conjecturer::examples(theory, book, split, args.seed)
        .into_iter()
        .map(|e| {
            let (kind, prompt) = match &e.condition {
                conjecturer::Condition::Target(t) => {
                    ("target", system.conjecturer_prompt(Seed::Target(&problem(e.source, t))))
                }
                conjecturer::Condition::Solved { statement, proof } => {
                    let problem = problem(e.source, statement);
                    ("solved", system.conjecturer_prompt(Seed::Solved { problem: &problem, proof }))
                }
                conjecturer::Condition::Nothing => {
                    ("nothing", system.conjecturer_prompt(Seed::Nothing(&problem(e.source, ""))))
                }
            };
            row("conjecturer", kind, e.source, prompt, e.conjecture)
        })
        .collect();
    let reviews = guide::examples(theory, book, split, args.seed, args.reviews)
        .into_iter()
        .map(|e| {
            let prompt =
                system.guide_prompt(&problem(e.source, &e.target), &problem(e.source, &e.conjecture));
            row("guide", e.origin.as_str(), e.source, prompt, Metamath::review_completion(&e.review))
        })
        .collect();
    vec![("solver", proofs), ("conjecturer", conjectures), ("guide", reviews)]
}

fn write_targets(system: &Metamath, split: &Split, out: &Path) -> Result<()> {
    let mut text = String::new();
    for (i, &target) in split.targets.iter().enumerate() {
        let label = system.theory().label(target);
        let problem = system.problem(label).with_context(|| format!("{label} has no normal form"))?;
        let line = json!({
            "id": problem.id, "statement": problem.statement, "context": problem.context,
            "quick": i < SplitRule::default().quick,
        });
        text.push_str(&line.to_string());
        text.push('\n');
    }
    write_file(&out.join("targets.jsonl"), text.as_bytes())?;
    Ok(())
}

fn hash_of(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(slice::sha256(&bytes))
}

fn card(
    args: &DataBuildArgs,
    split: &Split,
    counts: &BTreeMap<String, BTreeMap<String, usize>>,
    files: &BTreeMap<String, String>,
    origin: &str,
) -> String {
    let rule = SplitRule::default();
    let mut out = format!(
        "# Metamath corpora of sgs\n\n\
         Source: {origin}. set.mm is in the public domain (CC0).\n\n\
         Made by `sgs data build --seed {} --composed {} --reviews {}`.\n\n\
         ## Targets\n\n\
         {} theorems drawn with seed {} from {} candidates among the provable assertions {} to {}: {} to {} \
         essential steps, at most {} symbols, not discouraged, not old or alternative, not stated before. The first \
         {} are the quick set. Not candidates:\n\n",
        args.seed,
        args.composed,
        args.reviews,
        split.targets.len(),
        rule.seed,
        split.candidates,
        rule.from,
        rule.to,
        rule.min_steps,
        rule.max_steps,
        rule.max_symbols,
        rule.quick
    );
    for (reason, count) in &split.dropped {
        out.push_str(&format!("- {reason}: {count}\n"));
    }
    out.push_str(
        "\nNo target, under whatever names and order of hypotheses, is stated by any training text, and no part of a \
         target's own proof is in a corpus.\n\n## Corpora\n\n| role | kind | examples |\n|---|---|---|\n",
    );
    for (role, kinds) in counts {
        for (kind, count) in kinds {
            out.push_str(&format!("| {role} | {kind} | {count} |\n"));
        }
    }
    out.push_str("\n## Files\n\n| file | SHA-256 |\n|---|---|\n");
    for (name, hash) in files {
        out.push_str(&format!("| {name} | {hash} |\n"));
    }
    out
}
