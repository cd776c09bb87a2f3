//! `sgs data build` and `sgs data import`.

use crate::program;
use crate::program::{file, path, sgs};
use sgs_data::corpus::CorpusRow;
use sgs_rundir::table::RowReader;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

const PROBLEMS: &str = r#"[{"name":"a","formal_statement":"theorem a (x : Nat) : x = x := by sorry"},
{"name":"b","formal_statement":"theorem b (p q : Prop) (h : p) : p ∨ q := by\n  exact Or.inl h"},
{"name":"c","formal_statement":"def c := 1"}]"#;

#[test]
fn imported_problems_read_back_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let given = file(dir.path(), "p.json", PROBLEMS);
    let header = file(dir.path(), "header.lean", "import Mathlib\n");
    let (first, second) = (path(dir.path(), "1.jsonl"), path(dir.path(), "2.jsonl"));
    let done = sgs(&["data", "import", &given, "--out", &first, "--header", &header]).expect(1);
    let skipped = ["c: no theorem", "2 problems written, 1 record rejected"];
    assert!(skipped.iter().all(|part| done.err.contains(part)), "{}", done.err);
    sgs(&["data", "import", &first, "--out", &second]).expect(0);
    // Rejected records would be lost.
    let over = sgs(&["data", "import", &given, "--out", &given]).expect(2);
    assert!(over.err.contains("--out names the input"), "{}", over.err);
    let text = std::fs::read_to_string(&first).unwrap();
    assert_eq!(text, std::fs::read_to_string(&second).unwrap());
    assert!(text.contains("import Mathlib") && text.lines().count() == 2, "{text}");
    // Some editors save a byte order mark and CRLF line ends.
    let marked = file(dir.path(), "marked.jsonl", &format!("\u{feff}{}", text.replace('\n', "\r\n")));
    let shown = sgs(&["data", "import", &marked, "--out", "-"]).expect(0);
    assert_eq!(shown.out, text);
    assert_eq!(shown.lines()[1]["id"], "b");
}

#[test]
fn an_import_drops_proofs_with_sorry_unless_a_verdict_is_expected() {
    let dir = tempfile::tempdir().unwrap();
    let statement = "theorem t : True := by";
    let rows = [
        serde_json::json!({ "id": "a", "statement": statement, "proof": "\n  trivial -- no sorry" }),
        serde_json::json!({ "id": "b", "statement": statement, "proof": "\n  sorry" }),
        serde_json::json!({ "id": "c", "statement": statement, "formal_proof": "theorem t : True := sorry" }),
        serde_json::json!({ "id": "d", "statement": "theorem t : True := (sorry)" }),
        serde_json::json!({ "id": "f", "statement": "theorem t : True := by exact sorry" }),
        serde_json::json!({ "id": "g", "statement": "theorem t : True := by\n  have h : True := by admit\n  trivial" }),
        serde_json::json!({ "id": "e", "statement": statement, "proof": "\n  sorry", "expect": "refused" }),
    ];
    let text: String = rows.iter().map(|row| row.to_string() + "\n").collect();
    let shown = sgs(&["data", "import", &file(dir.path(), "set.jsonl", &text), "--out", "-"]).expect(0);
    let proofs: Vec<bool> = shown.lines().iter().map(|line| line["proof"].is_string()).collect();
    assert_eq!(proofs, [true, false, false, false, false, false, true], "{}", shown.out);
}

#[test]
fn an_import_names_problems_whose_headers_assume_something() {
    let dir = tempfile::tempdir().unwrap();
    let problem = |id: &str, header: &str| {
        let statement = format!("theorem {id} : (1 : Nat) = 2 := by");
        serde_json::json!({ "id": id, "header": header, "statement": statement }).to_string() + "\n"
    };
    let import = |set: &[(&str, &str)]| {
        let text: String = set.iter().map(|(id, header)| problem(id, header)).collect();
        sgs(&["data", "import", &file(dir.path(), "set.jsonl", &text), "--out", "-"]).expect(0)
    };
    let plain = ("plain", "import Lean\nopen Nat\nvariable {α : Type u} (n : Nat)\n");
    let done = import(&[plain]);
    assert!(!done.err.contains("warning"), "{}", done.err);
    let variable = ("a", "variable (h : False)\ninclude h\n");
    let done = import(&[plain, variable]);
    let text = "warning: the header of 1 problem adds hypotheses, instances or notations that no statement shows (a: `variable (h : False)`)\n2 problems written";
    assert!(done.err.contains(text), "{}", done.err);
    let class = ("b", "class C : Prop where f : False\nvariable [C]\n");
    let instance = ("c", "instance (priority := high) : OfNat Nat 2 := ⟨1⟩\n");
    let done = import(&[variable, class, instance, ("d", instance.1), ("e", class.1)]);
    let text = "the headers of 5 problems add hypotheses, instances or notations that no statement shows (a: `variable (h : False)`";
    assert!(done.err.contains(text), "{}", done.err);
    let rest = "; b: `variable [C]`; c: `instance (priority := high) : OfNat Nat 2 := ⟨1⟩`; and 2 more)";
    assert!(done.err.contains(rest), "{}", done.err);
}

#[test]
fn an_import_pins_the_toolchain() {
    let dir = tempfile::tempdir().unwrap();
    let given = file(dir.path(), "p.json", PROBLEMS);
    let done = sgs(&["data", "import", &given, "--out", "-", "--toolchain", "v4.15.0"]).expect(1);
    assert!(done.lines().iter().all(|line| line["toolchain"] == "v4.15.0"), "{}", done.out);
}

#[test]
fn files_without_problems_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let import = |given: &str, more: &[&str]| sgs(&[&["data", "import", given, "--out", "-"], more].concat());
    let done = import(&file(dir.path(), "empty.jsonl", ""), &[]).expect(2);
    assert!(done.err.contains("empty.jsonl"), "{}", done.err);
    let done = import(&file(dir.path(), "p.json", PROBLEMS), &["--header", "/no/header"]).expect(2);
    assert!(done.err.contains("/no/header"), "{}", done.err);
    let notes = file(dir.path(), "notes.md", "# Notes\n");
    let done = sgs(&["data", "import", &file(dir.path(), "good.json", PROBLEMS), "--out", &notes]).expect(2);
    assert!(done.err.contains("notes.md exists and is not a data set"), "{}", done.err);
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "# Notes\n");
    let out = path(dir.path(), "out");
    let text = file(dir.path(), "text.jsonl", "{\"id\":\"a\"}\n");
    let done = sgs(&["data", "import", &text, "--out", &out]).expect(1);
    assert!(done.err.contains("0 problems written"), "{}", done.err);
    sgs(&["data", "build", "--source", &text, "--out", &out]).expect(2);
    assert!(!std::path::Path::new(&out).exists());
}

#[test]
fn a_database_too_small_to_compose_theorems_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let small = "$c ( ) -> wff |- $. $v p q r $. wp $f wff p $. wq $f wff q $. wr $f wff r $.\n\
        wi $a wff ( p -> q ) $. ax-1 $a |- ( p -> ( q -> p ) ) $.\n\
        ${ min $e |- p $. maj $e |- ( p -> q ) $. mp $a |- q $. $}\n\
        ${ a.1 $e |- p $. a1i $p |- ( q -> p ) $= wp wq wp wi a.1 wp wq ax-1 mp $. $}\n";
    let (small, out) = (file(dir.path(), "small.mm", small), path(dir.path(), "out"));
    let build = |composed| sgs(&["data", "build", "--source", &small, "--out", &out, "--composed", composed]);
    let refused = build("20").expect(2).err;
    assert!(refused.contains("has 3 axioms and theorems") && refused.contains("--composed 0"), "{refused}");
    assert!(!std::path::Path::new(&out).exists());
    let built = build("0").expect(0);
    assert!(!built.err.contains("warning"), "{}", built.err);
    let wrong = std::fs::read_to_string(&small).unwrap().replace("a.1 wp wq ax-1 mp", "a.1 wp wq ax-1");
    std::fs::write(&small, wrong).unwrap();
    let built = build("0").expect(0);
    assert!(built.err.contains("warning: 1 of 1 theorems have no valid proof: `a1i`"), "{}", built.err);
}

/// Builds corpora with short proofs, and evaluates the shipped Guide on reviews of targets that are not in them.
#[test]
fn corpora_keep_the_maximum_of_steps_and_measure_the_guide() {
    let dir = tempfile::tempdir().unwrap();
    let data = path(dir.path(), "data");
    let short = ["--composed", "200", "--reviews", "1", "--max-steps", "3"];
    sgs(&[&["data", "build", "--out", &data][..], &short].concat()).expect(0);
    let card = std::fs::read_to_string(format!("{data}/README.md")).unwrap();
    assert!(card.contains("--reviews 1 --max-steps 3`"), "the command is repeatable: {card}");
    let mut longest = BTreeMap::new();
    for file in ["solver.parquet", "conjecturer-proofs.parquet"] {
        for row in RowReader::<CorpusRow>::open(&Path::new(&data).join(file)).unwrap() {
            let row = row.unwrap();
            let steps = row.completion.split_whitespace().filter(|token| token.starts_with('~')).count();
            let most = longest.entry(format!("{} {}", row.role, row.kind)).or_insert(0);
            *most = steps.max(*most);
        }
    }
    assert!(longest.len() >= 4 && longest.values().all(|steps| *steps == 3), "{longest:?}");

    let reviews = format!("{data}/guide-held-out.parquet");
    // A Guide that is missing is reported before the Solver is evaluated.
    let folder = path(dir.path(), "empty");
    std::fs::create_dir(&folder).unwrap();
    let config = file(dir.path(), "run.toml", &format!("[model]\nguide = \"{folder}\"\n"));
    let missing = sgs(&["eval", "--run", &config, "--limit", "1", "--reviews", &reviews]).expect(2).err;
    assert_eq!(missing, format!("error: {folder} is not a model folder: config.json not found\n"));
    // Files of other kinds: errors name the expected columns.
    let wrong = file(dir.path(), "wrong.jsonl", "{\"id\":\"a\"}\n");
    let names = "role, kind, source, prompt, completion";
    for (other, told) in [
        (&wrong, format!("a JSON object with the keys {names}): missing field `role`")),
        (&config, format!("the name must end in .parquet or .jsonl; a corpus has the columns {names}")),
        (&format!("{data}/solver.parquet"), "is not a review: ".to_owned()),
    ] {
        let refused = sgs(&["eval", "--reviews", other, "--only-reviews"]).expect(2).err;
        assert!(refused.contains(&told), "{told} in {refused}");
    }
    let json = sgs(&["eval", "-k", "1", "--limit", "60", "--reviews", &reviews, "--json"]).expect(0).json();
    let guide = &json["guide"];
    assert!(guide["well_formed"].as_u64().unwrap() > 50, "{guide}");
    // The shipped model ranks them better than chance; its model card has the number.
    assert!(guide["rank_correlation"].as_f64().unwrap() > 0.0, "{guide}");
    for kind in ["known", "one-step", "duplicate"] {
        let area = guide["area_over"][kind].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&area), "{kind}: {area}");
    }
}

/// Runs `sgs` with about 700 MB of address space.
fn sgs_with_limited_memory(arguments: &[&str]) -> program::ProgramOutput {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -v 700000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_sgs")]).args(arguments);
    program::finish(command)
}

/// Writes a table of `groups` row groups with `rows` rows each, whose texts have `letters` letters.
///
/// With `dictionary`, equal texts are stored once.
fn write_parquet(path: &str, groups: usize, rows: usize, letters: usize, dictionary: bool) {
    use parquet::basic::{Compression, ZstdLevel};
    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    let schema = "message set { required binary problem_id (UTF8); required binary informal (UTF8); }";
    let schema = std::sync::Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap()))
        .set_dictionary_enabled(dictionary)
        .set_dictionary_page_size_limit(64 << 20)
        .build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, properties.into()).unwrap();
    let long = ByteArray::from("a".repeat(letters).as_str());
    for _ in 0..groups {
        let mut group = writer.next_row_group().unwrap();
        for value in [ByteArray::from("x"), long.clone()] {
            let mut column = group.next_column().unwrap().unwrap();
            for _ in 0..rows {
                let batch = std::slice::from_ref(&value);
                column.typed::<ByteArrayType>().write_batch(batch, None, None).unwrap();
            }
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
}

/// Tables are read page by page.
#[test]
#[ignore = "ten seconds: reads three GB; .ci/run runs it"]
fn a_table_that_unpacks_to_800_mb_needs_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let table = path(dir.path(), "much.parquet");
    let small = |table: &str| {
        assert!(std::fs::metadata(table).unwrap().len() < 1_500_000, "the compressed file must be small")
    };
    for (groups, rows, dictionary) in [(16, 5, false), (1, 80, false), (1, 80, true)] {
        write_parquet(&table, groups, rows, 10_000_000, dictionary);
        small(&table);
        let out = path(dir.path(), "out.jsonl");
        let done = sgs_with_limited_memory(&["data", "import", &table, "--out", &out]).expect(1);
        let message = format!("0 problems written, {} records rejected", groups * rows);
        assert!(done.err.contains(&message), "{}", done.err);
    }
    // Write a single page that would not fit into memory.
    write_parquet(&table, 1, 1, 600 << 20, false);
    small(&table);
    let done = sgs_with_limited_memory(&["data", "import", &table, "--out", "-"]).expect(2);
    assert!(done.err.contains("row group 0 has pages that unpack to 629"), "{}", done.err);
}

/// JSON Lines are read record by record.
#[test]
fn a_file_that_unpacks_to_800_mb_needs_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let packed = path(dir.path(), "much.jsonl.zst");
    let mut writer = zstd::stream::Encoder::new(std::fs::File::create(&packed).unwrap(), 1).unwrap();
    let put = |writer: &mut zstd::stream::Encoder<'_, std::fs::File>, bytes: usize| {
        writeln!(writer, "{{\"id\":\"x\",\"informal\":\"{}\"}}", "a".repeat(bytes)).unwrap();
    };
    (0..80).for_each(|_| put(&mut writer, 10_000_000));
    writeln!(writer, "{{\"id\":\"good\",\"statement\":\"theorem t : 1 = 1 := by\"}}").unwrap();
    writer.finish().unwrap();
    assert!(std::fs::metadata(&packed).unwrap().len() < 1_000_000, "the compressed file must be small");
    let out = path(dir.path(), "out.jsonl");
    let done = sgs_with_limited_memory(&["data", "import", &packed, "--out", &out]).expect(1);
    assert!(done.err.contains("1 problem written, 80 records rejected"), "{}", done.err);
    // Write a single record that would not fit into memory.
    let packed = path(dir.path(), "long.jsonl.zst");
    let mut writer = zstd::stream::Encoder::new(std::fs::File::create(&packed).unwrap(), 1).unwrap();
    put(&mut writer, 70 << 20);
    writer.finish().unwrap();
    let done = sgs_with_limited_memory(&["data", "import", &packed, "--out", "-"]).expect(2);
    assert!(done.err.contains("line 1: larger than 67108864 bytes"), "{}", done.err);
}
