//! Every choice of the algorithm, with the paper's values as defaults.

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::num::NonZeroU32;

/// The algorithm's configuration. The default is SGS as the paper describes it.
///
/// [`FIELDS`] holds the documentation of every key; `docs/fidelity.md` says where the paper and its code differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlgorithmConfig {
    /// k: rollouts sampled for every problem of a round.
    pub rollouts_per_problem: u32,
    /// Sampling temperature of all roles; top-p and top-k are never used.
    pub temperature: f64,
    /// Whether Solver and Conjecturer are one set of weights, trained on the examples of both.
    pub tied_weights: bool,
    /// Which targets a round works on.
    pub batch: BatchConfig,
    /// The Solver's objective.
    pub solver: SolverConfig,
    /// How problems are invented and how that is rewarded.
    pub conjecturer: ConjecturerConfig,
    /// How invented problems are reviewed.
    pub guide: GuideConfig,
    /// Length penalty and forbidden tactics.
    pub penalties: PenaltyConfig,
    /// Adam and the passes over a round's examples.
    pub optimizer: OptimizerConfig,
}

/// Which targets a round works on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchConfig {
    /// All targets, or so many per round, drawn without replacement in each epoch.
    pub size: BatchSize,
    /// How the epochs are shuffled.
    pub order: EpochOrder,
}

/// Targets per round. Written `"all"` or a positive number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSize {
    /// The whole data set in each round (paper, §4.1).
    All,
    /// So many.
    Count(NonZeroU32),
}

/// How the epochs are shuffled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EpochOrder {
    /// By the run's seed.
    Hashed,
    /// As the paper's code does: CPython's shuffle seeded with 42 + epoch.
    Reference,
}

/// The Solver's objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SolverConfig {
    /// Whether the Solver is updated at all.
    pub train: bool,
    /// The objective.
    pub objective: Objective,
    /// Which problems are trained on; `auto` is the objective's own rule.
    pub selection: Selection,
    /// Denominator of the REINFORCE loss.
    pub loss_normalisation: LossNormalisation,
    /// Learning rate, constant.
    pub learning_rate: f64,
    /// CISPO: importance weights are clipped to `1 - clip_low ..= 1 + clip_high`.
    pub clip_low: f64,
    /// See `clip_low`.
    pub clip_high: f64,
    /// CISPO: added to the standard deviation before dividing by it.
    pub advantage_epsilon: f64,
    /// Expert iteration: targets with this many stored proofs are no longer sampled.
    pub proofs_cap: u32,
    /// Expert iteration: proofs of so many last rounds are trained on, this one included.
    pub window: u32,
    /// Expert iteration: whether a proof that is already stored is left out.
    pub distinct_proofs: bool,
    /// Whether of equal proofs of one problem in a round only the first is trained on.
    pub distinct_examples: bool,
    /// Largest share of a round's examples that are proofs of conjectures, `0..=1`.
    pub conjecture_share: f64,
    /// Rollouts of each unsolved target that may cite a conjecture proved for it; 0 is the paper.
    pub lemma_rollouts: u32,
    /// Rounds in which a conjecture may be cited, counted from the one after its proof.
    pub lemma_rounds: u32,
    /// Weight of an entropy bonus in the loss.
    pub entropy_bonus: f64,
    /// Weight of the KL divergence to the base model in the loss.
    pub kl_coefficient: f64,
}

/// What the Solver optimises (paper, Appendix G).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Log-likelihood of proved rollouts.
    Reinforce,
    /// The same for problems with a solve rate of at most one half.
    ReinforceHalf,
    /// Log-likelihood of the stored proofs of the last rounds.
    ExpertIteration,
    /// Clipped importance weights times group advantages.
    Cispo,
}

impl Objective {
    /// Whether rollouts of one problem are trained on together, as a group.
    pub fn is_grouped(self) -> bool {
        self == Objective::Cispo
    }

    /// The objective's own rule of selection.
    pub fn selection(self) -> Selection {
        match self {
            Objective::Reinforce => Selection::All,
            Objective::ReinforceHalf => Selection::Hard,
            Objective::ExpertIteration => Selection::FewProofs,
            Objective::Cispo => Selection::Mixed,
        }
    }
}

/// Which problems the Solver is trained on. The names in the paper's code are in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// The objective's own rule.
    Auto,
    /// Solved at least once: s > 0 (`all`).
    All,
    /// Solved at most half of the time: 0 < s <= 1/2 (`hard`).
    Hard,
    /// Targets never solved in an earlier round, and all conjectures: s > 0 (`unsolved`).
    Unsolved,
    /// Sometimes solved and sometimes not: 0 < s < 1 (`all_none_0_1`).
    Mixed,
    /// Targets with fewer stored proofs than the cap are sampled, the store is trained on (`less_16_proofs`).
    FewProofs,
}

impl Selection {
    /// The rule's name in the paper's code; `None` for [`Selection::Auto`].
    pub fn reference_name(self) -> Option<&'static str> {
        match self {
            Selection::Auto => None,
            Selection::All => Some("all"),
            Selection::Hard => Some("hard"),
            Selection::Unsolved => Some("unsolved"),
            Selection::Mixed => Some("all_none_0_1"),
            Selection::FewProofs => Some("less_16_proofs"),
        }
    }
}

/// Denominator of a weighted log-likelihood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossNormalisation {
    /// Each sequence is divided by its own length, the batch by its number of sequences (paper, eq. of Appendix G.1).
    Sequence,
    /// The batch is divided by its number of generated tokens (the paper's code).
    Token,
}

/// How problems are invented and how that is rewarded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConjecturerConfig {
    /// Whether problems are invented at all.
    pub on: bool,
    /// Whether the Conjecturer stays the base model.
    pub frozen: bool,
    /// Conjectures per unsolved target and round.
    pub conjectures_per_target: u32,
    /// Share of the unsolved targets for which a round invents conjectures, drawn anew in each round.
    pub target_share: f64,
    /// What a conjecture is invented for.
    pub conditioning: Conditioning,
    /// Which conjectures are rewarded.
    pub rule: ConjectureRule,
    /// Which solve rates the top 30 % are the top of.
    pub rate_population: RatePopulation,
    /// Share of the solve rates that is not too easy.
    pub hardest_fraction: f64,
    /// A conjecture solved more often than this earns nothing, whatever the others' rates are.
    pub max_solve_rate: f64,
    /// A conjecture with a proof of fewer inferences than this earns nothing and is not trained on; 0 is no bound.
    pub min_proof_steps: u32,
    /// Whether a conjecture that says what a theorem before its context says is left out.
    pub refuse_known: bool,
    /// Whether a conjecture that was a problem of an earlier round is left out.
    pub refuse_seen: bool,
    /// What becomes of conjectures that are unsolved or too easy.
    pub unselected: Fate,
    /// What becomes of completions without a well-formed conjecture.
    pub malformed: Fate,
    /// How rewards are mapped to `0..=1` when all are equal.
    pub normalisation: Normalisation,
    /// Denominator of the REINFORCE loss.
    pub loss_normalisation: LossNormalisation,
    /// Learning rate, constant.
    pub learning_rate: f64,
    /// STP's own numbers.
    pub stp: StpConfig,
}

/// What a conjecture is invented for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conditioning {
    /// An unsolved target (paper, §3.1).
    Target,
    /// A solved problem and its proof (STP).
    Solved,
    /// Nothing; still one conjecture for each unsolved target (paper, §4.4).
    None,
}

/// Which conjectures are rewarded, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConjectureRule {
    /// R_solve · R_guide (paper, §3.2).
    Sgs,
    /// 1 for barely provable conjectures that are not long for their proofs, nothing for others (Dong and Ma 2025).
    Stp,
}

/// Which solve rates the top 30 % are the top of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RatePopulation {
    /// Those strictly between 0 and 1 (the paper's code).
    Interior,
    /// Those of every conjecture of the round (a literal reading of the paper).
    All,
}

/// What becomes of conjectures that earn nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// They train the Conjecturer with reward 0 and take part in the normalisation (paper).
    Zero,
    /// They are left out of both (the paper's code).
    Dropped,
}

/// How equal rewards are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Normalisation {
    /// All 1 if positive, otherwise all 0.
    Positive,
    /// All 1, even if they are 0 (the paper's code).
    Reference,
}

/// STP's own numbers (Dong and Ma 2025, and their code).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StpConfig {
    /// A conjecture is barely provable if its solve rate is above 0 and below this.
    pub max_rate: f64,
    /// Share of the barely provable conjectures, those with the shortest proofs for their length, that is left out.
    pub elegance_cut: f64,
    /// Only solved targets whose best solve rate in any round is above this become seeds.
    pub min_seed_rate: f64,
}

/// How invented problems are reviewed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuideConfig {
    /// Whether there is a Guide; without it R_guide is 1.
    pub on: bool,
    /// Who it is.
    pub kind: GuideKind,
    /// Which conjectures are reviewed.
    pub scope: GuideScope,
    /// How often a malformed review is sampled again.
    pub resamples: u32,
    /// Score of a conjecture whose reviews were all malformed.
    pub malformed: MalformedReview,
}

/// Who reviews conjectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuideKind {
    /// A language model (paper, §3.2).
    Model,
    /// The formal system: how much a conjecture has of its target's symbols, and how near it is in length.
    Rubric,
}

/// Which conjectures are reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuideScope {
    /// Every conjecture, as soon as it is read (paper, Algorithm 1).
    All,
    /// Those with 0 < R_solve only, once all are judged (the paper's code).
    Selected,
}

/// Score of a conjecture whose reviews were all malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MalformedReview {
    /// R_guide is 0.
    Zero,
    /// R_guide is the mean over the round's well-formed reviews, 0 if there are none (the paper's code).
    Mean,
}

/// Length penalty and forbidden tactics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PenaltyConfig {
    /// Whether long completions of Solver and Conjecturer get a negative reward.
    pub length: bool,
    /// What counts towards the context window.
    pub length_scope: LengthScope,
    /// Share of the window that is free.
    pub length_start: f64,
    /// Whether the penalty also reaches unproved rollouts when the objective is not grouped.
    pub length_of_unproved: bool,
    /// Whether a proof that uses a tactic which the formal system marks (Lean's `try`) earns nothing.
    pub forbidden_tactics: bool,
    /// Proofs with more characters than this earn nothing; 0 is no limit.
    pub max_proof_characters: u32,
    /// STP: a proof's weight is `exp(-rate · characters)`; 0 is off.
    pub short_proof_rate: f64,
}

/// What counts towards the context window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LengthScope {
    /// Prompt and completion (paper, §4.1).
    ContextWindow,
    /// The completion alone (the paper's code).
    GeneratedTokens,
}

/// Adam and the passes over a round's examples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerConfig {
    /// Sequences per optimizer step.
    pub batch_size: u32,
    /// Passes over a round's examples.
    pub epochs: u32,
    /// Adam's decay of the first moment.
    pub beta1: f64,
    /// Adam's decay of the second moment.
    pub beta2: f64,
    /// Adam's epsilon.
    pub epsilon: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Largest norm of the whole gradient; 0 is no clipping.
    pub clip_norm: f64,
    /// Whether moments and step count start anew in each round.
    pub reset_each_round: bool,
}

impl Default for AlgorithmConfig {
    fn default() -> Self {
        Self {
            rollouts_per_problem: 8,
            temperature: 1.0,
            tied_weights: false,
            batch: BatchConfig::default(),
            solver: SolverConfig::default(),
            conjecturer: ConjecturerConfig::default(),
            guide: GuideConfig::default(),
            penalties: PenaltyConfig::default(),
            optimizer: OptimizerConfig::default(),
        }
    }
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self { size: BatchSize::All, order: EpochOrder::Hashed }
    }
}

impl Default for SolverConfig {
    fn default() -> Self {
        Self {
            train: true,
            objective: Objective::ReinforceHalf,
            selection: Selection::Auto,
            loss_normalisation: LossNormalisation::Sequence,
            learning_rate: 3e-6,
            clip_low: 1.0,
            clip_high: 3.0,
            advantage_epsilon: 1e-6,
            proofs_cap: 16,
            window: 3,
            distinct_proofs: false,
            distinct_examples: false,
            conjecture_share: 1.0,
            lemma_rollouts: 0,
            lemma_rounds: 4,
            entropy_bonus: 0.0,
            kl_coefficient: 0.0,
        }
    }
}

impl Default for ConjecturerConfig {
    fn default() -> Self {
        Self {
            on: true,
            frozen: false,
            conjectures_per_target: 1,
            target_share: 1.0,
            conditioning: Conditioning::Target,
            rule: ConjectureRule::Sgs,
            rate_population: RatePopulation::Interior,
            hardest_fraction: 0.7,
            max_solve_rate: 1.0,
            min_proof_steps: 0,
            refuse_known: false,
            refuse_seen: false,
            unselected: Fate::Zero,
            malformed: Fate::Zero,
            normalisation: Normalisation::Positive,
            loss_normalisation: LossNormalisation::Sequence,
            learning_rate: 3e-6,
            stp: StpConfig::default(),
        }
    }
}

impl Default for StpConfig {
    fn default() -> Self {
        Self { max_rate: 0.25, elegance_cut: 0.2, min_seed_rate: 0.35 }
    }
}

impl Default for GuideConfig {
    fn default() -> Self {
        Self {
            on: true,
            kind: GuideKind::Model,
            scope: GuideScope::All,
            resamples: 1,
            malformed: MalformedReview::Zero,
        }
    }
}

impl Default for PenaltyConfig {
    fn default() -> Self {
        Self {
            length: true,
            length_scope: LengthScope::ContextWindow,
            length_start: 0.8,
            length_of_unproved: true,
            forbidden_tactics: true,
            max_proof_characters: 0,
            short_proof_rate: 0.0,
        }
    }
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self {
            batch_size: 32,
            epochs: 1,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            weight_decay: 0.0,
            clip_norm: 1.0,
            reset_each_round: false,
        }
    }
}

impl AlgorithmConfig {
    /// The same method with every choice of the paper's code that the paper's text does not make (`docs/fidelity.md`).
    pub fn with_code_choices(mut self) -> Self {
        self.batch.order = EpochOrder::Reference;
        self.solver.loss_normalisation = LossNormalisation::Token;
        self.conjecturer.loss_normalisation = LossNormalisation::Token;
        self.conjecturer.rate_population = RatePopulation::Interior;
        self.conjecturer.unselected = Fate::Dropped;
        self.conjecturer.malformed = Fate::Dropped;
        self.conjecturer.normalisation = Normalisation::Reference;
        self.guide.scope = GuideScope::Selected;
        self.guide.resamples = 0;
        self.guide.malformed = MalformedReview::Mean;
        self.penalties.length_scope = LengthScope::GeneratedTokens;
        self.penalties.length_of_unproved = false;
        self.optimizer.clip_norm = 0.0;
        self.optimizer.reset_each_round = true;
        if matches!(self.solver.objective, Objective::Cispo | Objective::ExpertIteration) {
            self.optimizer.batch_size = 64;
        }
        self
    }
}

impl SolverConfig {
    /// The rule of selection in force, never [`Selection::Auto`].
    pub fn effective_selection(&self) -> Selection {
        match self.selection {
            Selection::Auto => self.objective.selection(),
            explicit => explicit,
        }
    }
}

/// A value that makes no sense, with what would.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value}: must be {expected}")]
pub struct ConfigError {
    /// The key, dotted, below the algorithm's table.
    pub key: &'static str,
    /// The value as written.
    pub value: String,
    /// What is allowed.
    pub expected: &'static str,
}

fn require(
    holds: bool,
    key: &'static str,
    value: impl fmt::Display,
    expected: &'static str,
) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError { key, value: value.to_string(), expected }) }
}

impl AlgorithmConfig {
    /// Checks every range and every combination.
    ///
    /// # Errors
    /// The first value that is out of its range, with its key and what is allowed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let k = self.rollouts_per_problem;
        require((1..=1024).contains(&k), "rollouts_per_problem", k, "between 1 and 1024")?;
        let t = self.temperature;
        require(t > 0.0 && t <= 2.0, "temperature", t, "above 0 and at most 2 (the paper's is 1)")?;
        self.validate_solver()?;
        self.validate_conjecturer()?;
        self.validate_penalties()?;
        self.validate_optimizer()
    }

    fn validate_solver(&self) -> Result<(), ConfigError> {
        let s = &self.solver;
        let rate = s.learning_rate;
        require(rate > 0.0 && rate < 1.0, "solver.learning_rate", rate, "above 0 and below 1")?;
        require((0.0..=1.0).contains(&s.clip_low), "solver.clip_low", s.clip_low, "between 0 and 1")?;
        let high = s.clip_high;
        require((0.0..=1e6).contains(&high), "solver.clip_high", high, "between 0 and 1000000")?;
        let epsilon = s.advantage_epsilon;
        require((0.0..=1.0).contains(&epsilon), "solver.advantage_epsilon", epsilon, "between 0 and 1")?;
        require(s.proofs_cap >= 1, "solver.proofs_cap", s.proofs_cap, "at least 1")?;
        require((1..=1000).contains(&s.window), "solver.window", s.window, "between 1 and 1000 rounds")?;
        let bonus = s.entropy_bonus;
        require((0.0..=10.0).contains(&bonus), "solver.entropy_bonus", bonus, "between 0 and 10")?;
        let kl = s.kl_coefficient;
        require((0.0..=10.0).contains(&kl), "solver.kl_coefficient", kl, "between 0 and 10")?;
        let share = s.conjecture_share;
        require((0.0..=1.0).contains(&share), "solver.conjecture_share", share, "between 0 and 1")?;
        let (cited, k) = (s.lemma_rollouts, self.rollouts_per_problem);
        require(cited <= k, "solver.lemma_rollouts", cited, "at most rollouts_per_problem")?;
        require(s.lemma_rounds >= 1, "solver.lemma_rounds", s.lemma_rounds, "at least 1")?;
        let few_proofs = s.effective_selection() == Selection::FewProofs;
        let expected = "expert-iteration together with the selection few-proofs (or auto), and no other";
        let stored = s.objective == Objective::ExpertIteration;
        require(few_proofs == stored, "solver.objective", format!("{:?}", s.objective), expected)?;
        let groups = !s.objective.is_grouped() || self.rollouts_per_problem >= 2;
        require(
            groups,
            "rollouts_per_problem",
            self.rollouts_per_problem,
            "at least 2 with the objective cispo",
        )
    }

    fn validate_conjecturer(&self) -> Result<(), ConfigError> {
        let c = &self.conjecturer;
        let n = c.conjectures_per_target;
        require((1..=64).contains(&n), "conjecturer.conjectures_per_target", n, "between 1 and 64")?;
        let share = c.target_share;
        require(share > 0.0 && share <= 1.0, "conjecturer.target_share", share, "above 0 and at most 1")?;
        let share = c.hardest_fraction;
        let key = "conjecturer.hardest_fraction";
        require(share > 0.0 && share <= 1.0, key, share, "above 0 and at most 1 (the paper's is 0.7)")?;
        let ceiling = c.max_solve_rate;
        let key = "conjecturer.max_solve_rate";
        require(ceiling > 0.0 && ceiling <= 1.0, key, ceiling, "above 0 and at most 1 (off)")?;
        let rate = c.learning_rate;
        require(rate > 0.0 && rate < 1.0, "conjecturer.learning_rate", rate, "above 0 and below 1")?;
        let max = c.stp.max_rate;
        require(max > 0.0 && max <= 1.0, "conjecturer.stp.max_rate", max, "above 0 and at most 1")?;
        let cut = c.stp.elegance_cut;
        require((0.0..1.0).contains(&cut), "conjecturer.stp.elegance_cut", cut, "at least 0 and below 1")?;
        let seed = c.stp.min_seed_rate;
        require((0.0..1.0).contains(&seed), "conjecturer.stp.min_seed_rate", seed, "at least 0 and below 1")?;
        let guided = self.guide.on;
        require(
            c.on || !guided,
            "guide.on",
            guided,
            "false when conjecturer.on is false: nothing to review",
        )?;
        let rule = c.rule == ConjectureRule::Sgs || !guided;
        require(rule, "guide.on", guided, "false when conjecturer.rule is stp: STP has no Guide")?;
        let tied = !self.tied_weights || !c.frozen;
        require(tied, "conjecturer.frozen", c.frozen, "false when tied_weights is true: there is one model")?;
        require(self.guide.resamples <= 16, "guide.resamples", self.guide.resamples, "at most 16")
    }

    fn validate_penalties(&self) -> Result<(), ConfigError> {
        let p = &self.penalties;
        let start = p.length_start;
        require((0.0..1.0).contains(&start), "penalties.length_start", start, "at least 0 and below 1")?;
        let rate = p.short_proof_rate;
        require(
            (0.0..=1.0).contains(&rate),
            "penalties.short_proof_rate",
            rate,
            "between 0 and 1 per character",
        )?;
        let kinds = [p.length, p.max_proof_characters > 0, rate > 0.0];
        let many = kinds.iter().filter(|&&on| on).count();
        let expected =
            "the only length penalty: of length, max_proof_characters and short_proof_rate one at most is on";
        require(many <= 1, "penalties.length", p.length, expected)
    }

    fn validate_optimizer(&self) -> Result<(), ConfigError> {
        let o = &self.optimizer;
        let batch = o.batch_size;
        require(
            (1..=1 << 20).contains(&batch),
            "optimizer.batch_size",
            batch,
            "between 1 and 1048576 sequences",
        )?;
        require((1..=100).contains(&o.epochs), "optimizer.epochs", o.epochs, "between 1 and 100")?;
        require((0.0..1.0).contains(&o.beta1), "optimizer.beta1", o.beta1, "at least 0 and below 1")?;
        require((0.0..1.0).contains(&o.beta2), "optimizer.beta2", o.beta2, "at least 0 and below 1")?;
        let epsilon = o.epsilon;
        require(epsilon > 0.0 && epsilon <= 1.0, "optimizer.epsilon", epsilon, "above 0 and at most 1")?;
        let decay = o.weight_decay;
        require((0.0..=1.0).contains(&decay), "optimizer.weight_decay", decay, "between 0 and 1")?;
        let clip = o.clip_norm;
        require((0.0..=1e6).contains(&clip), "optimizer.clip_norm", clip, "between 0 (off) and 1000000")
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

/// Documentation of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldDoc {
    /// The key, dotted, below the algorithm's table.
    pub key: &'static str,
    /// What it means, with its unit.
    pub meaning: &'static str,
    /// What is allowed.
    pub allowed: &'static str,
}

const fn doc(key: &'static str, meaning: &'static str, allowed: &'static str) -> FieldDoc {
    FieldDoc { key, meaning, allowed }
}

const SWITCH: &str = "true, false";

/// Documentation of every key of [`AlgorithmConfig`].
#[rustfmt::skip]
pub const FIELDS: &[FieldDoc] = &[
    doc("rollouts_per_problem", "k: rollouts sampled for every problem of a round", "1 to 1024"),
    doc("temperature", "sampling temperature of all roles", "above 0, at most 2"),
    doc("tied_weights", "one set of weights for Solver and Conjecturer, trained on the examples of both", SWITCH),
    doc("batch.size", "targets per round, drawn without replacement in each epoch", "\"all\" or a number from 1"),
    doc("batch.order", "shuffle of the epochs: by the run's seed, or as in the paper's code", "hashed, reference"),
    doc("solver.train", "whether the Solver is updated at all; false is plain sampling", SWITCH),
    doc("solver.objective", "what the Solver optimises", "reinforce, reinforce-half, expert-iteration, cispo"),
    doc("solver.selection", "which problems it is trained on; auto: the objective's own rule", "auto, all, hard, unsolved, mixed, few-proofs"),
    doc("solver.loss_normalisation", "denominator of the REINFORCE loss: each sequence's length (paper), or the batch's tokens (its code)", "sequence, token"),
    doc("solver.learning_rate", "constant learning rate of the Solver", "above 0, below 1"),
    doc("solver.clip_low", "CISPO: importance weights are clipped from below at 1 - clip_low", "0 to 1"),
    doc("solver.clip_high", "CISPO: importance weights are clipped from above at 1 + clip_high", "0 to 1000000"),
    doc("solver.advantage_epsilon", "CISPO: added to the standard deviation of a group's rewards", "0 to 1"),
    doc("solver.proofs_cap", "expert iteration: targets with this many stored proofs are no longer sampled", "from 1"),
    doc("solver.window", "expert iteration: proofs of so many last rounds are trained on, this one included", "1 to 1000 rounds"),
    doc("solver.distinct_proofs", "expert iteration: a proof that is already stored is not stored again", SWITCH),
    doc("solver.distinct_examples", "whether of equal proofs of one problem in a round only the first is trained on; beyond the paper", SWITCH),
    doc("solver.conjecture_share", "largest share of a round's examples that are proofs of conjectures; 1: no bound; beyond the paper", "0 to 1"),
    doc("solver.lemma_rollouts", "rollouts of each unsolved target that may cite a conjecture proved for it; beyond the paper", "0 to rollouts_per_problem"),
    doc("solver.lemma_rounds", "rounds in which a conjecture may be cited, counted from the one after its proof", "from 1"),
    doc("solver.entropy_bonus", "weight of the policy's entropy (nats per token) in the loss; beyond the paper", "0 to 10"),
    doc("solver.kl_coefficient", "weight of the KL divergence to the base model (nats per token) in the loss; beyond the paper", "0 to 10"),
    doc("conjecturer.on", "whether problems are invented", SWITCH),
    doc("conjecturer.frozen", "whether the Conjecturer stays the base model", SWITCH),
    doc("conjecturer.conjectures_per_target", "conjectures for each unsolved target in each round", "1 to 64"),
    doc("conjecturer.target_share", "share of the unsolved targets for which a round invents conjectures, drawn by the run's seed; 1: all (paper)", "above 0, at most 1"),
    doc("conjecturer.conditioning", "what a conjecture is invented for: an unsolved target, a solved problem and its proof, nothing", "target, solved, none"),
    doc("conjecturer.rule", "which conjectures are rewarded: R_solve x R_guide, or STP's barely provable ones", "sgs, stp"),
    doc("conjecturer.rate_population", "solve rates of which the top 30 % are too easy: those strictly between 0 and 1, or all", "interior, all"),
    doc("conjecturer.hardest_fraction", "share of the solve rates that is not too easy", "above 0, at most 1"),
    doc("conjecturer.max_solve_rate", "a conjecture solved more often than this earns nothing; 1: no bound; beyond the paper", "above 0, at most 1"),
    doc("conjecturer.min_proof_steps", "a conjecture with a proof of fewer inferences earns nothing and is not trained on; 0: no bound; beyond the paper", "from 0"),
    doc("conjecturer.refuse_known", "whether a conjecture that says what a theorem before its context says is left out; beyond the paper", SWITCH),
    doc("conjecturer.refuse_seen", "whether a conjecture that was a problem of an earlier round is left out; beyond the paper", SWITCH),
    doc("conjecturer.unselected", "conjectures that are unsolved or too easy: trained on with reward 0 (paper), or left out (its code)", "zero, dropped"),
    doc("conjecturer.malformed", "completions without a well-formed conjecture: trained on with reward 0, or left out (the paper's code)", "zero, dropped"),
    doc("conjecturer.normalisation", "equal rewards become 1 if positive and 0 otherwise, or always 1 (the paper's code)", "positive, reference"),
    doc("conjecturer.loss_normalisation", "denominator of the REINFORCE loss, as for the Solver", "sequence, token"),
    doc("conjecturer.learning_rate", "constant learning rate of the Conjecturer", "above 0, below 1"),
    doc("conjecturer.stp.max_rate", "STP: a conjecture is barely provable if its solve rate is above 0 and below this", "above 0, at most 1"),
    doc("conjecturer.stp.elegance_cut", "STP: share of the barely provable conjectures with the shortest proofs for their length that is left out", "0 to below 1"),
    doc("conjecturer.stp.min_seed_rate", "STP: only solved targets with a best solve rate above this become seeds", "0 to below 1"),
    doc("guide.on", "whether there is a Guide; without it R_guide is 1", SWITCH),
    doc("guide.kind", "who reviews: a language model (paper), or the formal system by the symbols that conjecture and target share", "model, rubric"),
    doc("guide.scope", "which conjectures are reviewed: all (paper), or those with a positive R_solve (its code)", "all, selected"),
    doc("guide.resamples", "how often a malformed review is sampled again", "0 to 16"),
    doc("guide.malformed", "score of a conjecture whose reviews were all malformed: 0, or the mean of the round's others (the paper's code)", "zero, mean"),
    doc("penalties.length", "whether long completions of Solver and Conjecturer get a negative reward", SWITCH),
    doc("penalties.length_scope", "tokens that count towards the context window: prompt and completion (paper), or the completion (its code)", "context-window, generated-tokens"),
    doc("penalties.length_start", "share of the context window that is free", "0 to below 1"),
    doc("penalties.length_of_unproved", "whether the length penalty reaches unproved rollouts under REINFORCE (paper: all; its code: proved ones only)", SWITCH),
    doc("penalties.forbidden_tactics", "whether a proof that uses a tactic marked by the formal system (Lean's try) earns nothing", SWITCH),
    doc("penalties.max_proof_characters", "proofs with more characters earn nothing; 0: no limit", "from 0"),
    doc("penalties.short_proof_rate", "STP: a proof weighs exp(-rate x characters); 0: off", "0 to 1 per character"),
    doc("optimizer.batch_size", "sequences per optimizer step", "1 to 1048576"),
    doc("optimizer.epochs", "passes over a round's examples", "1 to 100"),
    doc("optimizer.beta1", "Adam's decay of the first moment", "0 to below 1"),
    doc("optimizer.beta2", "Adam's decay of the second moment", "0 to below 1"),
    doc("optimizer.epsilon", "Adam's epsilon", "above 0, at most 1"),
    doc("optimizer.weight_decay", "decoupled weight decay per step, as a share of the learning rate", "0 to 1"),
    doc("optimizer.clip_norm", "largest norm of the whole gradient; 0: no clipping", "0 to 1000000"),
    doc("optimizer.reset_each_round", "whether Adam starts anew in each round (the paper's code)", SWITCH),
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn keys(value: &Value, prefix: &str, into: &mut Vec<String>) {
        match value {
            Value::Object(table) => {
                for (key, value) in table {
                    let dotted = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                    keys(value, &dotted, into);
                }
            }
            _ => into.push(prefix.to_owned()),
        }
    }

    #[test]
    fn every_key_is_documented() {
        let mut written = Vec::new();
        keys(&serde_json::to_value(AlgorithmConfig::default()).unwrap(), "", &mut written);
        let mut documented: Vec<String> = FIELDS.iter().map(|field| field.key.to_owned()).collect();
        written.sort();
        documented.sort();
        assert_eq!(written, documented);
    }

    #[test]
    fn default_is_valid_and_survives_a_round_trip() {
        let config = AlgorithmConfig::default();
        config.validate().unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<AlgorithmConfig>(&text).unwrap(), config);
    }

    #[test]
    fn unknown_keys_and_wrong_values_are_errors() {
        let read = |value: Value| serde_json::from_value::<AlgorithmConfig>(value).map_err(|e| e.to_string());
        assert!(read(json!({"solver": {"objectiv": "cispo"}})).unwrap_err().contains("objectiv"));
        assert!(read(json!({"solver": {"objective": "ppo"}})).unwrap_err().contains("expert-iteration"));
        assert!(read(json!({"batch": {"size": 0}})).unwrap_err().contains("\"all\""));
        assert!(read(json!({"batch": {"size": -3}})).unwrap_err().contains("-3"));
        assert!(read(json!({"batch": {"size": "some"}})).unwrap_err().contains("some"));
        let sized = read(json!({"batch": {"size": 5}})).unwrap();
        assert_eq!(sized.batch.size, BatchSize::Count(NonZeroU32::new(5).unwrap()));
    }

    /// Each of these sets one key of the default to a value that must be refused, under the name of a key.
    #[test]
    fn values_out_of_range_name_their_key() {
        let cases = [
            ("rollouts_per_problem", json!(0), "rollouts_per_problem"),
            ("temperature", json!(0.0), "temperature"),
            ("solver.learning_rate", json!(0.0), "solver.learning_rate"),
            ("solver.clip_low", json!(1.5), "solver.clip_low"),
            ("solver.clip_high", json!(-1.0), "solver.clip_high"),
            ("solver.advantage_epsilon", json!(-1e-9), "solver.advantage_epsilon"),
            ("solver.proofs_cap", json!(0), "solver.proofs_cap"),
            ("solver.window", json!(0), "solver.window"),
            ("solver.entropy_bonus", json!(-1.0), "solver.entropy_bonus"),
            ("solver.kl_coefficient", json!(11.0), "solver.kl_coefficient"),
            ("solver.selection", json!("few-proofs"), "solver.objective"),
            ("conjecturer.conjectures_per_target", json!(0), "conjecturer.conjectures_per_target"),
            ("conjecturer.target_share", json!(0.0), "conjecturer.target_share"),
            ("solver.lemma_rounds", json!(0), "solver.lemma_rounds"),
            ("conjecturer.hardest_fraction", json!(0.0), "conjecturer.hardest_fraction"),
            ("conjecturer.learning_rate", json!(1.0), "conjecturer.learning_rate"),
            ("solver.conjecture_share", json!(1.5), "solver.conjecture_share"),
            ("solver.lemma_rollouts", json!(9), "solver.lemma_rollouts"),
            ("conjecturer.max_solve_rate", json!(0.0), "conjecturer.max_solve_rate"),
            ("conjecturer.stp.max_rate", json!(0.0), "conjecturer.stp.max_rate"),
            ("conjecturer.stp.elegance_cut", json!(1.0), "conjecturer.stp.elegance_cut"),
            ("conjecturer.stp.min_seed_rate", json!(1.0), "conjecturer.stp.min_seed_rate"),
            ("conjecturer.on", json!(false), "guide.on"),
            ("conjecturer.rule", json!("stp"), "guide.on"),
            ("guide.resamples", json!(17), "guide.resamples"),
            ("penalties.length_start", json!(1.0), "penalties.length_start"),
            ("penalties.short_proof_rate", json!(2.0), "penalties.short_proof_rate"),
            ("penalties.max_proof_characters", json!(1000), "penalties.length"),
            ("optimizer.batch_size", json!(0), "optimizer.batch_size"),
            ("optimizer.epochs", json!(0), "optimizer.epochs"),
            ("optimizer.beta1", json!(1.0), "optimizer.beta1"),
            ("optimizer.beta2", json!(-0.1), "optimizer.beta2"),
            ("optimizer.epsilon", json!(0.0), "optimizer.epsilon"),
            ("optimizer.weight_decay", json!(2.0), "optimizer.weight_decay"),
            ("optimizer.clip_norm", json!(-1.0), "optimizer.clip_norm"),
        ];
        for (key, value, blamed) in cases {
            let mut table = serde_json::to_value(AlgorithmConfig::default()).unwrap();
            let slot = key.split('.').fold(&mut table, |table, part| &mut table[part]);
            *slot = value;
            let config: AlgorithmConfig = serde_json::from_value(table).unwrap();
            let error = config.validate().expect_err(key);
            assert_eq!(error.key, blamed, "{key}");
            assert!(error.to_string().contains(error.expected));
        }
    }

    #[test]
    fn not_a_number_is_out_of_every_range() {
        let config = AlgorithmConfig { temperature: f64::NAN, ..AlgorithmConfig::default() };
        assert_eq!(config.validate().unwrap_err().key, "temperature");
        let mut config = AlgorithmConfig::default();
        config.conjecturer.hardest_fraction = f64::NAN;
        assert_eq!(config.validate().unwrap_err().key, "conjecturer.hardest_fraction");
    }
}
