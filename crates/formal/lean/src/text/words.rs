//! Forbidden words, wherever they stand in a text: in code, in strings, in comments, in `«»`.
//!
//! This look needs no lexer. Whatever Lean takes for code, a word that is not in the text at all cannot act. Where a
//! word begins and ends is read as the most hostile lexer could: after a number, a character, `..` or any symbol a
//! new token may begin.

use super::command::{KEYWORDS, MODIFIERS};
use super::forbidden::Rule;
use super::lexer::{Token, TokenKind, is_word_rest};

pub(super) const SORRY: &[&str] = &["sorry", "admit", "sorryAx", "stop", "apply?", "synthetic_sorry"];

pub(super) const COMPILER: &[&str] = &[
    "native_decide",
    "nativeDecide",
    "bv_decide",
    "bv_check",
    "ofReduceBool",
    "ofReduceNat",
    "reduceBool",
    "reduceNat",
    "trustCompiler",
    "native",
    "implemented_by",
    "csimp",
    "export_name",
    "unsafeCast",
    "unsafeIO",
    "unsafeBaseIO",
    "unsafeEIO",
    "lcProof",
    "lcUnreachable",
    "lcAny",
    "lcErased",
    "ptrAddrUnsafe",
    "ptrEq",
    "unsafe_term",
    "TrustMe",
];

pub(super) const META_CODE: &[&str] = &[
    "run_tac",
    "by_elab",
    "elab_stx",
    "eval%",
    "eval_expr",
    "eval_suggest_tactic",
    "include_str",
    "include_bytes",
    "decl_name%",
    "dbg_trace",
    "dbg_sleep",
    "dbg_stack",
    "dbgTrace",
    "dbgTraceVal",
    "dbgTraceIfShared",
    "dbgSleep",
    "dbgStackTrace",
    "panic!",
    "assert!",
    "debug_assert!",
    "unreachable!",
    "throwError",
    "throwErrorAt",
    "logInfo",
    "logWarning",
    "trace!",
    "builtin_init",
    "addDecl",
    "addAndCompile",
    "modifyEnv",
    "setEnv",
    "addDeclCore",
    "addDeclWithoutChecking",
    "evalTactic",
    "evalExpr",
    "evalConst",
    "declName%",
    "private_decl%",
    "reduce_name%",
    "precompiled",
    "elabCommand",
    "open_private",
    "mkSorry",
    "elabTermEnsuringType",
    "skipKernelTC",
    "byAsSorry",
    "proofAsSorry",
    "terminalTacticsAsSorry",
];

/// Commands with `#`; `#s` is a cardinality in Mathlib.
pub(super) const HASH_COMMANDS: &[&str] = &[
    "#eval",
    "#eval!",
    "#exit",
    "#print",
    "#check",
    "#check_failure",
    "#check_tactic",
    "#check_simp",
    "#reduce",
    "#synth",
    "#guard",
    "#guard_msgs",
    "#guard_expr",
    "#print_axioms",
    "#info_trees",
    "#help",
    "#find",
    "#lint",
    "#simp",
    "#norm_num",
    "#whnf",
    "#whnfR",
    "#widget",
    "#where",
    "#version",
    "#html",
    "#conv",
    "#push_neg",
    "#ring",
    "#ring_nf",
    "#unfold",
    "#loogle",
    "#leansearch",
    "#moogle",
    "#statesearch",
    "#import_path",
    "#min_imports",
    "#count_heartbeats",
    "#time",
    "#test",
    "#sample",
    "#instances",
    "#parse",
    "#trace",
    "#dbg_trace",
    "#discr_tree_key",
    "#discr_tree_simp_key",
    "#list_linters",
    "#with_exporting",
    "#print_prefix",
    "#grind_lint",
];

/// Words of plain English that may stand in a comment. Lean never sees a comment of a proof: they are blanked out
/// before it does (`enclose`).
const ENGLISH: &[&str] = &[
    "theorem",
    "lemma",
    "def",
    "example",
    "instance",
    "structure",
    "class",
    "section",
    "end",
    "variable",
    "import",
    "export",
    "attribute",
    "prefix",
    "postfix",
    "private",
    "protected",
    "partial",
    "local",
    "stop",
    "admit",
    "native",
    "inductive",
    "mutual",
    "universe",
    "open",
];

/// A forbidden word in a text.
pub(super) struct Found {
    pub rule: Rule,
    pub word: &'static str,
    /// Its byte offset.
    pub at: usize,
}

/// The first forbidden word of a text that is not one of its code's own tokens (which the rules over tokens look at),
/// or that no code may hold.
pub(super) fn forbidden_word(source: &str, tokens: &[Token]) -> Option<Found> {
    // As long as the text, so that offsets are those of the source: `«»` cannot keep a word out of sight.
    let plain = source.replace(['«', '»'], "  ");
    let words = |list: &'static [&'static str], rule: Rule| list.iter().map(move |word| (*word, rule));
    words(SORRY, Rule::Sorry)
        .chain(words(COMPILER, Rule::Compiler))
        .chain(words(META_CODE, Rule::MetaCode))
        .chain(words(HASH_COMMANDS, Rule::HashCommand))
        .chain(words(KEYWORDS, Rule::Command))
        .chain(words(MODIFIERS, Rule::Command))
        .chain(words(&["open"], Rule::Open))
        .chain(words(&["set_option"], Rule::Option))
        .flat_map(|(word, rule)| plain.match_indices(word).map(move |(at, _)| Found { rule, word, at }))
        .filter(|found| stands_alone(&plain, found))
        .find(|found| !is_seen(tokens, found))
}

/// Whether a word is a token of the code, which other rules judge, or plain English in a comment.
fn is_seen(tokens: &[Token], found: &Found) -> bool {
    let after = tokens.partition_point(|t| t.start <= found.at);
    let Some(token) = after.checked_sub(1).and_then(|at| tokens.get(at)) else { return false };
    if token.end <= found.at {
        return false;
    }
    match token.kind {
        TokenKind::Word | TokenKind::HashWord => token.start == found.at,
        TokenKind::LineComment | TokenKind::BlockComment | TokenKind::DocComment => {
            ENGLISH.contains(&found.word)
        }
        _ => false,
    }
}

/// Whether a token could begin where the word does and end where it does; for what is no command, a name's last part
/// is enough.
fn stands_alone(text: &str, found: &Found) -> bool {
    let end = found.at + found.word.len();
    let (Some(before), Some(after)) = (text.get(..found.at), text.get(end..)) else { return false };
    let ends = !found.word.ends_with(is_word_rest) || !after.starts_with(is_word_rest);
    ends && (begins(before) || found.rule != Rule::Command && before.ends_with('.'))
}

/// Whether a token may begin after `before`.
fn begins(before: &str) -> bool {
    let joined = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '\'' | '!' | '?');
    let start = before.trim_end_matches(joined);
    match before.get(start.len()..).and_then(|run| run.chars().next()) {
        // Part of a word; after a number, a character or `]!` it would be a token of its own.
        Some(first) => !(first.is_ascii_alphabetic() || first == '_'),
        None => match before.strip_suffix('.') {
            // `x.end` is a field. `1.` and `..` are tokens.
            Some(rest) => rest.ends_with('.') || rest.ends_with(|c: char| c.is_ascii_digit()) && begins(rest),
            None => true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::lexer::lex;
    use super::*;

    fn found(source: &str) -> Option<&'static str> {
        forbidden_word(source, &lex(source)).map(|f| f.word)
    }

    #[test]
    fn words_are_found_in_strings_comments_and_quotation_marks() {
        for (source, word) in [
            ("-- axiom", "axiom"),
            ("/- debug.skipKernelTC true in -/", "skipKernelTC"),
            ("/- set_option x -/", "set_option"),
            ("exact foo \"x axiom y\"", "axiom"),
            ("exact foo \"end\"", "end"),
            ("exact «sorry»", "sorry"),
            ("exact «foo axiom»", "axiom"),
            ("-- #eval 1", "#eval"),
            ("\"x 0b1axiom\"", "axiom"),
            ("\"x 1axiom\"", "axiom"),
            ("\"'a'axiom\"", "axiom"),
            ("\"x[0]!axiom\"", "axiom"),
            ("\"..axiom\"", "axiom"),
            ("\"1.axiom\"", "axiom"),
            ("\"→ₗaxiom\"", "axiom"),
            ("\"\naxiom\"", "axiom"),
        ] {
            assert_eq!(found(source), Some(word), "{source}");
        }
    }

    #[test]
    fn parts_of_names_fields_and_plain_english_are_not() {
        for source in [
            "h_axiom axiom_of_choice axiom' inferInstance",
            "h.end x.instance.prefix Foo.1.symm",
            "-- this is the end, for instance of an open section with a local name",
            "\"weekend\"",
            "theorem x",
        ] {
            assert_eq!(found(source), None, "{source}");
        }
    }
}
