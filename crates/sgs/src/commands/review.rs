//! `sgs review`: samples the Guide's reviews of a conjecture.

use crate::args::ReviewArgs;
use crate::exit::{Outcome, Usage};
use crate::model_source::ModelSource;
use crate::output;
use crate::statement_input::StatementInput;
use anyhow::Result;
use serde_json::json;
use sgs_formal::{FormalSystem, Malformed};
use sgs_lean::data::Target;
use sgs_selfplay::reward::guide_score;
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{Problem, Review, Role};

/// Samples reviews of a conjecture and prints their scores.
pub fn run(args: &ReviewArgs) -> Result<Outcome> {
    let players = ModelSource::choose(&args.sample.play)?;
    let statements = StatementInput::new(&players, &args.sample)?;
    let target = statements.given_target("--target with a statement", args.target.as_deref());
    let target = if args.target.is_some() { named("--target", target) } else { target }?;
    let conjecture = statements.statement_in(&target.problem.context, "conjecture", &args.conjecture);
    let conjecture = named("the conjecture", conjecture)?;
    let session = statements.start(Some(&target))?;
    if players.guide_is_rubric() {
        eprintln!(
            "note: this run uses the formal system's rubric for its reviews; the reviews shown are the model's"
        );
    }
    let (system, target, conjecture) = (&*session.system, &target.problem, &conjecture.problem);
    let seeds =
        (0..args.sample.samples).map(|i| task_seed(args.sample.play.seed, 0, Role::Guide, &conjecture.id, i));
    let texts =
        players.sample(&args.sample.play, Role::Guide, &system.guide_prompt(target, conjecture), seeds)?;
    let read = |text: String| (system.read_review(&text), text);
    let reviews: Vec<SampledReview> = texts.into_iter().map(read).collect();
    match args.sample.json {
        true => output::json(&as_json(target, conjecture, &reviews))?,
        false => output::line(as_text(system, target, conjecture, &reviews))?,
    }
    Ok(if reviews.iter().any(|(read, _)| read.is_ok()) { Outcome::Done } else { Outcome::Failed })
}

/// Says in an error about a statement which of the two it is.
fn named(which: &str, statement: Result<Target>) -> Result<Target> {
    statement.map_err(|error| match error.downcast::<Usage>() {
        Ok(Usage(told)) => Usage(format!("{which}: {told}")).into(),
        Err(error) => error,
    })
}

/// The review parsed from a completion of the Guide, and the completion.
type SampledReview = (Result<Review, Malformed>, String);

fn as_text(
    system: &dyn FormalSystem,
    target: &Problem,
    conjecture: &Problem,
    reviews: &[SampledReview],
) -> String {
    let mut text = format!(
        "target      {}\nconjecture  {}\n\n",
        system.display_statement(&target.statement),
        system.display_statement(&conjecture.statement)
    );
    let mut rows: Vec<(String, [f64; 4])> = Vec::new();
    for (i, (read, _)) in reviews.iter().enumerate() {
        let name = (i + 1).to_string();
        match read {
            Ok(r) => rows.push((name, [r.relevance, r.redundancy, r.complexity, guide_score(r)])),
            Err(e) => text.push_str(&format!("review {name} is malformed: {e}\n")),
        }
    }
    if rows.len() > 1 {
        let mean = |i: usize| rows.iter().map(|(_, scores)| scores[i]).sum::<f64>() / rows.len() as f64;
        rows.push(("mean".to_owned(), [0, 1, 2, 3].map(mean)));
    }
    let cells = |(name, scores): &(String, [f64; 4])| {
        [name.clone()].into_iter().chain(scores.iter().map(|score| format!("{score:.2}"))).collect()
    };
    let header = ["review", "relevance (0-5)", "redundancy (0-1)", "complexity (0-4)", "R_guide (0-8)"];
    text.push_str(&output::table(&header, &rows.iter().map(cells).collect::<Vec<_>>()));
    text
}

fn as_json(target: &Problem, conjecture: &Problem, reviews: &[SampledReview]) -> serde_json::Value {
    let one = |(read, text): &SampledReview| match read {
        Ok(review) => json!({ "review": review, "r_guide": guide_score(review), "text": text }),
        Err(e) => json!({ "malformed": e, "text": text }),
    };
    json!({ "target": target, "conjecture": conjecture, "reviews": reviews.iter().map(one).collect::<Vec<_>>() })
}
