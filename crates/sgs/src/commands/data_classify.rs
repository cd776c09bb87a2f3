//! `sgs data classify`: difficulty and area of problems, as a served model sees them.

use crate::args::DataClassifyArgs;
use crate::commands::data_filter::bar;
use crate::exit::Outcome;
use crate::output;
use anyhow::{Context, Result, bail};
use serde_json::json;
use sgs_analysis::figures::problem_types;
use sgs_analysis::plot::standalone_svg;
use sgs_lean::prompt;
use sgs_lean::read::{AREAS, DIFFICULTIES, read_classification};
use sgs_run::ledger::Ledger;
use sgs_run::system;
use sgs_run::teacher::{About, Enough, Said, Teacher};
use sgs_rundir::files::write_file;

/// No problem is asked about again when more than this share of them are classified (paper, Appendix D).
const ENOUGH: f64 = 0.99;

/// A problem's difficulty and area.
type Class = (String, String);

/// Classifies a data set; goes on where it was stopped.
pub fn run(args: &DataClassifyArgs) -> Result<Outcome> {
    let targets = system::lean_targets(&args.problems)?;
    let questions: Vec<About> =
        targets.iter().map(|t| About::new(&t.problem.id, prompt::classification(&t.problem))).collect();
    if questions.is_empty() {
        bail!("{} holds no problem", args.problems);
    }
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let endpoint = args.teacher.endpoint();
    let made = json!({ "model": endpoint.model, "seed": args.teacher.seed });
    let mut ledger = Ledger::<Said<Class>>::open(&args.out.join("classes.jsonl"), &made)?;
    let mut teacher = Teacher::new(endpoint, args.teacher.max_new_tokens);
    let bar = bar("problems");
    bar.set_length(questions.len() as u64);
    let enough = Enough { tries: args.teacher.tries, share: ENOUGH };
    let read = |text: &str| read_classification(text).map(|(d, a)| (d.to_owned(), a.to_owned()));
    teacher.ask(&mut ledger, &questions, args.teacher.seed, enough, read, |n| bar.set_position(n as u64))?;
    drop(bar);

    let classes: Vec<&Class> =
        questions.iter().filter_map(|about| Some(&ledger.found(&about.subject)?.said)).collect();
    let counts = count(&classes);
    let figure = problem_types(&AREAS.map(spelled), &DIFFICULTIES.map(spelled), &counts);
    write_file(&args.out.join("classes.svg"), standalone_svg(&figure).as_bytes())?;
    let share = classes.len() as f64 / questions.len() as f64;
    match args.json {
        true => output::json(&json!({
            "model": teacher.model(), "problems": questions.len(), "classified": classes.len(),
            "difficulties": DIFFICULTIES, "areas": AREAS, "counts": counts,
        }))?,
        false => output::line(format!(
            "{} of {} problems classified by {} ({:.1} %)\n\n{}\n\n{}",
            classes.len(),
            questions.len(),
            teacher.model().unwrap_or("a served model"),
            100.0 * share,
            table(&counts),
            args.out.join("classes.svg").display()
        ))?,
    }
    Ok(if share > ENOUGH { Outcome::Done } else { Outcome::Failed })
}

/// Problems of each difficulty, by area.
fn count(classes: &[&Class]) -> Vec<Vec<usize>> {
    let of =
        |difficulty: &str, area: &str| classes.iter().filter(|c| c.0 == difficulty && c.1 == area).count();
    DIFFICULTIES.iter().map(|difficulty| AREAS.iter().map(|area| of(difficulty, area)).collect()).collect()
}

fn spelled(name: &str) -> String {
    name.replace('_', " ")
}

fn table(counts: &[Vec<usize>]) -> String {
    let rows: Vec<Vec<String>> = AREAS
        .iter()
        .enumerate()
        .map(|(area, name)| {
            let row = counts.iter().map(|of| of.get(area).copied().unwrap_or_default());
            let numbers = row.clone().chain([row.sum()]).map(|n| n.to_string());
            [spelled(name)].into_iter().chain(numbers).collect()
        })
        .collect();
    let names = DIFFICULTIES.map(spelled);
    let header: Vec<&str> =
        ["area"].into_iter().chain(names.iter().map(String::as_str)).chain(["all"]).collect();
    output::table(&header, &rows)
}
