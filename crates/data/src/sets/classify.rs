//! Classifies problems by difficulty and area with a served model (paper, Appendix D).

use super::label::{AREAS, DIFFICULTIES, read_classification};
use super::ledger::Ledger;
use super::teacher::{About, Said, Teacher, TeacherOptions};
use serde_json::json;
use sgs_lean::data::Target;
use sgs_lean::prompt;
use sgs_run::error::{Context, Result};
use std::path::Path;

/// If a larger fraction of the problems is classified, no question is repeated (paper, Appendix D).
pub const ENOUGH: f64 = 0.99;

/// A problem's difficulty and area.
type Class = (String, String);

/// The classes of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Classification {
    /// The served model's name, if it is known.
    pub model: Option<String>,
    /// Number of problems of the data set.
    pub problems: usize,
    /// Number of classified problems.
    pub classified: usize,
    /// Number of problems of each difficulty, by area.
    pub counts: Vec<Vec<usize>>,
}

impl Classification {
    /// Returns the fraction of the problems that are classified.
    pub fn share(&self) -> f64 {
        self.classified as f64 / self.problems as f64
    }
}

/// Classifies a data set and stores the classes in `out/classes.jsonl`. A later call with the same folder continues.
/// `on_progress` receives the number of classified problems.
pub fn classify(
    targets: &[Target],
    options: &TeacherOptions,
    out: &Path,
    on_progress: impl Fn(usize) + Sync,
) -> Result<Classification> {
    let questions: Vec<About> =
        targets.iter().map(|t| About::new(&t.problem.id, prompt::classification(&t.problem))).collect();
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let made = json!({ "model": options.endpoint.model, "seed": options.seed });
    let mut ledger = Ledger::<Said<Class>>::open(&out.join("classes.jsonl"), &made)?;
    let mut teacher = Teacher::new(options.clone());
    let read = |text: &str| read_classification(text).map(|(d, a)| (d.to_owned(), a.to_owned()));
    teacher.ask(&mut ledger, &questions, ENOUGH, read, on_progress)?;
    let classes: Vec<&Class> =
        questions.iter().filter_map(|about| Some(&ledger.found(&about.subject)?.said)).collect();
    Ok(Classification {
        model: teacher.model().map(str::to_owned),
        problems: questions.len(),
        classified: classes.len(),
        counts: count(&classes),
    })
}

/// Returns the number of problems of each difficulty, by area.
fn count(classes: &[&Class]) -> Vec<Vec<usize>> {
    let of =
        |difficulty: &str, area: &str| classes.iter().filter(|c| c.0 == difficulty && c.1 == area).count();
    DIFFICULTIES.iter().map(|difficulty| AREAS.iter().map(|area| of(difficulty, area)).collect()).collect()
}
