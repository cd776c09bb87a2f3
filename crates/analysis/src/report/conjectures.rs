//! The report's section on the Conjecturer and the Guide.

use super::html::{ReportTable, STATEMENT, shortened};
use crate::figures::PlottedRun;
use crate::plot::{Unit, escape, format_value};
use crate::run::{ConjectureClass, ConjecturedStatement, RunData, StatementOrigin};
use std::fmt::Write;

const NONE: &str = "–";

/// Maximum length of a statement in a table, in characters.
const LONGEST: usize = 300;

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), |v| format_value(v, Unit::Plain, 2))
}

fn percent(value: f64) -> String {
    format!("{:.1}%", 100.0 * value)
}

/// Returns a table of the Conjecturer's completions by the origin of their statements.
pub(super) fn origins(run: &RunData) -> Option<ReportTable> {
    let rounds = &run.conjecture_stats.rounds;
    let asked: u64 = rounds.iter().map(|r| r.asked).sum();
    if asked == 0 {
        return None;
    }
    let mut table = ReportTable::new(["Completions of the Conjecturer", "Whole run", "Share", "Last round"]);
    let mut row = |name: &str, all: u64, last: u64| {
        if all > 0 {
            let share = percent(all as f64 / asked as f64);
            table.rows.push(vec![name.to_owned(), all.to_string(), share, last.to_string()]);
        }
    };
    let last = rounds.last()?;
    row("all", asked, last.asked);
    row("without a statement", rounds.iter().map(|r| r.unread).sum(), last.unread);
    for origin in StatementOrigin::ALL {
        let of = origin as usize;
        row(origin.as_str(), rounds.iter().map(|r| r.origins[of]).sum(), last.origins[of]);
    }
    Some(table)
}

/// Returns a table of the most frequent statements.
pub(super) fn frequent(run: &RunData) -> Option<ReportTable> {
    statements(&run.conjecture_stats.frequent)
}

/// Returns a table of statements that the Guide scored 0 although their solve rate deserved a reward.
pub(super) fn rejected(run: &RunData) -> Option<ReportTable> {
    statements(&run.conjecture_stats.rejected)
}

fn statements(all: &[ConjecturedStatement]) -> Option<ReportTable> {
    let mut table = ReportTable::new([
        STATEMENT,
        "Times",
        "Rounds",
        "Origin",
        "Solve rate",
        "Inferences",
        "R_guide",
        "Relevance · redundancy · complexity",
    ]);
    for s in all {
        let origin = match &s.theorem {
            Some(label) => format!("theorem {label}"),
            None => s.origin.as_str().to_owned(),
        };
        let (first, last) = s.rounds;
        let steps = match s.steps {
            Some(n) => n.to_string(),
            None => NONE.to_owned(),
        };
        table.rows.push(vec![
            shortened(&s.text, LONGEST),
            s.times.to_string(),
            if first == last { first.to_string() } else { format!("{first} to {last}") },
            origin,
            s.solve_rate.mean().map_or_else(|| NONE.to_owned(), percent),
            steps,
            number(s.r_guide.mean()),
            s.scores.map(|score| number(score.mean())).join(" · "),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Describes in words whether the Guide helps, as far as a single run shows.
pub(super) fn verdict(d: &PlottedRun<'_>) -> Option<String> {
    let run = d.run;
    let shares = run.conjecture_stats.rewards_by_kind()?;
    let [reviewed, zero, failed] = run.conjecture_stats.rounds.iter().fold([0_u64; 3], |mut sum, round| {
        sum.iter_mut().zip(round.reviewed).for_each(|(sum, n)| *sum += n);
        sum
    });
    let of = |kind: ConjectureClass| shares[&kind];
    let mut out = String::new();
    let _ = write!(
        out,
        "The Guide scored {zero} of {reviewed} reviewed conjectures 0 ({}). {failed} {} unparseable. ",
        percent(zero as f64 / reviewed.max(1) as f64),
        if failed == 1 { "review was" } else { "reviews were" }
    );
    let (new, known, trivial) =
        (of(ConjectureClass::New), of(ConjectureClass::Known), of(ConjectureClass::Trivial));
    let _ = write!(
        out,
        "New conjectures received {} of the reward; without the Guide, the same conjectures would have received {}. \
         For known conjectures these shares are {} and {}, and for trivial ones {} and {}. ",
        percent(new.0),
        percent(new.1),
        percent(known.0),
        percent(known.1),
        percent(trivial.0),
        percent(trivial.1)
    );
    let moved = new.0 - new.1;
    out.push_str(match moved {
        m if m > 0.02 => "In this run, the Guide shifts reward towards new conjectures.",
        m if m < -0.02 => "In this run, the Guide shifts reward away from new conjectures.",
        _ => "In this run, the Guide hardly changes the distribution of the reward.",
    });
    out.push_str(
        " This compares the conjectures of this run only. A run of sgs-no-guide shows what a Conjecturer learns without a Guide.",
    );
    let read = run.conjecture_stats.proofs_read;
    if read < run.conjecture_stats.rounds.len() {
        let _ = write!(out, " Triviality is known only for the {read} rounds whose proofs were read.");
    }
    Some(format!("<p>{}</p>", escape(&out)))
}
