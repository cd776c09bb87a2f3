//! The columns of a round's tables that figures and examples need. Other columns are not read.

use sgs_rundir::rows::{ConjectureRowStatus, ProblemKind};
use sgs_rundir::table_row;
use sgs_selfplay::{Features, ProblemId, Verdict};
use std::sync::Arc;

table_row! {
    /// Columns of a problem that change from round to round.
    pub(super) struct ProblemTally {
        /// Name.
        pub id: ProblemId,
        /// Target or conjecture.
        pub kind: ProblemKind,
        /// Rollouts with a verdict.
        pub judged: u32,
        /// Rollouts with a proof.
        pub proved: u32,
        /// The target of a conjecture.
        pub target: Option<ProblemId>,
        /// Whether the Solver is trained on it.
        pub selected: bool,
    }
}

table_row! {
    /// Columns of a problem that are constant.
    pub(super) struct ProblemText {
        /// Name.
        pub id: ProblemId,
        /// Target or conjecture.
        pub kind: ProblemKind,
        /// Canonical statement.
        pub statement: Arc<str>,
        /// Premises that a proof may use.
        pub context: Arc<str>;
        /// Features of the statement.
        pub features: Features
    }
}

table_row! {
    /// The target of a requested conjecture.
    pub(super) struct ConjectureTarget {
        /// The target.
        pub target: ProblemId,
    }
}

table_row! {
    /// A conjecture with its scores.
    pub(super) struct ConjectureScores {
        /// Its name.
        pub id: ProblemId,
        /// Its target.
        pub target: ProblemId,
        /// Its status.
        pub status: ConjectureRowStatus,
        /// The reason for the status.
        pub reason: String,
        /// Its statement.
        pub statement: Option<Arc<str>>,
        /// Its solve rate.
        pub solve_rate: Option<f64>,
        /// `R_solve`.
        pub r_solve: Option<f64>,
        /// `R_guide`.
        pub r_guide: Option<f64>,
        /// Whether all its reviews were malformed.
        pub review_failed: bool,
        /// `R_synth`.
        pub r_synth: Option<f64>,
    }
}

table_row! {
    /// The scores of a review.
    pub(super) struct ReviewScores {
        /// The conjecture.
        pub conjecture: ProblemId,
        /// Relevance.
        pub relevance: Option<f64>,
        /// Redundancy.
        pub redundancy: Option<f64>,
        /// Complexity.
        pub complexity: Option<f64>,
    }
}

table_row! {
    /// A conjecture with its texts.
    pub(super) struct ConjectureText {
        /// Its name.
        pub id: ProblemId,
        /// Its target.
        pub target: ProblemId,
        /// Its status.
        pub status: ConjectureRowStatus,
        /// Its statement.
        pub statement: Option<Arc<str>>,
        /// The completion.
        pub text: String,
        /// Its solve rate.
        pub solve_rate: Option<f64>,
        /// `R_solve`.
        pub r_solve: Option<f64>,
        /// `R_guide`.
        pub r_guide: Option<f64>,
        /// `R_synth`.
        pub r_synth: Option<f64>,
    }
}

table_row! {
    /// A review with its text.
    pub(super) struct ReviewText {
        /// The conjecture.
        pub conjecture: ProblemId,
        /// Relevance.
        pub relevance: Option<f64>,
        /// Redundancy.
        pub redundancy: Option<f64>,
        /// Complexity.
        pub complexity: Option<f64>,
        /// The completion.
        pub text: String,
    }
}

table_row! {
    /// A rollout with its proof.
    pub(super) struct ProofText {
        /// The problem.
        pub problem: ProblemId,
        /// The parsed proof.
        pub proof: Option<Arc<str>>,
        /// The verdict.
        pub verdict: Verdict,
    }
}
