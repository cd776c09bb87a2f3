//! The part of set.mm that ships with the project, and how it is cut.
//!
//! The slice is an unmodified prefix of the file up to the end of a provable assertion, followed by the `$}` and the part
//! marks that close open scopes and parts. Comments, authors' names and dates are kept.

use crate::database::Database;
use crate::source::{DatabaseError, next_token};
use crate::theory::{RuleId, Theory, TheoryError};
use sgs_base::digest::checksum_of;
use std::io::Read;

/// Number of provable assertions (axioms, definitions, theorems) in the shipped slice.
pub const SLICE_ASSERTIONS: usize = 9_000;
/// SHA-256 of the set.mm that the slice is cut from (Debian package `metamath-databases`
/// 0.0.0~20210101.git55fe226-2; version of 28-Dec-2020; CC0).
pub const ORIGIN_SHA256: &str = "4d93307bc81337a621031739acfffb4159175f94fb90e727f4a231401091e45b";
/// SHA-256 of the slice, uncompressed.
pub const SLICE_SHA256: &str = "bda2be50171010f42d4789d27601633ea5d14d1a4f4e1664c8f21ec8ab15b96b";
/// Name of the slice in messages.
pub const SLICE_NAME: &str = "set.mm (slice)";

static SLICE: &[u8] = include_bytes!("../data/set-slice.mm.zst");

/// The number of candidates in the slice, and the labels of its targets, as [`split`](crate::splits::split) draws them. To
/// draw them takes longer than to read the database.
static TARGETS: &str = include_str!("../data/targets.txt");

/// Why the slice cannot be cut, read or used for proving.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum SliceError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Theory(#[from] TheoryError),
    #[error("the database has {found} provable assertions, the slice needs {wanted}")]
    TooShort { found: usize, wanted: usize },
    #[error("the shipped slice is damaged: {0}")]
    Damaged(String),
}

/// Cuts a database's text after the first `assertions` provable assertions.
pub fn cut(name: &str, text: &[u8], assertions: usize) -> Result<Vec<u8>, SliceError> {
    let database = Database::parse(name, text)?;
    let provable = database.provable();
    let found = || database.assertions().filter(|(_, _, a)| Some(a.conclusion.typecode) == provable);
    let Some((id, _, _)) = found().nth(assertions.saturating_sub(1)) else {
        return Err(SliceError::TooShort { found: found().count(), wanted: assertions });
    };
    #[allow(clippy::expect_used, reason = "a database parsed from memory consists of one file")]
    let mut end = database.offset(id).expect("invariant: all statements are in the first file");
    while let Some((s, e)) = next_token(text, end) {
        end = e;
        if &text[s..e] == b"$." {
            break;
        }
    }
    let mut slice = text[..end].to_vec();
    slice.push(b'\n');
    for _ in 0..open_scopes(&text[..end]) {
        slice.extend_from_slice(b"$}\n");
    }
    for name in open_parts(&text[..end]).iter().rev() {
        slice.extend_from_slice(format!("$( End $[ {name} $] $)\n").as_bytes());
    }
    Ok(slice)
}

fn open_scopes(text: &[u8]) -> usize {
    let (mut open, mut at, mut in_comment) = (0usize, 0, false);
    while let Some((s, e)) = next_token(text, at) {
        at = e;
        match &text[s..e] {
            b"$(" => in_comment = true,
            b"$)" => in_comment = false,
            b"${" if !in_comment => open += 1,
            b"$}" if !in_comment => open = open.saturating_sub(1),
            _ => {}
        }
    }
    open
}

/// Returns the names of the parts (`$( Begin $[ name $] $)` … `$( End $[ name $] $)`) that are open at the end of the text.
/// The `metamath` program would mistake a part that is not closed for an inclusion.
fn open_parts(text: &[u8]) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some((s, e)) = next_token(text, at) {
        at = e;
        tokens.push(&text[s..e]);
    }
    let mut open = Vec::new();
    for w in tokens.windows(4) {
        match *w {
            [b"$(", b"Begin", b"$[", name] => open.push(String::from_utf8_lossy(name).into_owned()),
            [b"$(", b"End", b"$[", name] => open.retain(|o| o.as_bytes() != name),
            _ => {}
        }
    }
    open
}

/// Returns the text of the shipped slice.
pub fn shipped_text() -> Result<Vec<u8>, SliceError> {
    let mut text = Vec::new();
    let mut decoder = zstd::Decoder::new(SLICE).map_err(|e| SliceError::Damaged(e.to_string()))?;
    decoder.read_to_end(&mut text).map_err(|e| SliceError::Damaged(e.to_string()))?;
    let hash = checksum_of(&text);
    if hash != SLICE_SHA256 {
        return Err(SliceError::Damaged(format!("its hash is {hash}, not {SLICE_SHA256}")));
    }
    Ok(text)
}

/// Returns the targets of the shipped slice and the number of candidates.
pub(crate) fn shipped_targets(theory: &Theory) -> Option<(Vec<RuleId>, usize)> {
    let (candidates, labels) = TARGETS.split_once('\n')?;
    Some((labels.lines().map(|label| theory.find(label)).collect::<Option<_>>()?, candidates.parse().ok()?))
}

/// Parses the shipped slice.
pub fn shipped() -> Result<Database, SliceError> {
    Ok(Database::parse(SLICE_NAME, shipped_text()?)?)
}
