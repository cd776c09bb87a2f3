//! The columns of a round's tables that figures and examples need. Other columns are not read.

use sgs_rundir::rows::{ConjectureRowStatus, ProblemKind};
use sgs_rundir::table_row;
use sgs_selfplay::{ProblemId, Verdict};
use std::sync::Arc;

table_row! {
    /// Columns of a problem that change from round to round.
    pub(super) struct ProblemTally {
        pub id: ProblemId,
        pub kind: ProblemKind,
        pub judged: u32,
        pub proved: u32,
    }
}

table_row! {
    /// Columns of a problem that are constant.
    pub(super) struct ProblemText {
        pub id: ProblemId,
        pub kind: ProblemKind,
        pub statement: Arc<str>,
        pub context: Arc<str>,
    }
}

table_row! {
    pub(super) struct ConjectureScores {
        pub r_solve: Option<f64>,
        pub r_guide: Option<f64>,
        pub review_failed: bool,
    }
}

table_row! {
    pub(super) struct ConjectureText {
        pub id: ProblemId,
        pub target: ProblemId,
        pub status: ConjectureRowStatus,
        pub statement: Option<Arc<str>>,
        pub text: String,
        pub solve_rate: Option<f64>,
        pub r_solve: Option<f64>,
        pub r_guide: Option<f64>,
        pub r_synth: Option<f64>,
    }
}

table_row! {
    pub(super) struct ReviewText {
        pub conjecture: ProblemId,
        pub relevance: Option<f64>,
        pub redundancy: Option<f64>,
        pub complexity: Option<f64>,
        pub text: String,
    }
}

table_row! {
    /// A rollout with its proof.
    pub struct ProofText {
        /// The problem.
        pub problem: ProblemId,
        /// The parsed proof in the formal system's canonical text.
        pub proof: Option<Arc<str>>,
        /// The checker's decision.
        pub verdict: Verdict,
    }
}
