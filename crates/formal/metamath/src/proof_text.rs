//! Proofs as text: a parser and a formatter for the tokens `h1`, `h2`, … and labels.
//!
//! A token of the form `h` + number always denotes a hypothesis of the problem, even if the database has a statement with
//! that label.

use crate::database::StatementKind;
use crate::theory::Theory;
use crate::unify::ProofStep;
use sgs_formal::Malformed;

/// Maximum number of tokens of a proof's text. The unifier's limit of steps is lower.
pub const MAX_PROOF_TOKENS: usize = 10_000;

/// Why a text is not a proof. The `kind` is a stable name for statistics: `empty-proof`, `too-many-tokens`,
/// `hypothesis-number`, `no-such-hypothesis`, `unknown-label`, `variable-label`, `hypothesis-label`, `syntax-label`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct ProofError {
    /// Short, stable name of the defect.
    pub kind: &'static str,
    /// Description of the defect and its position.
    pub detail: String,
    /// The token at fault, from 1, if there is one.
    pub step: Option<u32>,
}

impl From<ProofError> for Malformed {
    fn from(error: ProofError) -> Self {
        Self::new(error.kind, error.detail)
    }
}

impl ProofError {
    fn at(index: usize, kind: &'static str, token: &str, what: &str) -> Self {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        Self { kind, detail: format!("step {number}, `{}` {what}", shown(token)), step: Some(number) }
    }

    fn whole(kind: &'static str, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), step: None }
    }
}

/// Parses a proof of a problem with `hypotheses` hypotheses. The unifier decides whether each assertion may be used and
/// whether the proof is valid.
///
/// # Errors
/// Returns an error if a token is neither a hypothesis of the problem nor a provable assertion of the database, if there is
/// no token, or if there are more than [`MAX_PROOF_TOKENS`].
pub fn read_steps<T: AsRef<str>>(
    theory: &Theory,
    hypotheses: usize,
    tokens: impl IntoIterator<Item = T>,
) -> Result<Vec<ProofStep>, ProofError> {
    let mut steps = Vec::new();
    for (index, token) in tokens.into_iter().enumerate() {
        if index == MAX_PROOF_TOKENS {
            let detail = format!("the proof has more than {MAX_PROOF_TOKENS} tokens");
            return Err(ProofError::whole("too-many-tokens", detail));
        }
        steps.push(read_step(theory, hypotheses, index, token.as_ref())?);
    }
    if steps.is_empty() {
        return Err(ProofError::whole("empty-proof", "the proof has no steps"));
    }
    Ok(steps)
}

fn read_step(theory: &Theory, hypotheses: usize, index: usize, token: &str) -> Result<ProofStep, ProofError> {
    if let Some(number) = hypothesis_number(token) {
        let fail = |kind, what: &str| Err(ProofError::at(index, kind, token, what));
        return match number {
            Some(n) if (1..=hypotheses).contains(&(n as usize)) => Ok(ProofStep::Hypothesis(n - 1)),
            Some(n) if n > 0 => fail(
                "no-such-hypothesis",
                &format!("does not exist: the problem has {hypotheses} hypotheses"),
            ),
            _ => fail("hypothesis-number", "is not the number of a hypothesis"),
        };
    }
    let Some(id) = theory.database().find(token) else {
        return Err(ProofError::at(index, "unknown-label", token, "is not a label of the database"));
    };
    if let Some(rule) = theory.rule_of(id) {
        return Ok(ProofStep::Rule(rule));
    }
    let (kind, what) = match theory.database().statement(id).kind {
        StatementKind::Floating { .. } => ("variable-label", "declares a variable ($f) and is not a step"),
        StatementKind::Essential(_) => ("hypothesis-label", "is a hypothesis of another assertion ($e)"),
        StatementKind::Assertion(_) => ("syntax-label", "builds syntax and does not prove a formula"),
    };
    Err(ProofError::at(index, kind, token, what))
}

/// Returns the number of a token `h` + decimal digits; `Some(None)` if it is too large or has a leading zero.
fn hypothesis_number(token: &str) -> Option<Option<u32>> {
    let digits = token.strip_prefix('h')?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let canonical = digits.len() <= 9 && (digits.len() == 1 || !digits.starts_with('0'));
    Some(if canonical { digits.parse().ok() } else { None })
}

/// Formats a proof as tokens separated by single spaces.
pub fn write_steps(theory: &Theory, steps: &[ProofStep]) -> String {
    let token = |step: &ProofStep| match *step {
        ProofStep::Hypothesis(h) => format!("h{}", u64::from(h) + 1),
        ProofStep::Rule(id) => theory.label(id).to_owned(),
    };
    steps.iter().map(token).collect::<Vec<_>>().join(" ")
}

/// Truncates a token for a message.
fn shown(token: &str) -> String {
    const CHARACTERS: usize = 48;
    match token.char_indices().nth(CHARACTERS) {
        Some((cut, _)) => format!("{}…", &token[..cut]),
        None => token.to_owned(),
    }
}
