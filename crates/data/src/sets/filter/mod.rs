//! Filters a large set of formalized problems for those that are hard and true, as the paper made D_3k (Appendix D).
//!
//! Each stage writes a result for each problem to a separate file (`sets::ledger`). The decision about a problem is
//! derived from its result, so that a threshold can change without new results.

mod config;
mod report;
mod rollouts;

pub use config::{FilterConfig, Label, Rollouts, Sample, Stage};
pub use report::{Row, report};
pub use rollouts::Tried;

use super::label::{Solvability, read_solvability};
use super::ledger::{Ledger, Subject};
use super::teacher::{About, Said, Teacher, TeacherOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sgs_formal::FormalSystem;
use sgs_lean::Lean;
use sgs_lean::data::{Target, write_line};
use sgs_lean::prompt;
use sgs_lm::ModelConfig;
use sgs_lm::tokenizer::Tokenizer;
use sgs_run::config::device::DeviceKind;
use sgs_run::config::endpoint::EndpointConfig;
use sgs_run::error::{Context, Result, bail};
use sgs_run::workers::attempts::AttemptSummary;
use sgs_rundir::files::write_file;
use sgs_rundir::lock::RunLock;
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{Problem, Role};
use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The decision about a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It passed all stages.
    Kept,
    /// The model proves it too often.
    Easy,
    /// The model proves its negation.
    False,
    /// The model proves both it and its negation: its header is inconsistent, or the checker is wrong.
    Contradictory,
    /// The sample does not include it.
    NotDrawn,
    /// A model answers that it has no proof.
    Unsolvable,
}

impl Fate {
    /// Its name in the filter's files and report.
    pub fn as_str(self) -> &'static str {
        match self {
            Fate::Kept => "kept",
            Fate::Easy => "easy",
            Fate::False => "false",
            Fate::Contradictory => "contradictory",
            Fate::NotDrawn => "not-drawn",
            Fate::Unsolvable => "unsolvable",
        }
    }
}

/// The result of a stage for one problem.
#[derive(Clone, Debug)]
pub struct Finding {
    /// [`Fate::Kept`] if the problem passes the stage.
    pub fate: Fate,
    /// Whether the stage could decide. An undecided problem passes.
    pub decided: bool,
    /// The evidence for the decision.
    pub by: Value,
}

/// A filter with its inputs and outputs.
pub struct Filter<'a> {
    /// The stages.
    pub config: &'a FilterConfig,
    /// The folder of the results.
    pub out: &'a Path,
    /// The device for models that no server serves.
    pub device: DeviceKind,
    /// The checker.
    pub system: &'a Lean,
    /// Called when a stage begins, with its name and the number of its problems.
    pub on_stage: &'a (dyn Fn(&str, usize) + Sync),
    /// Called with the number of problems that a stage has finished since the last call.
    pub on_problem: &'a (dyn Fn(usize) + Sync),
}

impl Filter<'_> {
    /// Runs the stages and writes `kept.jsonl`, `fates.jsonl` and `report.md` after each. Returns a row for each stage.
    ///
    /// # Errors
    /// Returns an error if a stage fails. The results so far are kept, and the same call resumes from them.
    pub fn run(&self, targets: &[Target]) -> Result<Vec<Row>> {
        std::fs::create_dir_all(self.out).with_context(|| format!("cannot make {}", self.out.display()))?;
        let _lock = RunLock::take(&self.out.join("lock"), self.out)?;
        self.check_models()?;
        let mut left: Vec<usize> = (0..targets.len()).collect();
        let mut fates: Vec<Map> = vec![Map::new(); targets.len()];
        let mut rows = Vec::new();
        for stage in &self.config.stage {
            let problems: Vec<Problem> = left.iter().map(|&at| targets[at].problem.clone()).collect();
            (self.on_stage)(stage.name(), problems.len());
            let findings =
                self.findings(stage, &problems).with_context(|| format!("in the stage {}", stage.name()))?;
            rows.push(Row::of(stage.name(), &findings));
            for (&at, finding) in left.iter().zip(&findings) {
                fates[at].insert(stage.name().to_owned(), finding.by.clone());
                fates[at].insert("fate".to_owned(), json!(finding.fate));
                fates[at].insert("stage".to_owned(), json!(stage.name()));
            }
            let mut verdicts = findings.iter();
            left.retain(|_| verdicts.next().is_some_and(|finding| finding.fate == Fate::Kept));
            self.write(targets, &left, &fates, &rows)?;
        }
        Ok(rows)
    }

    /// Checks that all models exist before the first stage starts, because a stage may take days.
    fn check_models(&self) -> Result<()> {
        for stage in &self.config.stage {
            let Stage::Rollouts(stage) = stage else { continue };
            // A stage with results may be complete, and its model may have been removed.
            if self.file(&stage.name).exists() {
                continue;
            }
            let (folder, about) = (Path::new(&stage.model), || format!("in the stage {}", stage.name));
            Tokenizer::load(folder).with_context(about)?;
            if stage.endpoint.url.is_empty() {
                ModelConfig::load(folder).with_context(about)?;
            }
        }
        Ok(())
    }

    fn write(&self, targets: &[Target], left: &[usize], fates: &[Map], rows: &[Row]) -> Result<()> {
        let kept: String = left.iter().map(|&at| write_line(&targets[at])).collect();
        write_file(&self.out.join("kept.jsonl"), kept.as_bytes())?;
        let mut lines = String::new();
        for (target, fate) in targets.iter().zip(fates) {
            let mut line = Map::from_iter([("id".to_owned(), json!(target.problem.id))]);
            line.extend(fate.clone());
            lines.push_str(&format!("{}\n", Value::Object(line)));
        }
        write_file(&self.out.join("fates.jsonl"), lines.as_bytes())?;
        write_file(&self.out.join("report.md"), report(self.config, rows, targets, fates).as_bytes())?;
        Ok(())
    }

    fn findings(&self, stage: &Stage, problems: &[Problem]) -> Result<Vec<Finding>> {
        match stage {
            Stage::Rollouts(stage) => self.rollouts(stage, problems),
            Stage::Sample(stage) => Ok(self.sample(stage, problems)),
            Stage::Label(stage) => self.label(stage, problems),
        }
    }

    fn rollouts(&self, stage: &Rollouts, problems: &[Problem]) -> Result<Vec<Finding>> {
        let mut made = json!({
            "model": model(&stage.model, &stage.endpoint), "k": stage.k, "negation": stage.negation,
            "prompt": stage.prompt, "context": stage.context, "seed": self.config.seed,
            "checker": FormalSystem::identity(self.system),
        });
        if let Some(checksum) = self.system.checksum_of_prompts().filter(|_| stage.prompt.is_empty()) {
            made["prompts"] = checksum.into();
        }
        let mut ledger = Ledger::open(&self.file(&stage.name), &made)?;
        rollouts::attempt(
            stage,
            self.config.seed,
            self.device,
            self.system,
            problems,
            &mut ledger,
            self.on_problem,
        )?;
        let finding = |problem: &Problem| {
            let tried = ledger.found(&Subject::problem(problem)).context("a problem was not tried")?;
            Ok(find(stage, tried))
        };
        problems.iter().map(finding).collect()
    }

    /// Keeps the problems with the smallest hashes, so that the sample does not depend on the order of the set.
    fn sample(&self, stage: &Sample, problems: &[Problem]) -> Vec<Finding> {
        let lot = |problem: &Problem| task_seed(self.config.seed, 0, Role::Conjecturer, &problem.id, 0);
        let mut lots: Vec<(u64, usize)> = problems.iter().map(lot).zip(0..).collect();
        lots.sort_unstable();
        let drawn: HashSet<usize> = lots.iter().take(stage.count).map(|(_, at)| *at).collect();
        (self.on_problem)(problems.len());
        let finding = |at: usize| match drawn.contains(&at) {
            true => Finding { fate: Fate::Kept, decided: true, by: json!("drawn") },
            false => Finding { fate: Fate::NotDrawn, decided: true, by: json!("not drawn") },
        };
        (0..problems.len()).map(finding).collect()
    }

    fn label(&self, stage: &Label, problems: &[Problem]) -> Result<Vec<Finding>> {
        let made = json!({
            "model": model("", &stage.endpoint), "max_tokens": stage.max_tokens, "seed": self.config.seed,
        });
        let mut ledger = Ledger::<Said<Solvability>>::open(&self.file(&stage.name), &made)?;
        let questions: Vec<About> =
            problems.iter().map(|p| About::new(&p.id, prompt::solvability(p))).collect();
        let done = Mutex::new(0);
        let on_answer = |answered: usize| {
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            (self.on_problem)(answered.saturating_sub(std::mem::replace(&mut done, answered)));
        };
        let mut teacher = Teacher::new(TeacherOptions {
            endpoint: stage.endpoint.clone(),
            max_tokens: stage.max_tokens,
            tries: stage.tries,
            seed: self.config.seed,
        });
        teacher.ask(&mut ledger, &questions, 1.0, read_solvability, on_answer)?;
        let finding = |about: &About| {
            let said = ledger.found(&about.subject).map(|found| found.said);
            let fate = if said == Some(Solvability::Unsolvable) { Fate::Unsolvable } else { Fate::Kept };
            Finding { fate, decided: said.is_some(), by: json!(said) }
        };
        Ok(questions.iter().map(finding).collect())
    }

    fn file(&self, stage: &str) -> std::path::PathBuf {
        self.out.join(format!("{stage}.jsonl"))
    }
}

type Map = serde_json::Map<String, Value>;

/// Identifies a model, independently of the server.
fn model(folder: &str, endpoint: &EndpointConfig) -> Value {
    if endpoint.url.is_empty() { json!(folder) } else { json!({ "served": endpoint.model }) }
}

/// Decides about a problem from its rollouts.
fn find(stage: &Rollouts, tried: &Tried) -> Finding {
    let k = f64::from(stage.k);
    let AttemptSummary { proved, judged, .. } = tried.problem;
    let (proved, judged) = (f64::from(proved), f64::from(judged));
    let is_false = tried.negation.as_ref().is_some_and(|negation| negation.proved > 0);
    let is_easy = proved > stage.drop_above * k;
    let fate = match (is_false, proved > 0.0, is_easy) {
        (true, true, _) => Fate::Contradictory,
        (true, false, _) => Fate::False,
        (false, _, true) => Fate::Easy,
        (false, ..) => Fate::Kept,
    };
    // Lost rollouts could have changed the decision, as could rollouts for a negation that cannot be formed.
    let is_open = proved + (k - judged) > stage.drop_above * k
        || (stage.negation && tried.negation.as_ref().is_none_or(|negation| negation.judged < stage.k));
    Finding { fate, decided: fate != Fate::Kept || !is_open, by: json!(tried) }
}

/// Reads the problems of a configuration and starts Lean.
pub fn open(
    config: &FilterConfig,
    lean: &sgs_lean::LeanSettings,
) -> Result<(Lean, Vec<Target>, Vec<String>)> {
    // The option is placed after the header of a problem, and overrides it.
    let binds = lean.options.iter().any(|(name, value)| name == "autoImplicit" && value != "false");
    let negates = |stage: &Stage| matches!(stage, Stage::Rollouts(stage) if stage.negation);
    if binds && config.stage.iter().any(negates) {
        bail!(
            "`lean.options` turns autoImplicit on, and a negation is one only where that is off: leave it out, or have no \
             stage sample the negation"
        );
    }
    let targets = sgs_run::config::system::lean_targets(&config.problems)?;
    if targets.is_empty() {
        bail!("{} holds no problem", config.problems);
    }
    let (system, notes) = sgs_run::config::lean::start(lean)?;
    sgs_run::config::system::check_toolchain(&system, &targets, &config.problems)?;
    system.canaries(&targets[0].problem.context)?;
    Ok((system, targets, notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(proved: u32, judged: u32, negation: Option<(u32, u32)>) -> Tried {
        let summary = |(proved, judged)| AttemptSummary { proved, judged, proof: None };
        Tried { problem: summary((proved, judged)), negation: negation.map(summary) }
    }

    #[test]
    fn proofs_decide_the_fate_of_a_problem() {
        let under = |drop_above, negation, tried: Tried| {
            let finding = find(&Rollouts { drop_above, negation, ..Rollouts::default() }, &tried);
            (finding.fate, finding.decided)
        };
        let of = |drop_above, tried: Tried| under(drop_above, tried.negation.is_some(), tried);
        // The limits mean more than half, and more than two of eight.
        assert_eq!(of(0.5, tried(4, 8, None)), (Fate::Kept, true));
        assert_eq!(of(0.5, tried(5, 8, None)), (Fate::Easy, true));
        assert_eq!(of(0.25, tried(2, 8, Some((0, 8)))), (Fate::Kept, true));
        assert_eq!(of(0.25, tried(3, 8, Some((0, 8)))), (Fate::Easy, true));
        assert_eq!(of(0.25, tried(0, 8, Some((1, 8)))), (Fate::False, true));
        assert_eq!(of(0.25, tried(1, 8, Some((1, 8)))), (Fate::Contradictory, true));
        // Lost rollouts can change the decision.
        assert_eq!(of(0.5, tried(4, 7, None)), (Fate::Kept, false));
        assert_eq!(of(0.5, tried(2, 6, None)), (Fate::Kept, true));
        assert_eq!(of(0.5, tried(5, 6, None)), (Fate::Easy, true));
        assert_eq!(of(0.25, tried(0, 8, Some((0, 7)))), (Fate::Kept, false));
        // A negation that cannot be formed can change it, too.
        assert_eq!(under(0.25, true, tried(0, 8, None)), (Fate::Kept, false));
    }
}
