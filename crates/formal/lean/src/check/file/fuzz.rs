//! Fuzz test of the answers of a judge process, of the replay, and of the community REPL.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../../../../../fleet/tests/it/fuzzing/mod.rs"]
mod fuzzing;

use super::super::repl::read_reply;
use super::*;
use fuzzing::Fuzzer;

const NONCE: &str = "0123456789abcdef";

/// Returns everything that the parent extracts from an answer that arrives in these pieces.
fn taken(pieces: [&[u8]; 2], nonce: &str) -> (JudgeRun, Option<String>) {
    let mut reader = AnswerReader::new(nonce, 2, true);
    reader.push(pieces[0], false);
    reader.push(&pieces.concat(), true);
    (reader.run, reader.violation)
}

fn verdicts(run: &JudgeRun) -> Vec<Option<[CheckOutcome; 2]>> {
    let layers = TrustLayers::ALL;
    let of = |reply: &JudgeReply| [reply.judge(layers), reply.kernel(layers)];
    run.replies.iter().map(|reply| reply.as_ref().map(of)).collect()
}

#[test]
#[ignore = "as long as SGS_FUZZ_SECONDS says, 10 s otherwise"]
fn fuzz_answers_of_the_judge() {
    let said = |lines: &[&str]| -> Vec<u8> {
        lines.iter().flat_map(|line| format!("{{\"nonce\":\"{NONCE}\",{line}}}\n").into_bytes()).collect()
    };
    let error =
        r#"{"severity":"error","kind":"hasSorry","pos":{"line":1,"column":0},"data":"unsolved goals ⊢ ∀"}"#;
    let reply = |index: u8, messages: &str, syntax: &str, accepted: bool, axioms: &str| {
        let accepted = format!("\"accepted\":{accepted},\"reason\":\"the kernel refuses\"");
        format!(
            "\"end\":{index},\"messages\":[{messages}],\"syntax\":\"{syntax}\",{accepted},\"axioms\":[{axioms}]"
        )
    };
    let first = reply(0, "", "", true, "\"propext\",\"Quot.sound\"");
    let second = reply(1, error, "the command `alias`", false, "\"sorryAx\"");
    let mut fuzzer = Fuzzer::new(vec![
        said(&["\"read\":true", "\"header\":[\"Init\"]", "\"begin\":0", &first, "\"begin\":1", &second]),
        said(&["\"header\":[]", "\"begin\":0", "\"begin\":1", "\"begin\":1", &second, "\"begin\":0", &first]),
        said(&["\"broken\":\"an exception\",\"refused\":true"]),
        format!("{{\"env\": 3, \"messages\": [{error}], \"sorries\": [{{\"goal\": \"x\"}}]}}\n\n")
            .into_bytes(),
        b"{\"message\": \"Unknown environment.\"}\n\n".to_vec(),
    ]);
    while let Some(bytes) = fuzzer.input() {
        let cut = fuzzer.below(bytes.len() + 1);
        let (run, violation) = taken([&bytes[..cut], &bytes[cut..]], NONCE);
        let (whole, again) = taken([&[], &bytes], NONCE);
        assert_eq!((verdicts(&run), &violation), (verdicts(&whole), &again), "it depends on the pieces");
        assert_eq!((run.header, run.at, &run.broken), (whole.header, whole.at, &whole.broken));
        let (forged, _) = taken([&[], &bytes], "another");
        assert!(!forged.header && forged.broken.is_none() && forged.replies.iter().all(Option::is_none));
        if run.replies.iter().any(Option::is_some) || read_reply(&bytes, 3).is_ok() {
            fuzzer.keep(bytes);
        }
    }
    fuzzer.report("answers of the judge and of the REPL");
}
