//! The section on Conjecturer and Guide: what is invented, how often, and what the Guide does to it.

use super::html::{STATEMENT, Table, shortened};
use crate::figures::Drawn;
use crate::plot::{Unit, escape, format_value};
use crate::run::{Kind, Origin, RunData, Statement};
use std::fmt::Write;

const NONE: &str = "–";

/// Longest statement of a table, characters.
const LONGEST: usize = 300;

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), |v| format_value(v, Unit::Plain, 2))
}

fn percent(value: f64) -> String {
    format!("{:.1} %", 100.0 * value)
}

/// What was written, in a table: completions by where their statements come from.
pub(super) fn origins(run: &RunData) -> Option<Table> {
    let rounds = &run.inventions.rounds;
    let asked: u64 = rounds.iter().map(|r| r.asked).sum();
    if asked == 0 {
        return None;
    }
    let mut table = Table::new(["Completions of the Conjecturer", "Whole run", "Share", "Last round"]);
    let mut row = |name: &str, all: u64, last: u64| {
        if all > 0 {
            let share = percent(all as f64 / asked as f64);
            table.rows.push(vec![name.to_owned(), all.to_string(), share, last.to_string()]);
        }
    };
    let last = rounds.last()?;
    row("all", asked, last.asked);
    row("without a statement", rounds.iter().map(|r| r.unread).sum(), last.unread);
    for origin in Origin::ALL {
        let of = origin as usize;
        row(origin.as_str(), rounds.iter().map(|r| r.origins[of]).sum(), last.origins[of]);
    }
    Some(table)
}

/// The statements that were invented most often.
pub(super) fn frequent(run: &RunData) -> Option<Table> {
    statements(&run.inventions.frequent)
}

/// What the Guide scored 0 although the Solver's solve rate would have been rewarded.
pub(super) fn rejected(run: &RunData) -> Option<Table> {
    statements(&run.inventions.rejected)
}

fn statements(all: &[Statement]) -> Option<Table> {
    let mut table = Table::new([
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

/// Whether the Guide helps, as far as one run can say: in words.
pub(super) fn verdict(d: &Drawn<'_>) -> Option<String> {
    let run = d.run;
    let shares = run.inventions.rewards_by_kind()?;
    let [reviewed, zero, failed] = run.inventions.rounds.iter().fold([0_u64; 3], |mut sum, round| {
        sum.iter_mut().zip(round.reviewed).for_each(|(sum, n)| *sum += n);
        sum
    });
    let of = |kind: Kind| shares.get(&kind).copied().unwrap_or_default();
    let mut out = String::new();
    let _ = write!(
        out,
        "Of {reviewed} reviewed conjectures the Guide scored {zero} with 0 ({}); the reviews of {failed} could not be \
         read. ",
        percent(zero as f64 / reviewed.max(1) as f64)
    );
    let (new, known, trivial) = (of(Kind::New), of(Kind::Known), of(Kind::Trivial));
    let _ = write!(
        out,
        "New conjectures got {} of the reward; without the Guide the same conjectures would have got {}. For known ones \
         it is {} and {}, for trivial ones {} and {}. ",
        percent(new.0),
        percent(new.1),
        percent(known.0),
        percent(known.1),
        percent(trivial.0),
        percent(trivial.1)
    );
    let moved = new.0 - new.1;
    out.push_str(match moved {
        m if m > 0.02 => "In this run the Guide moves reward to what is new.",
        m if m < -0.02 => "In this run the Guide moves reward away from what is new.",
        _ => "In this run the Guide hardly changes what is rewarded.",
    });
    out.push_str(
        " That is a comparison on the conjectures of this run alone: what a Conjecturer would have learnt without a Guide, only a run of sgs-no-guide shows.",
    );
    let read = run.inventions.proofs_read;
    if read < run.inventions.rounds.len() {
        let _ = write!(
            out,
            " Proofs were read of {read} rounds; elsewhere trivial ones are not told from the others."
        );
    }
    Some(format!("<p>{}</p>", escape(&out)))
}
