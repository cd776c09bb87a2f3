//! Full Metamath proofs as lists of operations: a parser for normal and compressed proofs, and a writer.

use crate::database::{Assertion, Database, StatementId, StatementKind};
use crate::source::next_token;
use rustc_hash::FxHashMap;

/// An operation on the proof stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofOp {
    /// Pushes a hypothesis, or applies an assertion to the entries on top of the stack.
    Use(StatementId),
    /// Saves the top entry under the next number.
    Save,
    /// Pushes the saved entry with this number.
    Recall(u32),
}

const INCOMPLETE: &str = "the proof is incomplete (it has a `?`)";

/// Parses the proof of a theorem of the database. Its labels must precede the theorem.
pub fn read_proof(
    database: &Database,
    id: StatementId,
    assertion: &Assertion,
) -> Result<Vec<ProofOp>, String> {
    let Some(text) = database.proof_text(assertion) else {
        return Err("an axiom has no proof".to_owned());
    };
    let mut tokens = Vec::new();
    let (mut at, mut in_comment) = (0, false);
    while let Some((s, e)) = next_token(text, at) {
        at = e;
        match &text[s..e] {
            b"$(" => in_comment = true,
            b"$)" => in_comment = false,
            token if !in_comment => tokens.push(token),
            _ => {}
        }
    }
    match tokens.first() {
        None => Err("the proof is empty".to_owned()),
        Some(&b"(") => compressed(database, id, assertion, &tokens[1..]),
        Some(_) => tokens.iter().map(|t| label(database, id, t).map(ProofOp::Use)).collect(),
    }
}

fn label(database: &Database, id: StatementId, token: &[u8]) -> Result<StatementId, String> {
    if token == b"?" {
        return Err(INCOMPLETE.to_owned());
    }
    let text = String::from_utf8_lossy(token);
    match database.find(&text) {
        Some(found) if found < id => Ok(found),
        Some(_) => Err(format!("`{text}` does not precede the theorem")),
        None => Err(format!("label `{text}` is unknown")),
    }
}

fn compressed(
    database: &Database,
    id: StatementId,
    assertion: &Assertion,
    tokens: &[&[u8]],
) -> Result<Vec<ProofOp>, String> {
    let Some(close) = tokens.iter().position(|t| *t == b")") else {
        return Err("the label list of the compressed proof has no `)`".to_owned());
    };
    let mut usable: Vec<StatementId> = assertion.hypotheses.to_vec();
    for token in &tokens[..close] {
        let found = label(database, id, token)?;
        if assertion.hypotheses.contains(&found) {
            let text = String::from_utf8_lossy(token);
            return Err(format!("mandatory hypothesis `{text}` is in the label list"));
        }
        usable.push(found);
    }
    let mut ops = Vec::new();
    let (mut number, mut saved, mut can_save, mut partial) = (0u32, 0u32, false, false);
    for &byte in tokens[close + 1..].iter().copied().flatten() {
        match byte {
            b'A'..=b'T' => {
                let n = number.checked_mul(20).and_then(|n| n.checked_add(u32::from(byte - b'A')));
                let n = n.ok_or("a number of the compressed proof is too large")?;
                ops.push(compressed_step(n, &usable, saved)?);
                (number, can_save, partial) = (0, true, false);
            }
            b'U'..=b'Y' => {
                let n = number.checked_mul(5).and_then(|n| n.checked_add(u32::from(byte - b'U') + 1));
                number = n.ok_or("a number of the compressed proof is too large")?;
                (can_save, partial) = (false, true);
            }
            b'Z' if can_save => {
                ops.push(ProofOp::Save);
                saved += 1;
                can_save = false;
            }
            b'Z' => return Err("a `Z` that does not follow a step".to_owned()),
            b'?' => return Err(INCOMPLETE.to_owned()),
            other => {
                return Err(format!("`{}` in a compressed proof", char::from(other).escape_default()));
            }
        }
    }
    if partial {
        return Err("the compressed proof ends inside of a number".to_owned());
    }
    Ok(ops)
}

fn compressed_step(n: u32, usable: &[StatementId], saved: u32) -> Result<ProofOp, String> {
    let n = n as usize;
    match usable.get(n) {
        Some(&id) => Ok(ProofOp::Use(id)),
        None if n - usable.len() < saved as usize => Ok(ProofOp::Recall((n - usable.len()) as u32)),
        None => Err(format!("step number {} of the compressed proof refers to nothing", n + 1)),
    }
}

/// Formats a proof in compressed form, for a theorem whose mandatory hypotheses are `mandatory`. `label_of` returns the label
/// of a statement.
///
/// Only entries that are recalled are saved, so that all numbers after those of the mandatory hypotheses are used. Otherwise
/// the `metamath` program could mistake the proof for one in an obsolete format, because it uses some of the numbers 140 to
/// 159 but none of 120 to 139.
///
/// An operation that recalls an entry before it is saved gets a number that no verifier accepts.
pub fn write_compressed(
    ops: &[ProofOp],
    mandatory: &[StatementId],
    label_of: impl Fn(StatementId) -> String,
) -> String {
    let mut number: FxHashMap<StatementId, u32> =
        mandatory.iter().enumerate().map(|(i, &id)| (id, i as u32)).collect();
    let mut labels = Vec::new();
    for op in ops {
        if let ProofOp::Use(id) = *op {
            let next = number.len() as u32;
            number.entry(id).or_insert_with(|| {
                labels.push(label_of(id));
                next
            });
        }
    }
    let saves = ops.iter().filter(|op| **op == ProofOp::Save).count();
    let mut recalled = vec![false; saves];
    for op in ops {
        if let ProofOp::Recall(n) = *op
            && let Some(recalled) = recalled.get_mut(n as usize)
        {
            *recalled = true;
        }
    }
    // The number of each saved entry, if it is recalled.
    let total = number.len() as u32;
    let saved_numbers: Vec<u32> = recalled
        .iter()
        .scan(total, |next, recalled| {
            let number = *next;
            *next += u32::from(*recalled);
            Some(number)
        })
        .collect();
    let mut saved = 0;
    let mut letters = String::new();
    for op in ops {
        match *op {
            ProofOp::Use(id) => push_number(&mut letters, number[&id]),
            ProofOp::Recall(n) => {
                push_number(&mut letters, saved_numbers.get(n as usize).copied().unwrap_or(total + n))
            }
            ProofOp::Save => {
                if recalled[saved] {
                    letters.push('Z');
                }
                saved += 1;
            }
        }
    }
    let mut out = String::from("(");
    for label in labels {
        out.push(' ');
        out.push_str(&label);
    }
    out.push_str(" )");
    for chunk in letters.as_bytes().chunks(72) {
        out.push_str("\n      ");
        out.extend(chunk.iter().map(|&b| char::from(b)));
    }
    out
}

fn push_number(out: &mut String, n: u32) {
    let last = char::from(b'A' + (n % 20) as u8);
    let mut rest = n / 20;
    let mut high = Vec::new();
    while rest > 0 {
        high.push(char::from(b'U' + ((rest - 1) % 5) as u8));
        rest = (rest - 1) / 5;
    }
    out.extend(high.into_iter().rev());
    out.push(last);
}

/// Returns the essential steps of a proof in postfix order: the steps with a `provable` typecode, without those that build
/// syntax, and with recalled steps repeated. Returns `None` if there are more than `limit`.
///
/// # Errors
/// Returns an error if the stack underflows or does not end with one entry.
pub fn essential_steps(
    database: &Database,
    ops: &[ProofOp],
    provable: impl Fn(crate::database::Symbol) -> bool,
    limit: usize,
) -> Result<Option<Vec<StatementId>>, String> {
    /// A stack entry: its label, the essential entries that it was derived from, and the length of its postfix list.
    struct Node {
        label: StatementId,
        children: Vec<u32>,
        length: usize,
        essential: bool,
    }
    let mut nodes: Vec<Node> = Vec::new();
    let (mut stack, mut saved): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
    for op in ops {
        match *op {
            ProofOp::Save => saved.push(*stack.last().ok_or("there is no step to save")?),
            ProofOp::Recall(n) => {
                stack.push(*saved.get(n as usize).ok_or("a recalled step was not saved")?);
            }
            ProofOp::Use(label) => {
                let (arity, essential) = match &database.statement(label).kind {
                    StatementKind::Floating { .. } => (0, false),
                    StatementKind::Essential(e) => (0, provable(e.typecode)),
                    StatementKind::Assertion(a) => (a.hypotheses.len(), provable(a.conclusion.typecode)),
                };
                let Some(base) = stack.len().checked_sub(arity) else {
                    return Err(format!("the stack is too short for `{}`", database.statement(label).label));
                };
                let children: Vec<u32> =
                    stack.drain(base..).filter(|&c| essential && nodes[c as usize].essential).collect();
                let below: usize =
                    children.iter().fold(0, |n, &c| n.saturating_add(nodes[c as usize].length));
                let length = below.saturating_add(usize::from(essential));
                nodes.push(Node { label, children, length, essential });
                stack.push(nodes.len() as u32 - 1);
            }
        }
    }
    let [root] = stack[..] else {
        return Err(format!("the proof leaves {} entries on the stack", stack.len()));
    };
    if nodes[root as usize].length > limit {
        return Ok(None);
    }
    let mut out = Vec::with_capacity(nodes[root as usize].length);
    let mut todo = vec![root];
    while let Some(n) = todo.pop() {
        let node = &nodes[n as usize];
        if node.essential {
            out.push(node.label);
        }
        todo.extend(&node.children);
    }
    out.reverse();
    Ok(Some(out))
}
