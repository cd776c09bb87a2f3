//! Lists of conjectures and solved targets with a search field.

use super::html::{round_attribute, search, shortened};
use crate::plot::{Unit, escape, format_value};
use crate::run::{RunData, ShownConjecture, SolvedExample};
use std::fmt::Write;

/// Maximum length of an example's text in characters. Model output can be arbitrarily long.
const LONGEST: usize = 20_000;
const LONGEST_SUMMARY: usize = 300;

fn score(value: Option<f64>, most: &str) -> String {
    value.map_or("–".to_owned(), |v| format!("{}{most}", format_value(v, Unit::Plain, 3)))
}

/// Returns the list of conjectures with their scores.
pub(super) fn conjectures(run: &RunData, index: usize) -> Option<String> {
    if run.shown_conjectures.is_empty() {
        return None;
    }
    let list = format!("conjectures-{index}");
    let mut out = concat!(
        r#"<p class="caption">Examples from rounds spread evenly over the run. <b>s</b> is the solve rate; "#,
        "<b>R<sub>solve</sub></b> (0 to 1) rewards the hardest of a round's conjectures that are sometimes solved; ",
        "<b>R<sub>guide</sub></b> (0 to 8) is the Guide's score, relevance + (2 − complexity) + (1 − redundancy), ",
        "or 0 if complexity is 3 or more; their product <b>R<sub>synth</sub></b> trains the Conjecturer.</p>"
    )
    .to_owned();
    out += &search(&list, "conjectures", run.shown_conjectures.iter().map(|c| Some(c.round)));
    let _ = write!(out, r#"<div class="cards list" id="{list}">"#);
    out.extend(run.shown_conjectures.iter().map(conjecture));
    Some(out + "</div>")
}

fn conjecture(c: &ShownConjecture) -> String {
    let mut out = format!(
        r#"<article class="card"{}><header><span class="round">Round {}</span><span class="for">for <code>{}</code></span>"#,
        round_attribute(Some(c.round)),
        c.round,
        escape(&c.target)
    );
    if c.status != "accepted" {
        let _ = write!(out, r#"<span class="chip bad">{}</span>"#, escape(&c.status));
    }
    out.push_str("</header>");
    let _ = write!(out, "<pre>{}</pre>", escape(&shortened(&c.statement, LONGEST)));
    if c.status == "accepted" {
        let chip = |title: &str, text: String| format!(r#"<span class="chip" title="{title}">{text}</span>"#);
        let reward = |index: &str, value| {
            chip(&format!("R_{index}"), format!("R<sub>{index}</sub> {}", score(value, "")))
        };
        let review = c.review.map(|[relevance, redundancy, complexity]| {
            let [relevance, redundancy, complexity] =
                [(relevance, "/5"), (redundancy, "/1"), (complexity, "/4")]
                    .map(|(v, most)| score(Some(v), most));
            let text = format!("relevance {relevance} · redundancy {redundancy} · complexity {complexity}");
            chip("The Guide's scores", text)
        });
        let _ = write!(
            out,
            r#"<p class="chips">{}{}{}{}{}</p>"#,
            chip("Solve rate", format!("s {}", score(c.solve_rate, ""))),
            reward("solve", c.r_solve),
            review.unwrap_or_default(),
            reward("guide", c.r_guide),
            reward("synth", c.r_synth).replacen("chip", "chip strong", 1)
        );
    }
    let _ = write!(
        out,
        "<details><summary>Target{}</summary><pre>{}</pre>",
        if c.review_text.is_empty() { "" } else { " and review" },
        escape(&shortened(&c.target_statement, LONGEST))
    );
    if !c.review_text.is_empty() {
        let _ = write!(out, r#"<pre class="said">{}</pre>"#, escape(&shortened(&c.review_text, LONGEST)));
    }
    out.push_str("</details></article>");
    out
}

/// Returns the list of solved targets with their proofs.
pub(super) fn solved(run: &RunData, index: usize) -> Option<String> {
    if run.solved.is_empty() {
        return None;
    }
    let list = format!("solved-{index}");
    let mut out = search(&list, "solved targets and their proofs", run.solved.iter().map(|s| Some(s.round)));
    let _ = write!(out, r#"<div class="theorems list" id="{list}">"#);
    out.extend(run.solved.iter().map(theorem));
    Some(out + "</div>")
}

fn theorem(s: &SolvedExample) -> String {
    format!(
        r#"<details class="theorem"{}><summary><span class="round">Round {}</span> <code class="id">{}</code> <span class="tally">{} of {} rollouts</span><span class="statement">{}</span></summary><pre>{}</pre><pre class="proof">{}</pre></details>"#,
        round_attribute(Some(s.round)),
        s.round,
        escape(&s.id),
        s.tally.0,
        s.tally.1,
        escape(&shortened(&s.statement, LONGEST_SUMMARY)),
        escape(&shortened(&s.statement, LONGEST)),
        escape(&shortened(&s.proof, LONGEST))
    )
}
