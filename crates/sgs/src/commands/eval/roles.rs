//! The quality of a model as Conjecturer and as Guide.

use super::{BATCH, longest_of, options};
use crate::args::EvalArgs;
use crate::exit::{Outcome, Usage, usage};
use crate::model_source::{ModelSource, RoleModel};
use crate::output;
use anyhow::Result;
use serde_json::{Value, json};
use sgs_analysis::plot::percent;
use sgs_analysis::stats::{area_under_curve, rank_correlation};
use sgs_data::corpus;
use sgs_data::metamath::guide::Relation;
use sgs_data::sets::reviews::PADDED;
use sgs_formal::{Condition, FormalSystem, Malformed, Prompt};
use sgs_lm::Device;
use sgs_lm_sampler::Decode;
use sgs_metamath::system::Metamath;
use sgs_run::config::SystemName;
use sgs_run::with_device;
use sgs_run::workers::sampling;
use sgs_selfplay::reward::guide_score;
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{Problem, Review, Role};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// The quality of a model's problems.
#[derive(Default)]
pub struct ConjecturerResult {
    pub sampled: u64,
    /// Number of problems that are well-formed statements.
    pub well_formed: u64,
    /// Number of statements that are neither a target nor equal to another one.
    pub distinct: u64,
    pub defects: BTreeMap<String, u64>,
    /// The first few statements, with their targets.
    pub examples: Vec<(String, String)>,
}

/// Maximum length of a conjecture, in tokens.
pub const CONJECTURE_TOKENS: usize = 200;

/// Samples one conjecture for every problem.
pub fn conjecture<D: Device + Decode>(
    args: &EvalArgs,
    system: &dyn FormalSystem,
    role: &RoleModel<D>,
    targets: &[Arc<Problem>],
) -> Result<ConjecturerResult> {
    let mut asks = Vec::new();
    for target in targets {
        let prompt = system.conjecturer_prompt(Condition::Target(target));
        let seed = task_seed(args.play.seed, 0, Role::Conjecturer, &target.id, 0);
        asks.extend(sampling::asks(&role.tokenizer, &prompt, [seed])?);
    }
    let answers = role.sampler(CONJECTURE_TOKENS, options(args), BATCH)?.answers(&asks, || ())?;
    let mut result = ConjecturerResult::default();
    let mut seen: HashSet<Arc<str>> = targets.iter().map(|t| Arc::clone(&t.statement)).collect();
    for (target, answer) in targets.iter().zip(&answers) {
        result.sampled += 1;
        match system.read_conjecture(Condition::Target(target), answer.text()) {
            Ok(read) => {
                result.well_formed += 1;
                if result.examples.len() < 10 {
                    result.examples.push((target.statement.to_string(), read.statement.to_string()));
                }
                result.distinct += u64::from(seen.insert(read.statement));
            }
            Err(e) => *result.defects.entry(e.kind).or_insert(0) += 1,
        }
    }
    Ok(result)
}

/// A conjecture whose scores are known.
struct KnownReview {
    prompt: Prompt,
    review: Review,
    /// The kind of conjecture (`main-step`, `known`, `padded`, …).
    kind: String,
}

/// The quality of a model's reviews, compared with known scores.
#[derive(Default)]
pub struct GuideResult {
    sampled: u64,
    /// Number of reviews with three scores.
    well_formed: u64,
    /// Defects of the others by name.
    defects: BTreeMap<String, u64>,
    /// Well-formed reviews that agree with the known relevance, redundancy and complexity.
    agree: [u64; 3],
    /// Sum of the absolute differences of relevance.
    relevance_error: f64,
    /// For each well-formed review: the kind of conjecture, the known R_guide and the one found.
    scores: Vec<(String, f64, f64)>,
}

pub type ReadReview<'a> = dyn Fn(&str) -> Result<Review, Malformed> + 'a;

pub fn only_reviews(args: &EvalArgs, players: &ModelSource, reviews: &Path) -> Result<Outcome> {
    let metamath = match players.system() {
        SystemName::Metamath => Some(Metamath::shipped()?),
        SystemName::Lean => None,
        SystemName::External => anyhow::bail!("--only-reviews needs Metamath or Lean: leave it out"),
    };
    let read = |text: &str| match &metamath {
        Some(system) => system.read_review(text),
        None => sgs_lean::read::read_review(text),
    };
    let guide = with_device!(args.play.device, sgs_run::config::device::threads(), device => {
        review(args, players, &read, reviews, &device)?
    });
    match args.json {
        true => output::json(&json!({ "guide": guide_json(&guide) }))?,
        false => output::line(guide_text(&guide))?,
    }
    Ok(Outcome::Done)
}

/// Samples the Guide's reviews of the rows of a corpus.
pub fn review<D: Device + Decode>(
    args: &EvalArgs,
    players: &ModelSource,
    read: &ReadReview<'_>,
    reviews: &Path,
    device: &Arc<D>,
) -> Result<GuideResult> {
    let cases = known_reviews(players.system(), read, reviews, args.limit.unwrap_or(2_000))?;
    let role = RoleModel::load(players, Role::Guide, device)?;
    let mut asks = Vec::new();
    for (i, case) in (0..).zip(&cases) {
        asks.extend(sampling::asks(&role.tokenizer, &case.prompt, [args.play.seed.wrapping_add(i)])?);
    }
    let most = longest_of(args, players, Role::Guide);
    let answers = role.sampler(most, options(args), BATCH)?.answers(&asks, || ())?;
    let mut result = GuideResult::default();
    for (KnownReview { review: known, kind, .. }, answer) in cases.iter().zip(&answers) {
        result.sampled += 1;
        match read(answer.text()) {
            Ok(review) => {
                result.well_formed += 1;
                result.agree[0] += u64::from(review.relevance == known.relevance);
                result.agree[1] += u64::from(review.redundancy == known.redundancy);
                result.agree[2] += u64::from(review.complexity == known.complexity);
                result.relevance_error += (review.relevance - known.relevance).abs();
                result.scores.push((kind.clone(), guide_score(known), guide_score(&review)));
            }
            Err(e) => *result.defects.entry(e.kind).or_insert(0) += 1,
        }
    }
    Ok(result)
}

pub fn guide_text(g: &GuideResult) -> String {
    let share = |n: u64| percent(n as f64 / g.well_formed.max(1) as f64);
    let [relevance, redundancy, complexity] = g.agree.map(share);
    let mut text = format!(
        "Guide: {} of {} reviews well-formed ({}); as known: relevance {relevance}, redundancy {redundancy}, \
         complexity {complexity}",
        g.well_formed,
        g.sampled,
        percent(g.well_formed as f64 / g.sampled.max(1) as f64)
    );
    for (defect, n) in &g.defects {
        text.push_str(&format!("\nmalformed: {n} {defect}"));
    }
    let (correlation, areas) = order(g);
    if let Some(correlation) = correlation {
        text.push_str(&format!("\nrank correlation of R_guide with the known score: {correlation:.2}"));
    }
    for (kind, area) in areas {
        text.push_str(&format!(
            "\nprobability that another conjecture scores above one that is {kind}: {}",
            percent(area)
        ));
    }
    text
}

pub fn guide_json(g: &GuideResult) -> Value {
    json!({
        "sampled": g.sampled, "well_formed": g.well_formed, "defects": g.defects, "relevance_agrees": g.agree[0],
        "redundancy_agrees": g.agree[1], "complexity_agrees": g.agree[2],
        "mean_relevance_error": g.relevance_error / g.well_formed.max(1) as f64,
        "rank_correlation": order(g).0, "area_over": order(g).1,
    })
}

/// Returns the rank correlation of the scores with the known ones, and for each kind of useless conjecture the area under
/// the ROC curve against useful ones.
fn order(guide: &GuideResult) -> (Option<f64>, BTreeMap<&str, f64>) {
    let pairs: Vec<(f64, f64)> = guide.scores.iter().map(|(_, known, found)| (*known, *found)).collect();
    let helps = |kind: &str| !USELESS_KINDS.contains(&kind);
    let of = |wanted: &dyn Fn(&str) -> bool| -> Vec<f64> {
        guide.scores.iter().filter(|(kind, ..)| wanted(kind)).map(|(.., found)| *found).collect()
    };
    let helpful = of(&helps);
    let area = |kind: &&'static str| Some((*kind, area_under_curve(&helpful, &of(&|k: &str| k == *kind))?));
    (rank_correlation(&pairs), USELESS_KINDS.iter().filter_map(area).collect())
}

/// The kinds of conjectures that do not help their target.
const USELESS_KINDS: [&str; 4] =
    [Relation::Known.as_str(), Relation::OneStep.as_str(), Relation::Duplicate.as_str(), PADDED];

/// Returns every n-th row of a Guide corpus as a prompt with its known scores.
fn known_reviews(
    system: SystemName,
    read: &ReadReview<'_>,
    path: &Path,
    count: usize,
) -> Result<Vec<KnownReview>> {
    let rows = corpus::read(path).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(usage)?;
    let every = (rows.len() / count.max(1)).max(1);
    let mut cases = Vec::new();
    for row in rows.into_iter().step_by(every) {
        let text = row.completion.trim_end_matches(sgs_metamath::tokens::END).trim();
        let review = read(text).map_err(|e| {
            let (path, source) = (path.display(), &row.source);
            Usage(format!("{path}: the completion of the row with source {source} is not a review: {e}"))
        })?;
        let prompt = match system {
            SystemName::Metamath | SystemName::External => Prompt::Raw(row.prompt),
            SystemName::Lean => Prompt::Chat(row.prompt),
        };
        cases.push(KnownReview { prompt, review, kind: row.kind });
    }
    Ok(cases)
}
