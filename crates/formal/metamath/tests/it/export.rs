//! Third-party verifiers accept exported proofs.

use crate::verifiers;
use sgs_metamath::database::{Database, StatementId};
use sgs_metamath::export::{ExportError, Exporter, FreshLabels, theorem_block};
use sgs_metamath::judge::Judge;
use sgs_metamath::proof::ProofOp;
use sgs_metamath::proof_text::read_steps;
use sgs_metamath::statement::{Statement, StatementLimits};
use sgs_metamath::theorem_proofs::theorem_proofs;
use sgs_metamath::theory::Theory;
use sgs_metamath::unify::{Goal, ProofLimits};
use std::path::Path;

fn mini() -> Theory {
    Theory::read(Path::new("tests/data/mini.mm")).unwrap()
}

fn parse(text: &str) -> Theory {
    Theory::new(Database::parse("test.mm", text.as_bytes()).unwrap()).unwrap()
}

/// Proves `statement` before `context` and returns the exported database.
fn export_one(theory: &Theory, context: StatementId, statement: &str, proof: &str) -> String {
    let statement = Statement::parse(theory, statement, StatementLimits::default()).unwrap();
    let goal = Goal::new(theory, &statement, context).unwrap();
    let steps = read_steps(theory, goal.hypothesis_count(), proof.split(' ')).unwrap();
    let ops = Judge::new().prove(theory, &goal, &steps, ProofLimits::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.mm");
    let mut exporter = Exporter::create(theory, &path).unwrap();
    exporter.add("one", "", &goal, &ops).unwrap();
    assert_eq!(exporter.finish().unwrap(), 1);
    if let Some(verdict) = verifiers::metamath_c(&path) {
        verdict.unwrap();
    }
    std::fs::read_to_string(&path).unwrap()
}

fn end(theory: &Theory) -> StatementId {
    StatementId(theory.database().statements().len() as u32)
}

#[test]
fn every_proof_of_a_database_can_be_exported() {
    let theory = mini();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.mm");
    let mut exporter = Exporter::create(&theory, &path).unwrap();
    let mut judge = Judge::new();
    let proofs = theorem_proofs(&theory, 60);
    assert!(proofs.len() > 500);
    for proof in &proofs {
        let goal = Goal::of_rule(&theory, proof.rule).unwrap();
        let ops = judge.prove(&theory, &goal, &proof.steps, ProofLimits::default()).unwrap();
        let label = exporter.add(theory.label(proof.rule), "", &goal, &ops).unwrap();
        assert!(theory.database().find(&label).is_none());
    }
    assert!(!path.exists(), "the file must not exist before it is finished");
    assert_eq!(exporter.finish().unwrap(), proofs.len() as u64);
    let text = std::fs::read(&path).unwrap();
    let again = Theory::read(&path).unwrap();
    assert_eq!(again.rules().len(), theory.rules().len() + proofs.len());
    assert_eq!(verifiers::metamath_rs(text), Default::default());
    if let Some(verdict) = verifiers::metamath_c(&path) {
        verdict.unwrap();
    }
}

#[test]
fn dummy_variables_get_distinct_conditions() {
    // The proof needs variables that do not occur in the statement.
    let theory = parse(
        "$c ( ) -> wff |- A. setvar = $. $v ph ps x y z $. wph $f wff ph $. wps $f wff ps $.
        vx $f setvar x $. vy $f setvar y $. vz $f setvar z $.
        wi $a wff ( ph -> ps ) $. wal $a wff A. x ph $. weq $a wff x = y $.
        ${ $d x y $. ax-a $a |- ( x = y -> ph ) $. $}
        ${ b.1 $e |- ( x = y -> ph ) $. ax-b $a |- ph $. $}",
    );
    let text = export_one(&theory, end(&theory), "$p |- ( ph -> ph )", "ax-a ax-b");
    assert!(text.contains("$d x y $."), "{text}");
    assert_eq!(verifiers::metamath_rs(text.clone().into_bytes()), Default::default(), "{text}");
}

#[test]
fn hypotheses_and_distinct_pairs_are_exported() {
    let theory = mini();
    let text = export_one(&theory, end(&theory), "$d x ph $e |- ph $p |- A. x ( ps -> ph )", "h1 a1i ax-gen");
    assert!(text.contains("sgs-one.1 $e |- ph $.") && text.contains("$d ph x $."), "{text}");
    assert_eq!(verifiers::metamath_rs(text.into_bytes()), Default::default());
}

#[test]
fn variables_of_inner_scopes_are_redeclared() {
    let theory = parse(
        "$c ( ) -> wff |- $. ${ $v ph ps $. lph $f wff ph $. lps $f wff ps $.
        wi $a wff ( ph -> ps ) $. ax-1 $a |- ( ph -> ( ps -> ph ) ) $.
        t $p |- ( ps -> ( ph -> ps ) ) $= lps lph ax-1 $. $}
        $v ps $. gps $f wff ps $.",
    );
    let proofs = theorem_proofs(&theory, 60);
    let goal = Goal::of_rule(&theory, proofs[0].rule).unwrap();
    let ops = Judge::new().prove(&theory, &goal, &proofs[0].steps, ProofLimits::default()).unwrap();
    let block = theorem_block(&theory, &goal, &ops, "sgs-t", "").unwrap();
    assert!(block.contains("$v ph $.") && block.contains("sgs-t.f1 $f wff ph $."), "{block}");
    assert!(!block.contains("$v ps $."), "{block}");
    let mut text = theory.database().text();
    text.extend_from_slice(block.as_bytes());
    assert_eq!(verifiers::metamath_rs(text), Default::default(), "{block}");
}

#[test]
fn generated_labels_are_unique() {
    let theory = parse("$c wff |- sgs-b $. $v ph $. wph $f wff ph $. sgs-a $a |- ph $. sgs-c.1 $a |- ph $. ");
    let mut labels = FreshLabels::new(&theory);
    assert_eq!(labels.next("a"), "sgs-a_2");
    assert_eq!(labels.next("b"), "sgs-b_2");
    assert_eq!(labels.next("c"), "sgs-c_2");
    assert_eq!(labels.next("d"), "sgs-d");
    assert_eq!(labels.next("d"), "sgs-d_2");
    assert_eq!(labels.next("e.1 $= é"), "sgs-e_1_____");
    assert!(labels.next(&"x".repeat(10_000)).len() < 100);
}

#[test]
fn a_database_with_an_outermost_hypothesis_is_rejected() {
    let theory = parse("$c wff |- $. $v ph $. wph $f wff ph $. oops $e |- ph $.");
    let folder = tempfile::tempdir().unwrap();
    let error = Exporter::create(&theory, &folder.path().join("x.mm")).err().unwrap();
    assert!(matches!(error, ExportError::OuterHypothesis { ref label } if label == "oops"), "{error}");
}

#[test]
fn inclusions_are_replaced_by_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("main.mm", "$( $[ not this $] $) $[ one.mm $] $[ two.mm $] ax $a |- ph $. $[ one.mm $]");
    write("one.mm", "$c wff |- $. $v ph $.");
    write("two.mm", "$[ one.mm $] wph $f wff ph $.");
    let database = Database::read(&folder.path().join("main.mm")).unwrap();
    let text = database.text();
    let again = Database::parse("flat.mm", text).unwrap();
    let labels: Vec<&str> = again.statements().iter().map(|s| &*s.label).collect();
    assert_eq!(labels, ["wph", "ax"]);
}

#[test]
fn an_unfinished_export_leaves_no_files() {
    let theory = mini();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.mm");
    drop(Exporter::create(&theory, &path).unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let missing = folder.path().join("no such folder/out.mm");
    assert!(Exporter::create(&theory, &missing).err().unwrap().to_string().contains("cannot write"));
}

/// Exports a term that is saved 140 times and recalled by its last number. If all saves were written, its number would
/// be about 150, and the `metamath` program would mistake the proof for one in an obsolete format.
#[test]
fn a_proof_with_many_saved_terms_passes_the_metamath_program() {
    const MORE: u32 = 139;
    let theory = mini();
    let mut judge = Judge::new();
    let mut proofs = theorem_proofs(&theory, 60).into_iter().filter_map(|proof| {
        let goal = Goal::of_rule(&theory, proof.rule).unwrap();
        let ops = judge.prove(&theory, &goal, &proof.steps, ProofLimits::default()).unwrap();
        // The proof has a single saved term and few labels.
        let saves = ops.iter().filter(|op| **op == ProofOp::Save).count();
        (saves == 1 && ops.contains(&ProofOp::Recall(0)) && ops.len() < 25).then_some((goal, ops))
    });
    let (goal, ops) = proofs.next().unwrap();
    let mut many = Vec::new();
    for op in ops {
        match op {
            ProofOp::Save => many.extend(std::iter::repeat_n(ProofOp::Save, 1 + MORE as usize)),
            ProofOp::Recall(n) => many.push(ProofOp::Recall(n + MORE)),
            other => many.push(other),
        }
    }
    let block = theorem_block(&theory, &goal, &many, "sgs-many", "").unwrap();
    let mut text = theory.database().text();
    text.extend_from_slice(block.as_bytes());
    assert_eq!(verifiers::metamath_rs(text.clone()), Default::default(), "{block}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.mm");
    std::fs::write(&path, text).unwrap();
    if let Some(verdict) = verifiers::metamath_c(&path) {
        verdict.unwrap();
    }
}

/// Exports every proof of `set.mm` with zero, one and two additional hypotheses, which change the numbers of the
/// compressed proof.
#[test]
#[ignore = "takes two minutes: a hundred thousand proofs of set.mm, checked by the `metamath` program"]
fn a_hundred_thousand_exported_proofs_pass_the_metamath_program() {
    let Some(path) = verifiers::debian("set.mm") else { return };
    let theory = Theory::read(&path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.mm");
    let mut exporter = Exporter::create(&theory, &path).unwrap();
    let mut judge = Judge::new();
    for proof in theorem_proofs(&theory, 400) {
        for more in 0..3 {
            let mut statement = proof.statement.clone();
            let mut hypotheses = statement.hypotheses.into_vec();
            hypotheses.extend(std::iter::repeat_n(statement.conclusion.clone(), more));
            statement.hypotheses = hypotheses.into();
            let goal = Goal::in_place_of(&theory, proof.rule, &statement).unwrap();
            let Ok(ops) = judge.prove(&theory, &goal, &proof.steps, ProofLimits::default()) else {
                continue;
            };
            exporter.add(theory.label(proof.rule), "", &goal, &ops).unwrap();
        }
    }
    let exported = exporter.finish().unwrap();
    let Some(verdict) = verifiers::metamath_c(&path) else { return };
    verdict.unwrap_or_else(|text| {
        let errors: Vec<&str> = text.lines().filter(|line| line.starts_with('?')).take(20).collect();
        panic!("of {exported}: {}", errors.join("\n"))
    });
    println!("{exported} exported proofs pass the `metamath` program");
    assert!(exported >= 100_000, "{exported}");
}
