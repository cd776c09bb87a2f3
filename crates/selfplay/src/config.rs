//! The algorithm's configuration. The defaults are the paper's values.

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sgs_keys::{Allowed, FixedDomain, InvalidValue, KeyTable, above, at_least};
use std::fmt;
use std::num::NonZeroU32;

sgs_keys::table! {
    /// The algorithm's configuration. The default is SGS as the paper describes it; `docs/fidelity.md` lists where the
    /// paper and its code differ.
    #[derive(Clone, Debug, PartialEq)]
    pub struct AlgorithmConfig {
        /// k: rollouts sampled per problem in each round.
        pub rollouts_per_problem: u32 = 8, in 1..=1024,
        /// Sampling temperature of all roles (paper: 1). Top-p and top-k are never used.
        pub temperature: f64 = 1.0, in above(0.0).at_most(2.0),
        /// Use one set of weights for Solver and Conjecturer, trained on the examples of both.
        pub tied_weights: bool = false,
        /// Selection of each round's targets.
        pub batch: BatchConfig,
        /// Training of the Solver.
        pub solver: SolverConfig,
        /// How conjectures are requested, rewarded and trained on.
        pub conjecturer: ConjecturerConfig,
        /// How conjectures are reviewed.
        pub guide: GuideConfig,
        /// Penalties for length and forbidden tactics.
        pub penalties: PenaltyConfig,
        /// Adam and the passes over a round's examples.
        pub optimizer: OptimizerConfig,
    }
}

sgs_keys::table! {
    /// Selection of each round's targets.
    #[derive(Clone, Debug, PartialEq)]
    pub struct BatchConfig {
        /// Targets per round, drawn without replacement in each epoch.
        pub size: BatchSize = BatchSize::All,
        /// Number of stored proofs after which a target is no longer sampled; 0: never; beyond the paper. Expert iteration
        /// uses solver.proofs_cap instead, which also bounds this value.
        pub retire_after: u32 = 0, in 0..=1_000_000,
        /// Fraction of a round's retired targets that are still sampled, drawn by the run's seed, so that the Solver
        /// does not forget them; beyond the paper.
        pub rehearsed_share: f64 = 0.0, in at_least(0.0).at_most(1.0),
        /// How epochs are shuffled: by the run's seed, or as in the paper's code.
        pub order: EpochOrder = EpochOrder::Hashed,
    }
}

/// Targets per round. Written `"all"` or a positive number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSize {
    /// The whole data set in each round (paper, §4.1).
    All,
    /// This many targets.
    Count(NonZeroU32),
}

sgs_keys::choice! {
    /// How epochs are shuffled.
    pub enum EpochOrder {
        /// By the run's seed.
        Hashed = "hashed",
        /// As in the paper's code: CPython's shuffle, seeded with 42 + epoch.
        Reference = "reference",
    }
}

sgs_keys::table! {
    /// Training of the Solver.
    #[derive(Clone, Debug, PartialEq)]
    pub struct SolverConfig {
        /// Whether the Solver is trained; false means sampling only.
        pub train: bool = true,
        /// Objective of the Solver.
        pub objective: Objective = Objective::ReinforceHalf,
        /// Which problems the Solver is trained on; auto: the objective's default rule.
        pub selection: Selection = Selection::Auto,
        /// Denominator of the REINFORCE loss: each sequence's length (paper), or the batch's tokens (its code).
        pub loss_normalisation: LossNormalisation = LossNormalisation::Sequence,
        /// Learning rate of the Solver.
        pub learning_rate: f64 = 3e-6, in above(0.0).below(1.0),
        /// Share of the run's limit `generations`, at its end, over which the learning rate falls linearly to zero; 0:
        /// constant; beyond the paper.
        pub decay_share: f64 = 0.0, in at_least(0.0).at_most(1.0),
        /// CISPO: lower clipping bound of importance weights is 1 - clip_low.
        pub clip_low: f64 = 1.0, in at_least(0.0).at_most(1.0),
        /// CISPO: upper clipping bound of importance weights is 1 + clip_high.
        pub clip_high: f64 = 3.0, in at_least(0.0).at_most(1e6),
        /// CISPO: added to the standard deviation of a group's rewards before division.
        pub advantage_epsilon: f64 = 1e-6, in at_least(0.0).at_most(1.0),
        /// Maximum number of stored proofs per target. Expert iteration does not sample a target that has reached it.
        pub proofs_cap: u32 = 16, in 1..=1_000_000,
        /// Expert iteration: number of most recent rounds, including the current one, whose proofs are trained on.
        pub window: u32 = 3, in 1..=1000,
        /// Expert iteration: whether to store a proof only if it is not stored yet.
        pub distinct_proofs: bool = false,
        /// Whether only the first of several equal proofs of a problem is trained on in a round; beyond the paper.
        pub distinct_examples: bool = false,
        /// Maximum share of proofs of conjectures among a round's examples; 1: no limit; beyond the paper.
        pub conjecture_share: f64 = 1.0, in at_least(0.0).at_most(1.0),
        /// Maximum solve rate of a conjecture that is trained on; 1: no limit; beyond the paper.
        pub conjecture_max_rate: f64 = 1.0, in above(0.0).at_most(1.0),
        /// Maximum number of repairs of a rollout whose proof is refused. The prompt of a repair shows that proof and the
        /// checker's error. Each repair is a generation; the last one decides the rollout. Beyond the paper.
        pub repair_turns: u32 = 0, in 0..=4,
        /// Weight of the entropy bonus (nats per token) in the loss; beyond the paper.
        pub entropy_bonus: f64 = 0.0, in at_least(0.0).at_most(10.0),
        /// Weight of the KL divergence from the base model (nats per token) in the loss; beyond the paper.
        pub kl_coefficient: f64 = 0.0, in at_least(0.0).at_most(10.0),
    }
}

sgs_keys::choice! {
    /// Objective of the Solver (paper, Appendix G).
    pub enum Objective {
        /// Log-likelihood of proved rollouts.
        Reinforce = "reinforce",
        /// Log-likelihood of proved rollouts of problems with a solve rate of at most 1/2.
        ReinforceHalf = "reinforce-half",
        /// Log-likelihood of the stored proofs of recent rounds.
        ExpertIteration = "expert-iteration",
        /// Clipped importance weights times group advantages.
        Cispo = "cispo",
    }
}

impl Objective {
    /// Returns whether the rollouts of a problem are trained on together, as a group.
    pub fn is_grouped(self) -> bool {
        match self {
            Objective::Cispo => true,
            Objective::Reinforce | Objective::ReinforceHalf | Objective::ExpertIteration => false,
        }
    }

    /// Returns whether stored proofs of recent rounds are trained on, instead of this round's rollouts of targets.
    pub fn is_stored(self) -> bool {
        match self {
            Objective::ExpertIteration => true,
            Objective::Reinforce | Objective::ReinforceHalf | Objective::Cispo => false,
        }
    }

    /// Returns the objective's default selection rule.
    pub fn selection(self) -> Selection {
        match self {
            Objective::Reinforce => Selection::All,
            Objective::ReinforceHalf => Selection::Hard,
            Objective::ExpertIteration => Selection::FewProofs,
            Objective::Cispo => Selection::Mixed,
        }
    }
}

sgs_keys::choice! {
    /// Which problems the Solver is trained on. Names from the paper's code are in parentheses.
    pub enum Selection {
        /// The rule of the objective ([`Objective::selection`]).
        Auto = "auto",
        /// Solved at least once: s > 0 (`all`).
        All = "all",
        /// Solved in at most half of the rollouts: 0 < s <= 1/2 (`hard`).
        Hard = "hard",
        /// Targets not solved in any earlier round, and all conjectures: s > 0 (`unsolved`).
        Unsolved = "unsolved",
        /// Solved in some but not all rollouts: 0 < s < 1 (`all_none_0_1`).
        Mixed = "mixed",
        /// Samples targets with fewer stored proofs than the cap and trains on the store (`less_16_proofs`).
        FewProofs = "few-proofs",
    }
}

sgs_keys::choice! {
    /// Denominator of a weighted log-likelihood.
    pub enum LossNormalisation {
        /// Each sequence is divided by its own length, the batch by its number of sequences (paper, eq. of Appendix G.1).
        Sequence = "sequence",
        /// The batch is divided by its number of generated tokens (the paper's code).
        Token = "token",
    }
}

sgs_keys::table! {
    /// How conjectures are requested, rewarded and trained on.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ConjecturerConfig {
        /// Whether conjectures are requested at all.
        pub on: bool = true,
        /// Whether the Conjecturer remains the base model.
        pub frozen: bool = false,
        /// Conjectures per unsolved target in each round.
        pub conjectures_per_target: u32 = 1, in 1..=64,
        /// Share of the unsolved targets that a round requests conjectures for, drawn by the run's seed; 1: all (paper).
        pub target_share: f64 = 1.0, in above(0.0).at_most(1.0),
        /// How conjectures are made: statement (the model writes it; paper), proof (the most general statement of a proof that
        /// the model writes), attempt (that of a part of a failed rollout), or composed (by a program).
        pub form: ConjectureForm = ConjectureForm::Statement,
        /// Further conjectures per unsolved target that are parts of its failed rollouts; ignored by form attempt.
        pub attempts_per_target: u32 = 0, in 0..=64,
        /// Minimum number of steps of the part of a failed rollout that becomes a conjecture.
        pub attempt_min_steps: u32 = 1, in 1..=1_000_000,
        /// Theorems that the form composed yields: of random rules, or nested congruences as in the set congruence.
        pub composed_kind: ComposedKind = ComposedKind::Random,
        /// Minimum number of steps of a composed proof.
        pub composed_min_steps: u32 = 2, in 1..=24,
        /// Maximum number of steps of a composed proof.
        pub composed_max_steps: u32 = 24, in 1..=24,
        /// Content of the Conjecturer's prompt: an unsolved target, a solved problem with its proof, or neither.
        pub conditioning: Conditioning = Conditioning::Target,
        /// Reward of a conjecture: R_solve x R_guide, or STP's rule (1 if barely provable).
        pub rule: ConjectureRule = ConjectureRule::Sgs,
        /// Population whose top 30% of solve rates are too easy: rates strictly between 0 and 1, or all rates.
        pub rate_population: RatePopulation = RatePopulation::Interior,
        /// Fraction of these rates, from the lowest up, that are not too easy (paper: 0.7).
        pub hardest_fraction: f64 = 0.7, in above(0.0).at_most(1.0),
        /// Maximum solve rate of a conjecture that earns a reward; 1: no limit; beyond the paper.
        pub max_solve_rate: f64 = 1.0, in above(0.0).at_most(1.0),
        /// A conjecture whose shortest proof has fewer steps is trivial: it earns no reward and is not trained on;
        /// 0: off; beyond the paper.
        pub min_proof_steps: u32 = 0, in 0..=1_000_000,
        /// Whether to reject a conjecture that is equivalent to a theorem available in its context; beyond the paper.
        pub refuse_known: bool = false,
        /// Whether to reject a conjecture that was a problem of an earlier round; beyond the paper.
        pub refuse_seen: bool = false,
        /// Conjectures that are unsolved or too easy: train on them with reward 0 (paper), or leave them out (its code).
        pub unselected: UnrewardedHandling = UnrewardedHandling::Zero,
        /// Completions without a well-formed conjecture: train on them with reward 0, or leave them out (the paper's code).
        pub malformed: UnrewardedHandling = UnrewardedHandling::Zero,
        /// Normalised value if all rewards are equal: 1 if positive and 0 otherwise, or always 1 (the paper's code).
        pub normalisation: Normalisation = Normalisation::Positive,
        /// Denominator of the REINFORCE loss, as for the Solver.
        pub loss_normalisation: LossNormalisation = LossNormalisation::Sequence,
        /// Constant learning rate of the Conjecturer.
        pub learning_rate: f64 = 3e-6, in above(0.0).below(1.0),
        /// Parameters of STP.
        pub stp: StpConfig,
    }
}

sgs_keys::choice! {
    /// How conjectures are made. All forms but the first are beyond the paper, and need a formal system that supports them.
    pub enum ConjectureForm {
        /// The Conjecturer writes a statement (paper, §3.1).
        Statement = "statement",
        /// The Conjecturer writes a proof. The most general statement that it proves is the conjecture.
        Proof = "proof",
        /// The conjectures are parts of the last round's failed rollouts of the target: the most general statement that the
        /// largest valid part of each proves. Nothing is sampled or learned.
        Attempt = "attempt",
        /// A program composes a theorem at random. Nothing is learned.
        Composed = "composed",
    }
}

sgs_keys::choice! {
    /// A kind of composed theorems.
    pub enum ComposedKind {
        /// Theorems of random rules.
        Random = "random",
        /// Nested congruences: if two parts are equal or equivalent, so are two expressions that contain them.
        Congruence = "congruence",
    }
}

sgs_keys::choice! {
    /// Content of the Conjecturer's prompt.
    pub enum Conditioning {
        /// An unsolved target (paper, §3.1).
        Target = "target",
        /// A solved problem with its proof (STP).
        Solved = "solved",
        /// Neither; there is still one conjecture per unsolved target (paper, §4.4).
        None = "none",
    }
}

sgs_keys::choice! {
    /// How conjectures are rewarded.
    pub enum ConjectureRule {
        /// R_solve · R_guide (paper, §3.2).
        Sgs = "sgs",
        /// 1 for barely provable conjectures whose proof is not short relative to the statement, 0 for others (Dong and Ma 2025).
        Stp = "stp",
    }
}

impl ConjectureRule {
    /// Returns whether the reward contains the Guide's score.
    pub fn has_guide(self) -> bool {
        match self {
            Self::Sgs => true,
            Self::Stp => false,
        }
    }

    /// Returns whether the rewards of a round are normalised (`conjecturer.normalisation`).
    pub fn is_normalised(self) -> bool {
        match self {
            Self::Sgs => true,
            Self::Stp => false,
        }
    }
}

sgs_keys::choice! {
    /// Population whose top 30% of solve rates are too easy.
    pub enum RatePopulation {
        /// Rates strictly between 0 and 1 (the paper's code).
        Interior = "interior",
        /// Rates of all conjectures of the round (a literal reading of the paper).
        All = "all",
    }
}

sgs_keys::choice! {
    /// How conjectures without a reward are handled.
    pub enum UnrewardedHandling {
        /// Train on them with reward 0 and include them in the normalisation (paper).
        Zero = "zero",
        /// Leave them out of both (the paper's code).
        Dropped = "dropped",
    }
}

sgs_keys::choice! {
    /// How equal rewards are normalised.
    pub enum Normalisation {
        /// 1 if they are positive, 0 otherwise.
        Positive = "positive",
        /// Always 1 (the paper's code).
        Reference = "reference",
    }
}

sgs_keys::table! {
    /// Parameters of STP (Dong and Ma 2025, and their code).
    #[derive(Clone, Debug, PartialEq)]
    pub struct StpConfig {
        /// STP: a conjecture is barely provable if its solve rate is above 0 and below this value.
        pub max_rate: f64 = 0.25, in above(0.0).at_most(1.0),
        /// STP: share of the barely provable conjectures, those with the shortest proofs for their length, that is left out.
        pub elegance_cut: f64 = 0.2, in at_least(0.0).below(1.0),
        /// STP: conjectures are requested only for solved targets whose best solve rate of any round is above this value.
        pub min_seed_rate: f64 = 0.35, in at_least(0.0).below(1.0),
        /// STP: whether to weight the selected conjectures so that their distribution matches that of the unsolved targets in
        /// the Conjecturer's embedding space (on in method stp); otherwise all weights are 1.
        pub reweight: bool = false,
        /// STP: weight at which a conjecture is matched to no further targets.
        pub max_weight: f64 = 4.0, in at_least(1.0).at_most(1e6),
    }
}

sgs_keys::table! {
    /// How conjectures are reviewed.
    #[derive(Clone, Debug, PartialEq)]
    pub struct GuideConfig {
        /// Whether there is a Guide; without one, R_guide is 1.
        pub on: bool = true,
        /// Source of the scores: reviews by a language model (paper), or a formula (symbols shared with the target, length,
        /// depth).
        pub kind: GuideKind = GuideKind::Model,
        /// Which conjectures are reviewed: all (paper), or those with a positive R_solve (its code).
        pub scope: GuideScope = GuideScope::All,
        /// Reviews per conjecture (paper: 1). R_guide is the mean of their scores, an estimate of the expected score over
        /// the Guide's completions.
        pub samples: u32 = 1, in 1..=64,
        /// Number of malformed reviews per conjecture that are sampled again.
        pub resamples: u32 = 1, in 0..=16,
        /// Minimum fraction of readable reviews. Before the first round, 64 reviews are sampled; if fewer of them can be
        /// read, the run stops. 0 turns the check off.
        pub min_readable: f64 = 0.8, in at_least(0.0).at_most(1.0),
        /// Score of a conjecture whose reviews were all malformed: 0, or the mean over the round's other conjectures (the
        /// paper's code).
        pub malformed: MalformedReview = MalformedReview::Zero,
    }
}

sgs_keys::choice! {
    /// Source of a conjecture's R_guide.
    pub enum GuideKind {
        /// A language model (paper, §3.2).
        Model = "model",
        /// The formal system: overlap with the target's symbols, and similarity in length.
        Rubric = "rubric",
    }
}

sgs_keys::choice! {
    /// Which conjectures are reviewed.
    pub enum GuideScope {
        /// Every conjecture, as soon as it is accepted (paper, Algorithm 1).
        All = "all",
        /// Only those with R_solve > 0, once all are judged (the paper's code).
        Selected = "selected",
    }
}

sgs_keys::choice! {
    /// Score of a conjecture whose reviews were all malformed.
    pub enum MalformedReview {
        /// R_guide is 0.
        Zero = "zero",
        /// R_guide is the mean over the round's other conjectures, 0 if there are none (the paper's code).
        Mean = "mean",
    }
}

sgs_keys::table! {
    /// Penalties for length and forbidden tactics.
    #[derive(Clone, Debug, PartialEq)]
    pub struct PenaltyConfig {
        /// Whether long completions of the Solver and the Conjecturer get a negative reward.
        pub length: bool = true,
        /// Tokens that count towards the context window: prompt and completion (paper), or only the completion (its code).
        pub length_scope: LengthScope = LengthScope::ContextWindow,
        /// Share of the context window at which the length penalty begins.
        pub length_start: f64 = 0.8, in at_least(0.0).below(1.0),
        /// Whether the length penalty applies to unproved rollouts under REINFORCE (paper: yes; its code: no).
        pub length_of_unproved: bool = true,
        /// Whether a proof with a forbidden tactic (Lean's try) earns no reward.
        pub forbidden_tactics: bool = true,
        /// Maximum length, in characters, of a proof that earns a reward; 0: no limit.
        pub max_proof_characters: u32 = 0, in 0..=u64::from(u32::MAX),
        /// STP: rate in a proof's weight, exp(-rate x characters); 0: off.
        pub short_proof_rate: f64 = 0.0, in at_least(0.0).at_most(1.0),
    }
}

sgs_keys::choice! {
    /// Tokens that count towards the context window.
    pub enum LengthScope {
        /// Prompt and completion (paper, §4.1).
        ContextWindow = "context-window",
        /// Only the completion (the paper's code).
        GeneratedTokens = "generated-tokens",
    }
}

sgs_keys::table! {
    /// Adam and the passes over a round's examples.
    #[derive(Clone, Debug, PartialEq)]
    pub struct OptimizerConfig {
        /// Sequences per optimizer step.
        pub batch_size: u32 = 32, in 1..=1 << 20,
        /// Passes over a round's examples.
        pub epochs: u32 = 1, in 1..=100,
        /// Adam's decay of the first moment.
        pub beta1: f64 = 0.9, in at_least(0.0).below(1.0),
        /// Adam's decay of the second moment.
        pub beta2: f64 = 0.95, in at_least(0.0).below(1.0),
        /// Adam's epsilon.
        pub epsilon: f64 = 1e-8, in above(0.0).at_most(1.0),
        /// Decoupled weight decay per step, relative to the learning rate.
        pub weight_decay: f64 = 0.0, in at_least(0.0).at_most(1.0),
        /// Maximum global gradient norm; 0: no clipping.
        pub clip_norm: f64 = 1.0, in at_least(0.0).at_most(1e6),
        /// Whether Adam's state is reset in each round (the paper's code).
        pub reset_each_round: bool = false,
    }
}

impl AlgorithmConfig {
    /// Returns this configuration with the paper's text also where the defaults follow its code (`docs/fidelity.md`).
    ///
    /// The population of solve rates stays that of the code. With all rates, a round in which most conjectures are unsolved
    /// would not train the Conjecturer.
    pub fn with_text_choices(mut self) -> Self {
        if self.solver.objective == Objective::Cispo {
            self.solver.selection = Selection::All;
            self.solver.advantage_epsilon = 0.0;
        }
        self
    }

    /// Returns this configuration with the choices of the paper's code wherever they differ from the defaults (`docs/fidelity.md`).
    pub fn with_code_choices(mut self) -> Self {
        self.solver.selection = Selection::Auto;
        self.solver.advantage_epsilon = 1e-6;
        self.batch.order = EpochOrder::Reference;
        self.solver.loss_normalisation = LossNormalisation::Token;
        self.conjecturer.loss_normalisation = LossNormalisation::Token;
        self.conjecturer.rate_population = RatePopulation::Interior;
        self.conjecturer.unselected = UnrewardedHandling::Dropped;
        self.conjecturer.malformed = UnrewardedHandling::Dropped;
        self.conjecturer.normalisation = Normalisation::Reference;
        self.guide.scope = GuideScope::Selected;
        self.guide.resamples = 0;
        self.guide.malformed = MalformedReview::Mean;
        self.penalties.length_scope = LengthScope::GeneratedTokens;
        self.penalties.length_of_unproved = false;
        self.optimizer.clip_norm = 0.0;
        self.optimizer.reset_each_round = true;
        if self.solver.objective.is_grouped() || self.solver.objective.is_stored() {
            self.optimizer.batch_size = 64;
        }
        self
    }
}

impl ConjecturerConfig {
    /// Returns whether a model samples conjectures. Failed rollouts are samples of the Solver.
    pub fn is_sampled(&self) -> bool {
        self.on && !matches!(self.form, ConjectureForm::Attempt | ConjectureForm::Composed)
    }

    /// Returns the maximum number of conjectures per unsolved target and round that are parts of failed rollouts.
    pub fn derived_per_target(&self) -> u32 {
        match (self.on, self.form) {
            (false, _) => 0,
            (true, ConjectureForm::Attempt) => self.conjectures_per_target,
            (true, _) => self.attempts_per_target,
        }
    }

    /// Returns whether a model samples conjectures and is trained on them.
    pub fn is_trained(&self) -> bool {
        self.is_sampled() && !self.frozen
    }

    /// Returns whether conjectures are weighted by the similarity of their statements to unsolved targets.
    pub fn is_reweighted(&self) -> bool {
        self.on && self.rule == ConjectureRule::Stp && self.stp.reweight
    }
}

impl SolverConfig {
    /// Returns the selection rule in effect: that of the objective under [`Selection::Auto`], which is never returned.
    pub fn effective_selection(&self) -> Selection {
        match self.selection {
            Selection::Auto => self.objective.selection(),
            explicit => explicit,
        }
    }
}

fn require(
    holds: bool,
    key: &'static str,
    value: impl fmt::Display,
    expected: &'static str,
) -> Result<(), InvalidValue> {
    if holds {
        Ok(())
    } else {
        Err(InvalidValue { key: key.into(), value: value.to_string(), expected: expected.into() })
    }
}

impl AlgorithmConfig {
    /// Checks the ranges of all keys and the combinations of keys.
    ///
    /// # Errors
    /// Returns an error with the first key that is out of range or does not fit another.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        self.check("")?;
        self.check_solver()?;
        self.check_conjecturer()?;
        self.check_penalties()
    }

    fn check_solver(&self) -> Result<(), InvalidValue> {
        let s = &self.solver;
        let few_proofs = s.effective_selection() == Selection::FewProofs;
        let expected = "expert-iteration if and only if the selection is few-proofs (or auto)";
        let stored = s.objective.is_stored();
        require(few_proofs == stored, "solver.objective", format!("{:?}", s.objective), expected)?;
        let retire_after = self.batch.retire_after;
        let expected = "at most solver.proofs_cap, the maximum number of stored proofs";
        require(retire_after <= s.proofs_cap, "batch.retire_after", retire_after, expected)?;
        let k = self.rollouts_per_problem;
        let groups = !s.objective.is_grouped() || k >= 2;
        require(groups, "rollouts_per_problem", k, "at least 2 with the objective cispo")
    }

    fn check_conjecturer(&self) -> Result<(), InvalidValue> {
        let c = &self.conjecturer;
        let guided = self.guide.on;
        let expected = "false when conjecturer.on is false (nothing to review)";
        require(c.on || !guided, "guide.on", guided, expected)?;
        let expected = "false if conjecturer.rule is stp or another one without a Guide";
        require(c.rule.has_guide() || !guided, "guide.on", guided, expected)?;
        let tied = !self.tied_weights || !c.frozen;
        require(
            tied,
            "conjecturer.frozen",
            c.frozen,
            "false when tied_weights is true (the roles share one model)",
        )?;
        require(
            c.composed_min_steps <= c.composed_max_steps,
            "conjecturer.composed_min_steps",
            c.composed_min_steps,
            "at most composed_max_steps",
        )
    }

    fn check_penalties(&self) -> Result<(), InvalidValue> {
        let p = &self.penalties;
        let kinds = [p.length, p.max_proof_characters > 0, p.short_proof_rate > 0.0];
        let many = kinds.iter().filter(|&&on| on).count();
        let expected = "at most one of length, max_proof_characters and short_proof_rate to be on";
        require(many <= 1, "penalties.length", p.length, expected)
    }
}

impl Serialize for BatchSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            BatchSize::All => serializer.serialize_str("all"),
            BatchSize::Count(count) => serializer.serialize_u32(count.get()),
        }
    }
}

impl<'de> Deserialize<'de> for BatchSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BatchSizeVisitor;

        impl Visitor<'_> for BatchSizeVisitor {
            type Value = BatchSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"all\" or a number of targets between 1 and 4294967295")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<BatchSize, E> {
                if text == "all" {
                    Ok(BatchSize::All)
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(text), &self))
                }
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<BatchSize, E> {
                let count = u32::try_from(number).ok().and_then(NonZeroU32::new);
                count
                    .map(BatchSize::Count)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<BatchSize, E> {
                match u64::try_from(number) {
                    Ok(number) => self.visit_u64(number),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
                }
            }
        }

        deserializer.deserialize_any(BatchSizeVisitor)
    }
}

impl FixedDomain for BatchSize {
    const ALLOWED: Allowed = Allowed::NameOrWhole { name: "all", low: 1, high: u32::MAX as u64 };
}
