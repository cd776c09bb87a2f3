//! The source of the judge, embedded in this program. The setup compiles it; a Lean without a C compiler interprets it.

use std::path::Path;

/// The files of the Lake package `sgs-judge`, as names and texts.
pub const JUDGE_FILES: [(&str, &str); 9] = [
    ("lakefile.toml", include_str!("../lean/lakefile.toml")),
    ("SgsJudge.lean", include_str!("../lean/SgsJudge.lean")),
    ("SgsJudge/Term.lean", include_str!("../lean/SgsJudge/Term.lean")),
    ("SgsJudge/Kinds.lean", include_str!("../lean/SgsJudge/Kinds.lean")),
    ("SgsJudge/Syntax.lean", include_str!("../lean/SgsJudge/Syntax.lean")),
    ("SgsJudge/Elaborate.lean", include_str!("../lean/SgsJudge/Elaborate.lean")),
    ("SgsJudge/Replay.lean", include_str!("../lean/SgsJudge/Replay.lean")),
    ("SgsJudge/Serve.lean", include_str!("../lean/SgsJudge/Serve.lean")),
    ("Main.lean", include_str!("../lean/Main.lean")),
];

/// Makes the WebAssembly build interpret the judge.
const INDEX: &str = include_str!("../lean/wasm/Index.lean");

/// Returns the modules joined into one file for `lean --run`. The program serves the request in the file `request`, and
/// later requests in the same file if `keep_alive`.
///
/// All declarations are public, because the build that interprets the file treats it as a module, whose declarations
/// are private by default.
pub fn judge_in_one_file(replaying: bool, keep_alive: bool, request: &Path) -> String {
    let mut text = format!("import Lean\npublic section\n{INDEX}\n");
    for (name, source) in JUDGE_FILES {
        if name.starts_with("SgsJudge/") {
            for line in source.lines().filter(|line| !line.starts_with("import ")) {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    // Lean string literals have the syntax of JSON strings.
    let path = serde_json::Value::from(request.to_string_lossy());
    text.push_str(&format!(
        "def main (_ : List String) : IO UInt32 := do\n  SgsJudge.serveFile {replaying} {keep_alive} {path}\n  return 0\n"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_holds_every_module_and_imports_none_of_them() {
        let text = judge_in_one_file(true, false, Path::new("/a b/request.json"));
        assert_eq!(text.matches("\nimport ").count(), 0);
        for word in ["def writeDeclaration", "def collect", "def judge", "def serve"] {
            assert!(text.contains(word), "{word}");
        }
        let place = |word: &str| text.find(word).unwrap();
        assert!(
            place("structure Reader") < place("structure Request") && place("def judge") < place("def serve")
        );
        assert!(text.ends_with("\n  SgsJudge.serveFile true false \"/a b/request.json\"\n  return 0\n"));
    }
}
