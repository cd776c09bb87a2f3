//! Comparison of our lexer with Lean's on random texts: both must agree on what is code.
//!
//! `data/Tokens.lean` runs Lean's `whitespace` and `tokenFn` over each text. Texts that the text layer refuses as ambiguous
//! or unclosed are skipped, because Lean never sees them. `SGS_FUZZ_TEXTS` is the number of texts and `SGS_FUZZ_SEED` the
//! seed.

use sgs_lean::text::{SourceToken, TokenKind, ambiguity, lex};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pieces of the texts: whatever hides text, whatever can be joined to it, and some of everything else.
const PIECES: &[&str] = &[
    "\"",
    "\"",
    "'",
    "'",
    "''",
    "--",
    "/-",
    "-/",
    "/--",
    "/-!",
    "-",
    "/",
    "\\",
    "//",
    "\\/",
    "/\\",
    "«",
    "»",
    "`",
    "``",
    "r\"",
    "r#\"",
    "\"#",
    "#",
    "#[",
    "@[",
    "s!\"",
    "m!",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "⟨",
    "⟩",
    "|",
    "||",
    "<",
    ">",
    "<-",
    "->",
    "→",
    "←",
    "=>",
    "⇒",
    ":=",
    ":",
    "::",
    ";",
    ",",
    ".",
    "..",
    "...",
    "!",
    "?",
    "%",
    "^",
    "&",
    "&&",
    "*",
    "+",
    "++",
    "=",
    "==",
    "≠",
    "≤",
    "∣",
    "∑",
    "∑'",
    "∏'",
    "⁻¹",
    "⁻¹'",
    "→ₗ",
    "∘ₗ",
    "×",
    "λ",
    "Σ",
    "Π",
    "α",
    "x₁",
    "é",
    "ℝ",
    "𝓝",
    "⊢",
    "|-",
    "<|",
    "|>",
    "|>.",
    "<;>",
    "·",
    "$",
    "~",
    "¬",
    "∀",
    "∃",
    "‹",
    "›",
    "axiom",
    "end",
    "theorem",
    "by",
    "fun",
    "x",
    "y'",
    "h!",
    "n?",
    "_",
    "Nat.succ",
    "x.1",
    "x.1.2",
    "r",
    "s!",
    "0",
    "1",
    "1.",
    "1.5",
    "1e5",
    "1e",
    "0b1",
    "0o7",
    "0x1F",
    "0xg",
    "1_0",
    "12ab",
    "'a'",
    "'\"'",
    "'\\n'",
    "'\\''",
    "'\\x41'",
    "'\n'",
    "\"a\"",
    "\"--\"",
    "\"/-\"",
    "\"\\\"\"",
    "\"{}\"",
    "\"{x}\"",
    "\"\\\\\"",
    "\"\\u03b1\"",
    "-- c\n",
    "/- c -/",
    "/- /- c -/ -/",
    "/--/",
    "/-/",
    "/-- d -/",
    "«a b»",
    "«a\"b»",
    "a.«b».c",
    "\n",
    "\n",
    "\\\n",
    "{ x : Int //-1 < x }",
    "a \\/-1",
];

/// A pseudo-random number generator (SplitMix64). Equal seeds give equal texts.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

fn soup(random: &mut Random) -> String {
    let mut text = String::new();
    // The density of blanks differs between texts.
    let blanks = 1 + random.below(9);
    for _ in 0..2 + random.below(12) {
        text.push_str(PIECES[random.below(PIECES.len())]);
        if random.below(10) < blanks {
            text.push(' ');
        }
    }
    text
}

/// Describes the byte ranges of code (`a-b`), strings (`sa-b`) and characters (`ca-b`). Adjacent code is one range.
fn describe(tokens: &[SourceToken]) -> String {
    let mut out = String::new();
    let mut code: Option<(usize, usize)> = None;
    let flush = |out: &mut String, code: Option<(usize, usize)>| {
        if let Some((a, b)) = code {
            write!(out, "{a}-{b} ").unwrap();
        }
    };
    for token in tokens {
        let literal = match token.kind {
            TokenKind::LineComment | TokenKind::BlockComment | TokenKind::DocComment => continue,
            TokenKind::Str { .. } => Some('s'),
            TokenKind::Char => Some('c'),
            _ => None,
        };
        if let Some(kind) = literal {
            flush(&mut out, code.take());
            write!(out, "{kind}{}-{} ", token.start, token.end).unwrap();
            continue;
        }
        code = match code {
            Some((a, b)) if b == token.start => Some((a, token.end)),
            other => {
                flush(&mut out, other);
                Some((token.start, token.end))
            }
        };
    }
    flush(&mut out, code);
    out
}

/// Returns a text that passes the text layer, its description by our lexer, and the number of texts generated for it.
fn passing(random: &mut Random) -> (String, String, u64) {
    let mut made = 0;
    loop {
        made += 1;
        let text = soup(random);
        let tokens = lex(&text);
        let open = tokens.iter().any(|t| matches!(t.kind, TokenKind::Unclosed(_)));
        // To a lexer, an interpolated string is not code. The text layer refuses such strings.
        let interpolated = tokens.iter().any(|t| t.kind == TokenKind::Str { interpolated: true });
        if !open && !interpolated && ambiguity(&text, &tokens).is_none() {
            let description = describe(&tokens);
            return (text, description, made);
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

#[test]
fn the_same_seed_gives_the_same_texts() {
    let texts = |seed| {
        let mut random = Random(seed);
        (0..100).map(|_| passing(&mut random).0).collect::<Vec<_>>()
    };
    assert_eq!(texts(1), texts(1));
    assert_ne!(texts(1), texts(2));
}

#[test]
#[ignore = "runs Lean: half a minute of CPU time and a quarter of a millisecond a text; .ci/run runs it"]
fn our_lexer_and_leans_agree_on_what_is_code() {
    let folder = tempfile::tempdir().unwrap();
    let (wanted, seed) = (setting("SGS_FUZZ_TEXTS", 20_000), setting("SGS_FUZZ_SEED", 1));
    let mut random = Random(seed);
    let (mut pairs, mut made) = (String::new(), 0);
    for _ in 0..wanted {
        let (text, description, tries) = passing(&mut random);
        made += tries;
        // The line that Lean reads includes its line break.
        writeln!(pairs, "{description}\n{}", text.replace('\n', "\u{1}")).unwrap();
    }
    let texts = folder.path().join("texts");
    std::fs::write(&texts, pairs).unwrap();
    let program = folder.path().join("Tokens.lean");
    // Relative paths have another meaning in the WebAssembly build.
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/Tokens.lean");
    let source = std::fs::read_to_string(data).unwrap().replace("\"texts\"", &format!("{texts:?}"));
    std::fs::write(&program, source).unwrap();
    let wasm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../lean/wasm/lean").canonicalize().unwrap();
    let lean = std::env::var_os("SGS_LEAN").map_or(wasm, PathBuf::from);
    let done = Command::new(lean).arg(&program).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    println!(
        "seed {seed}: {made} texts made, {wanted} compared\n{}",
        said.chars().take(5_000).collect::<String>()
    );
    assert!(
        said.contains(&format!("compared {wanted}, differ 0")),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
