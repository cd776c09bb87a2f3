//! The example in Python, through the protocol.

use crate::{problem, settings, start};
use sgs_external::ExternalSettings;
use sgs_formal::{Condition, FormalSystem, Prompt};
use sgs_selfplay::Verdict;

pub(crate) const SEQUENCES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/external/sequences.py");

#[test]
fn relative_paths_of_the_command_begin_at_the_folder() {
    let folder = std::path::Path::new(SEQUENCES).parent().unwrap().to_str().unwrap().to_owned();
    let relative = settings(&["python3", "sequences.py"]);
    assert!(start(relative.clone()).is_err());
    assert_eq!(start(ExternalSettings { folder, ..relative }).unwrap().identity(), "external: sequences 1");
}

#[test]
fn the_example_reads_and_verifies() {
    let system = start(settings(&["python3", SEQUENCES])).unwrap();
    assert_eq!(system.identity(), "external: sequences 1");
    let squares = problem("0 1 4 9 16 25 36 49");
    let prompt = Prompt::Raw("<solver> 0 1 4 9 16 25 36 49 <program>".to_owned());
    assert_eq!(system.solver_prompt(&squares), prompt);
    assert_eq!(system.read_proof(&squares, " n  dup * <end>").unwrap(), "n dup *");
    assert_eq!(system.read_proof(&squares, "n squared").unwrap_err().kind, "unknown-word");
    let conjecture = system.read_conjecture(Condition::Target(&squares), "p 3 *").unwrap();
    assert_eq!(&*conjecture.statement, "3 9 27 81 43 29 87 61");
    assert_eq!(system.read_conjecture(Condition::Target(&squares), "+").unwrap_err().kind, "fails");
    let guide = system.guide_prompt(&squares, &problem(&conjecture.statement));
    assert!(
        matches!(guide, Prompt::Raw(text) if text.ends_with("<conjecture> 3 9 27 81 43 29 87 61 <review>"))
    );
    let review = system.read_review("5 0 9").unwrap();
    assert_eq!((review.relevance, review.redundancy, review.complexity), (5.0, 0.0, 4.0));
    assert_eq!(system.read_review("good").unwrap_err().kind, "no-scores");
    let proofs = ["n dup *", "n n *", "n", "n 0 /"].repeat(20);
    let judged = system.verify_all(&squares, &proofs);
    let verdicts: Vec<Verdict> = judged.iter().map(|j| j.verdict).collect();
    assert_eq!(verdicts, [Verdict::Proved, Verdict::Proved, Verdict::Refused, Verdict::Refused].repeat(20));
    assert_eq!((judged[2].reason.as_str(), judged[2].step), ("term 2 is 2, expected 4", Some(3)));
}
