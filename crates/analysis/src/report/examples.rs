//! Lists of conjectures and solved targets with a search field.

use super::html::{round_attribute, search, shortened};
use crate::plot::escape;
use crate::run::{RunData, ShownConjecture, SolvedExample};
use std::fmt::Write;

/// Maximum length of an example's text in characters. Model output can be arbitrarily long.
const LONGEST: usize = 20_000;
const LONGEST_SUMMARY: usize = 300;

fn score(value: Option<f64>, most: &str) -> String {
    value.map_or_else(
        || "–".to_owned(),
        |v| format!("{}{most}", crate::plot::format_value(v, crate::plot::Unit::Plain, 3)),
    )
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
        "<b>R<sub>guide</sub></b> (0 to 8) is ",
        "the Guide's score; their product <b>R<sub>synth</sub></b> trains the Conjecturer.</p>"
    )
    .to_owned();
    out += &search(&list, "conjectures", run.shown_conjectures.iter().map(|c| Some(c.round)));
    let _ = write!(out, r#"<div class="cards list" id="{list}">"#);
    for c in &run.shown_conjectures {
        out.push_str(&conjecture(c));
    }
    out.push_str("</div>");
    Some(out)
}

fn conjecture(c: &ShownConjecture) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
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
        let _ = write!(
            out,
            r#"<p class="chips"><span class="chip" title="Solve rate">s {}</span><span class="chip" title="R_solve">R<sub>solve</sub> {}</span>"#,
            score(c.solve_rate, ""),
            score(c.r_solve, "")
        );
        if let Some([relevance, redundancy, complexity]) = c.review {
            let _ = write!(
                out,
                r#"<span class="chip" title="The Guide's scores">relevance {} · redundancy {} · complexity {}</span>"#,
                score(Some(relevance), "/5"),
                score(Some(redundancy), "/1"),
                score(Some(complexity), "/4")
            );
        }
        let _ = write!(
            out,
            r#"<span class="chip" title="R_guide">R<sub>guide</sub> {}</span><span class="chip strong" title="R_synth">R<sub>synth</sub> {}</span></p>"#,
            score(c.r_guide, ""),
            score(c.r_synth, "")
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
    for s in &run.solved {
        out.push_str(&theorem(s));
    }
    out.push_str("</div>");
    Some(out)
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
