//! Tests verification of a file of problems with proofs.

use crate::verifiers;
use sgs_metamath::export::Exporter;
use sgs_metamath::proof_text::write_steps;
use sgs_metamath::theory::Theory;
use sgs_metamath::verify::{LineMessage, MAX_LINE_BYTES, VerifyOptions, VerifySummary, verify};
use std::path::Path;

fn mini() -> Theory {
    Theory::read(Path::new("tests/data/mini.mm")).unwrap()
}

struct Run {
    summary: VerifySummary,
    lines: Vec<serde_json::Value>,
    reports: Vec<String>,
}

fn run(theory: &Theory, input: &[u8]) -> Run {
    let (mut output, mut reports) = (Vec::new(), Vec::new());
    let options = VerifyOptions { threads: 2, ..VerifyOptions::default() };
    let mut report = |message: LineMessage<'_>| match message {
        LineMessage::Bad { reason: text, .. } | LineMessage::Warning(text) => reports.push(text.to_owned()),
    };
    let summary = verify(theory, &mut &input[..], &mut output, None, &mut report, options).unwrap();
    let text = String::from_utf8(output).unwrap();
    let lines = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    Run { summary, lines, reports }
}

#[test]
fn each_kind_of_line_gets_its_verdict() {
    let input = r#"{"id":"a","hypotheses":["|- ph"],"conclusion":"|- ( ps -> ph )","proof":["h1","a1i"]}
{"id":"b","conclusion":"|- ( ph -> ps )","proof":["id"]}
{"id":"c","conclusion":"|- ( ph -> ph )","proof":["nix"]}
not json

{"id":"d","conclusion":"|- ( ph -> )","proof":["id"]}
{"id":"e","context":"id","conclusion":"|- ( ph -> ph )","proof":["id"]}
{"id":"f","context":"nowhere","conclusion":"|- ( ph -> ph )","proof":["id"]}
{"id":"g","distinct":[["x","ph"]],"conclusion":"|- ( ph -> A. x ph )","proof":["ax-5"]}
{"id":"h","conclusion":"|- ( ph -> A. x ph )","proof":["ax-5"]}
{"id":"i","conclusion":7,"proof":["id"]}
{"id":"j","context":"a1i","conclusion":"|- ( x = y -> x = y )","proof":["ax-1"]}
{"id":"k","conclusion":"|- ( ph -> ph )","proof":[]}"#;
    let run = run(&mini(), input.as_bytes());
    let verdicts: Vec<(Option<&str>, &str)> =
        run.lines.iter().map(|l| (l["id"].as_str(), l["verdict"].as_str().unwrap())).collect();
    let expected = [
        (Some("a"), "proved"),
        (Some("b"), "refused"),
        (Some("c"), "malformed"),
        (None, "malformed"),
        (Some("d"), "malformed"),
        (Some("e"), "refused"),
        (Some("f"), "malformed"),
        (Some("g"), "proved"),
        (Some("h"), "refused"),
        (Some("i"), "malformed"),
        (Some("j"), "malformed"),
        (Some("k"), "malformed"),
    ];
    assert_eq!(verdicts, expected);
    for (line, (_, verdict)) in run.lines.iter().zip(expected) {
        assert_eq!(line["reason"].as_str().unwrap().is_empty(), verdict == "proved");
        assert!(line["micros"].is_u64());
        let keys: Vec<&String> = line.as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 5, "{keys:?}");
    }
    let reason = |i: usize| run.lines[i]["reason"].as_str().unwrap();
    assert!(reason(2).contains("unknown-label"), "{}", reason(2));
    assert_eq!(run.lines[2]["step"], 1);
    assert!(reason(3).starts_with("line 4: expected a JSON object"), "{}", reason(3));
    assert!(reason(4).starts_with("line 6: no-formula"), "{}", reason(4));
    assert!(reason(5).contains("does not precede"), "{}", reason(5));
    assert!(reason(6).contains("unknown-context"), "{}", reason(6));
    assert!(reason(8).contains("$d"), "{}", reason(8));
    assert!(reason(9).contains("line 11: column"), "{}", reason(9));
    assert!(reason(10).contains("not introduced before"), "{}", reason(10));
    assert_eq!(run.reports.len(), 5);
    let s = run.summary;
    assert_eq!((s.lines, s.proved, s.refused, s.malformed, s.bad_lines), (12, 2, 3, 2, 5));
    assert!(!s.is_clean());
}

#[test]
fn long_lines_and_broken_text_are_bad_lines() {
    let mut input = vec![b'x'; MAX_LINE_BYTES + 1];
    input.extend_from_slice(
        b"\n\xff\xfe\n{\"id\":\"a\",\"conclusion\":\"|- ( ph -> ph )\",\"proof\":[\"id\"]}",
    );
    let run = run(&mini(), &input);
    assert_eq!((run.summary.bad_lines, run.summary.proved), (2, 1));
    assert!(run.reports[0].contains("more than 1048576 bytes"), "{}", run.reports[0]);
    assert!(run.reports[1].starts_with("line 2: "), "{}", run.reports[1]);
}

/// An input that checks that the next line is read only after the verdict on the previous one.
struct LockstepInput<'a> {
    lines: std::slice::Iter<'a, &'a str>,
    read: usize,
    written: &'a std::cell::Cell<usize>,
}

impl std::io::Read for LockstepInput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        assert_eq!(self.read, self.written.get(), "the next line is read before the verdict is written");
        let Some(line) = self.lines.next() else { return Ok(0) };
        self.read += 1;
        buffer[..line.len()].copy_from_slice(line.as_bytes());
        Ok(line.len())
    }
}

struct VerdictCounter<'a>(&'a std::cell::Cell<usize>);

impl std::io::Write for VerdictCounter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.set(self.0.get() + bytes.iter().filter(|&&b| b == b'\n').count());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn each_verdict_is_written_without_waiting_for_more_input() {
    let theory = mini();
    let line = "{\"id\":\"a\",\"conclusion\":\"|- ( ph -> ph )\",\"proof\":[\"id\"]}\n";
    let lines = [line; 5];
    let written = std::cell::Cell::new(0);
    let mut input = LockstepInput { lines: lines.iter(), read: 0, written: &written };
    let summary = verify(
        &theory,
        &mut input,
        &mut VerdictCounter(&written),
        None,
        &mut |m| panic!("{m:?}"),
        VerifyOptions { threads: 1, ..VerifyOptions::default() },
    )
    .unwrap();
    assert_eq!((summary.proved, written.get()), (5, 5));
}

/// Records the time of the first byte of output.
#[derive(Default)]
struct FirstByte(Option<std::time::Instant>);

impl std::io::Write for FirstByte {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.get_or_insert_with(std::time::Instant::now);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn verdicts_are_written_while_the_rest_of_the_file_is_checked() {
    let theory = mini();
    let line =
        serde_json::json!({ "id": "a", "conclusion": "|- ( ph -> ph )", "proof": "id ".repeat(1_000) });
    let input = format!("{line}\n").repeat(1_500);
    let options = VerifyOptions { threads: 1, ..VerifyOptions::default() };
    let is_early = |_| {
        let mut output = FirstByte::default();
        let begin = std::time::Instant::now();
        verify(&theory, &mut input.as_bytes(), &mut output, None, &mut |_| {}, options).unwrap();
        let (first, all) = (output.0.unwrap() - begin, begin.elapsed());
        println!("the first verdict came after {first:?} of {all:?}");
        first < all / 2
    };
    // A busy machine may delay the thread that writes.
    assert!((0..5).any(is_early));
}

#[test]
fn blank_input_has_no_output() {
    let run = run(&mini(), b"\n\n");
    assert_eq!(run.summary, VerifySummary::default());
    assert!(run.summary.is_clean() && run.lines.is_empty());
}

#[test]
fn many_lines_keep_their_order_and_are_exported() {
    let theory = mini();
    let mut input = Vec::new();
    let proofs = sgs_metamath::theorem_proofs::theorem_proofs(&theory, 60);
    for n in 0..5_000 {
        let proof = &proofs[n % proofs.len()];
        let theorem = theory.rule(proof.rule);
        let pairs: Vec<Vec<&str>> = proof
            .statement
            .distinct
            .iter()
            .map(|&(a, b)| vec![theory.database().symbol_text(a), theory.database().symbol_text(b)])
            .collect();
        let line = serde_json::json!({
            "id": format!("p{n}"),
            "context": theory.label(proof.rule),
            "distinct": pairs,
            "hypotheses": theorem.hypotheses.iter().map(|h| theory.formula_text(h)).collect::<Vec<_>>(),
            "conclusion": theory.formula_text(&theorem.conclusion),
            "proof": write_steps(&theory, &proof.steps).split(' ').collect::<Vec<_>>(),
        });
        serde_json::to_writer(&mut input, &line).unwrap();
        input.push(b'\n');
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("accepted.mm");
    let mut exporter = Exporter::create(&theory, &path).unwrap();
    let (mut output, mut reports) = (Vec::new(), Vec::new());
    let summary = verify(
        &theory,
        &mut input.as_slice(),
        &mut output,
        Some(&mut exporter),
        &mut |message| reports.push(format!("{message:?}")),
        VerifyOptions { threads: 2, ..VerifyOptions::default() },
    )
    .unwrap();
    assert_eq!(exporter.finish().unwrap(), 5_000);
    assert_eq!((summary.proved, summary.lines), (5_000, 5_000), "{summary} {reports:?}");
    assert!(summary.is_clean());
    for (n, line) in String::from_utf8(output).unwrap().lines().enumerate() {
        assert!(line.starts_with(&format!("{{\"id\":\"p{n}\",")), "{line}");
    }
    assert_eq!(verifiers::metamath_rs(std::fs::read(&path).unwrap()), Default::default());
    if let Some(verdict) = verifiers::metamath_c(&path) {
        verdict.unwrap();
    }
}
