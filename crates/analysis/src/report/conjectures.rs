//! The report's section on the Conjecturer and the Guide.

use super::html::{Cell, Format, ReportTable, shortened};
use crate::plot::grouped;
use crate::run::{ConjecturedStatement, RunData, RunningMean, StatementOrigin};

/// Maximum length of a statement in a table, in characters.
const LONGEST: usize = 300;

/// Returns a table of the Conjecturer's completions by the origin of their statements.
pub(super) fn origins(run: &RunData) -> Option<ReportTable> {
    let rounds = &run.conjecture_stats.rounds;
    let asked: u64 = rounds.iter().map(|r| r.asked).sum();
    let last = rounds.last().filter(|_| asked > 0)?;
    let mut table =
        ReportTable::new("Completions of the Conjecturer | Round | Whole run | Share | Last round");
    let mut row = |name: &str, all: u64, in_last: u64| {
        if all > 0 {
            let share = Cell::number(Some(all as f64 / asked as f64), Format::Percent);
            table.rows.push(vec![name.into(), last.round.into(), all.into(), share, in_last.into()]);
        }
    };
    row("all", asked, last.asked);
    row("without a statement", rounds.iter().map(|r| r.unread).sum(), last.unread);
    for origin in StatementOrigin::ALL {
        let of = origin as usize;
        row(origin.as_str(), rounds.iter().map(|r| r.origins[of]).sum(), last.origins[of]);
    }
    Some(table)
}

/// Returns a table of statements with their statistics.
pub(super) fn statements(all: &[ConjecturedStatement]) -> Option<ReportTable> {
    let mut table = ReportTable::new(
        "Statement | Times proposed | First round | Round | First origin | Solve rate | Steps | R_guide | Relevance | Redundancy | Complexity",
    );
    for s in all {
        let origin = match &s.theorem {
            Some(label) => format!("theorem {label}"),
            None => s.origin.as_str().to_owned(),
        };
        let mean = |of: RunningMean, format| Cell::number(of.mean(), format);
        let mut row = vec![
            Cell::Statement(shortened(&s.text, LONGEST)),
            s.times.into(),
            s.rounds.0.into(),
            s.rounds.1.into(),
            origin.into(),
            mean(s.solve_rate, Format::Percent),
            s.steps.map_or(Cell::Empty, Cell::from),
            mean(s.r_guide, Format::Plain),
        ];
        row.extend(s.scores.map(|score| mean(score, Format::Plain)));
        table.rows.push(row);
    }
    table.filled()
}

/// Describes the reviews and their effect on the reward. Returns `None` without reviews.
pub(super) fn about_the_guide(run: &RunData) -> Option<String> {
    let [reviewed, zero, failed] = run.conjecture_stats.rounds.iter().fold([0_u64; 3], |mut sum, round| {
        sum.iter_mut().zip(round.reviewed).for_each(|(sum, n)| *sum += n);
        sum
    });
    if reviewed == 0 {
        return None;
    }
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let mut text = format!(
        "R_guide = relevance + (2 − complexity) + (1 − redundancy), at least 0, and 0 if the complexity is 3 or more. \
         The Guide scored {} of {} reviewed conjectures 0 ({}).",
        grouped(zero as f64),
        grouped(reviewed as f64),
        percent(zero as f64 / reviewed as f64)
    );
    let sum = |name: &str| run.by_round(name).iter().map(|p| p.1).sum::<f64>();
    let (malformed, sampled) = (sum("reviews_malformed"), sum("reviews_sampled"));
    if sampled > 0.0 {
        let were = if malformed == 1.0 { "was" } else { "were" };
        let [malformed, sampled] = [malformed, sampled].map(grouped);
        text.push_str(&format!(" {malformed} of {sampled} reviews {were} malformed"));
        text.push_str(&match failed {
            0 => "; every conjecture has a well-formed review.".to_owned(),
            1 => "; 1 conjecture has no well-formed review.".to_owned(),
            _ => format!("; {} conjectures have no well-formed review.", grouped(failed as f64)),
        });
    }
    let Some(shares) = run.conjecture_stats.rewards_by_kind() else { return Some(text) };
    text.push_str(" Shares of the reward with the Guide, and for the same conjectures without it:");
    for (class, (with, without)) in shares.iter().rev() {
        text.push_str(&format!(" {} {} and {};", class.as_str(), percent(*with), percent(*without)));
    }
    text.truncate(text.len() - 1);
    text.push('.');
    let read = run.conjecture_stats.proofs_read;
    if read < run.conjecture_stats.rounds.len() {
        text.push_str(&format!(" Triviality is known only for the {read} rounds whose proofs were read."));
    }
    Some(text)
}
