//! The report of a filter.

use super::{Fate, FilterConfig, Finding, Map};
use serde::Serialize;
use sgs_lean::data::Target;
use std::collections::BTreeMap;

/// The counts of one stage.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the stage.
    pub stage: String,
    /// Problems that the stage examined.
    pub came: usize,
    /// Rejected problems, by reason.
    pub fell: BTreeMap<Fate, usize>,
    /// Undecided problems, which pass.
    pub undecided: usize,
    /// Problems that pass.
    pub kept: usize,
}

impl Row {
    pub(super) fn of(stage: &str, findings: &[Finding]) -> Self {
        let mut fell = BTreeMap::new();
        for finding in findings.iter().filter(|finding| finding.fate != Fate::Kept) {
            *fell.entry(finding.fate).or_insert(0) += 1;
        }
        let kept = findings.len() - fell.values().sum::<usize>();
        let undecided = findings.iter().filter(|finding| !finding.decided).count();
        Self { stage: stage.to_owned(), came: findings.len(), fell, undecided, kept }
    }

    /// Returns the reasons for rejection, with counts.
    pub fn reasons(&self) -> String {
        let reasons: Vec<String> =
            self.fell.iter().map(|(fate, n)| format!("{n} {}", fate.as_str())).collect();
        if reasons.is_empty() { "-".to_owned() } else { reasons.join(", ") }
    }
}

/// Maximum number of examples of each fate.
const SHOWN: usize = 3;

/// Formats the stages and a few problems of each fate as Markdown.
pub fn report(config: &FilterConfig, rows: &[Row], targets: &[Target], fates: &[Map]) -> String {
    let mut text = format!("# {}\n\n", config.problems);
    text.push_str("| stage | came | fell | undecided, kept | kept |\n|---|---|---|---|---|\n");
    for row in rows {
        let (stage, reasons) = (&row.stage, row.reasons());
        text.push_str(&format!(
            "| {stage} | {} | {reasons} | {} | {} |\n",
            row.came, row.undecided, row.kept
        ));
    }
    text.push_str(
        "\n`kept.jsonl` holds the problems that are kept, `fates.jsonl` the fate of each problem and the stage that decided it.\n",
    );
    // By fate and stage: the number of problems, and examples.
    let mut groups: BTreeMap<(String, String), (usize, String)> = BTreeMap::new();
    for (target, fate) in targets.iter().zip(fates) {
        let of = |key: &str| fate.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        let stage = of("stage");
        let (count, examples) = groups.entry((of("fate"), stage.clone())).or_default();
        *count += 1;
        if *count <= SHOWN {
            let proof = fate.get(&stage).and_then(|by| {
                let negation = by.pointer("/negation/proof").map(|proof| ("-- its negation:", proof));
                let (of, proof) =
                    negation.or_else(|| by.pointer("/problem/proof").map(|proof| ("--", proof)))?;
                Some(format!("\n{of} {}", proof.as_str()?.trim_end()))
            });
            let (id, statement) = (&target.problem.id, &target.problem.statement);
            examples.push_str(&format!("\n`{id}`\n```lean\n{statement}{}\n```\n", proof.unwrap_or_default()));
        }
    }
    for ((fate, stage), (count, examples)) in groups {
        text.push_str(&format!("\n## {fate}, {stage}: {count}\n{examples}"));
    }
    text
}
