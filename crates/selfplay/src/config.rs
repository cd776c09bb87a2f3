//! Every choice of the algorithm, with the paper's values as defaults.

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sgs_keys::{Allowed, Closed, Leaf, Refused, Table, above, at_least};
use std::fmt;
use std::num::NonZeroU32;

sgs_keys::table! {
    /// The algorithm's configuration. The default is SGS as the paper describes it; `docs/fidelity.md` says where the
    /// paper and its code differ.
    #[derive(Clone, Debug, PartialEq)]
    pub struct AlgorithmConfig {
        /// k: rollouts sampled for every problem of a round.
        pub rollouts_per_problem: u32 = 8, in 1..=1024,
        /// Sampling temperature of all roles; top-p and top-k are never used. The paper's is 1.
        pub temperature: f64 = 1.0, in above(0.0).at_most(2.0),
        /// One set of weights for Solver and Conjecturer, trained on the examples of both.
        pub tied_weights: bool = false,
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
}

sgs_keys::table! {
    /// Which targets a round works on.
    #[derive(Clone, Debug, PartialEq)]
    pub struct BatchConfig {
        /// Targets per round, drawn without replacement in each epoch.
        pub size: BatchSize = BatchSize::All,
        /// Targets with so many proofs in the store are no longer sampled; 0: all are; beyond the paper. Expert iteration
        /// has its own number, solver.proofs_cap, which also bounds this one.
        pub retire_after: u32 = 0, in 0..=1_000_000,
        /// Share of a round's retired targets that are sampled all the same, drawn by the run's seed, so that the Solver
        /// does not forget them; beyond the paper.
        pub rehearsed_share: f64 = 0.0, in at_least(0.0).at_most(1.0),
        /// Shuffle of the epochs: by the run's seed, or as in the paper's code.
        pub order: EpochOrder = EpochOrder::Hashed,
    }
}

/// Targets per round. Written `"all"` or a positive number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSize {
    /// The whole data set in each round (paper, §4.1).
    All,
    /// So many.
    Count(NonZeroU32),
}

sgs_keys::choice! {
    /// How the epochs are shuffled.
    pub enum EpochOrder {
        /// By the run's seed.
        Hashed = "hashed",
        /// As the paper's code does: CPython's shuffle seeded with 42 + epoch.
        Reference = "reference",
    }
}

sgs_keys::table! {
    /// The Solver's objective.
    #[derive(Clone, Debug, PartialEq)]
    pub struct SolverConfig {
        /// Whether the Solver is updated at all; false is plain sampling.
        pub train: bool = true,
        /// What the Solver optimises.
        pub objective: Objective = Objective::ReinforceHalf,
        /// Which problems it is trained on; auto: the objective's own rule.
        pub selection: Selection = Selection::Auto,
        /// Denominator of the REINFORCE loss: each sequence's length (paper), or the batch's tokens (its code).
        pub loss_normalisation: LossNormalisation = LossNormalisation::Sequence,
        /// Constant learning rate of the Solver.
        pub learning_rate: f64 = 3e-6, in above(0.0).below(1.0),
        /// CISPO: importance weights are clipped from below at 1 - clip_low.
        pub clip_low: f64 = 1.0, in at_least(0.0).at_most(1.0),
        /// CISPO: importance weights are clipped from above at 1 + clip_high.
        pub clip_high: f64 = 3.0, in at_least(0.0).at_most(1e6),
        /// CISPO: added to the standard deviation of a group's rewards before dividing by it.
        pub advantage_epsilon: f64 = 1e-6, in at_least(0.0).at_most(1.0),
        /// So many proofs of a target are kept. Expert iteration: a target with as many is no longer sampled.
        pub proofs_cap: u32 = 16, in 1..=1_000_000,
        /// Expert iteration: proofs of so many last rounds are trained on, this one included.
        pub window: u32 = 3, in 1..=1000,
        /// Expert iteration: a proof that is already stored is not stored again.
        pub distinct_proofs: bool = false,
        /// Whether of equal proofs of one problem in a round only the first is trained on; beyond the paper.
        pub distinct_examples: bool = false,
        /// Largest share of a round's examples that are proofs of conjectures; 1: no bound; beyond the paper.
        pub conjecture_share: f64 = 1.0, in at_least(0.0).at_most(1.0),
        /// Rollouts of each unsolved target that may cite a conjecture proved for it, at most rollouts_per_problem; beyond
        /// the paper.
        pub lemma_rollouts: u32 = 0, in 0..=1024,
        /// Rounds in which a conjecture may be cited, counted from the one after its proof.
        pub lemma_rounds: u32 = 4, in 1..=1_000_000,
        /// Weight of the policy's entropy (nats per token) in the loss; beyond the paper.
        pub entropy_bonus: f64 = 0.0, in at_least(0.0).at_most(10.0),
        /// Weight of the KL divergence to the base model (nats per token) in the loss; beyond the paper.
        pub kl_coefficient: f64 = 0.0, in at_least(0.0).at_most(10.0),
    }
}

sgs_keys::choice! {
    /// What the Solver optimises (paper, Appendix G).
    pub enum Objective {
        /// Log-likelihood of proved rollouts.
        Reinforce = "reinforce",
        /// The same for problems with a solve rate of at most one half.
        ReinforceHalf = "reinforce-half",
        /// Log-likelihood of the stored proofs of the last rounds.
        ExpertIteration = "expert-iteration",
        /// Clipped importance weights times group advantages.
        Cispo = "cispo",
    }
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

sgs_keys::choice! {
    /// Which problems the Solver is trained on. The names in the paper's code are in brackets.
    pub enum Selection {
        /// The objective's own rule.
        Auto = "auto",
        /// Solved at least once: s > 0 (`all`).
        All = "all",
        /// Solved at most half of the time: 0 < s <= 1/2 (`hard`).
        Hard = "hard",
        /// Targets never solved in an earlier round, and all conjectures: s > 0 (`unsolved`).
        Unsolved = "unsolved",
        /// Sometimes solved and sometimes not: 0 < s < 1 (`all_none_0_1`).
        Mixed = "mixed",
        /// Targets with fewer stored proofs than the cap are sampled, the store is trained on (`less_16_proofs`).
        FewProofs = "few-proofs",
    }
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
    /// How problems are invented and how that is rewarded.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ConjecturerConfig {
        /// Whether problems are invented at all.
        pub on: bool = true,
        /// Whether the Conjecturer stays the base model.
        pub frozen: bool = false,
        /// Conjectures for each unsolved target in each round.
        pub conjectures_per_target: u32 = 1, in 1..=64,
        /// Share of the unsolved targets for which a round invents conjectures, drawn by the run's seed; 1: all (paper).
        pub target_share: f64 = 1.0, in above(0.0).at_most(1.0),
        /// What a conjecture is invented for: an unsolved target, a solved problem and its proof, nothing.
        pub conditioning: Conditioning = Conditioning::Target,
        /// Which conjectures are rewarded: R_solve x R_guide, or STP's barely provable ones.
        pub rule: ConjectureRule = ConjectureRule::Sgs,
        /// Solve rates of which the top 30 % are too easy: those strictly between 0 and 1, or all.
        pub rate_population: RatePopulation = RatePopulation::Interior,
        /// Share of the solve rates that is not too easy. The paper's is 0.7.
        pub hardest_fraction: f64 = 0.7, in above(0.0).at_most(1.0),
        /// A conjecture solved more often than this earns nothing; 1: no bound; beyond the paper.
        pub max_solve_rate: f64 = 1.0, in above(0.0).at_most(1.0),
        /// A conjecture with a proof of fewer inferences earns nothing and is not trained on; 0: no bound; beyond the paper.
        pub min_proof_steps: u32 = 0, in 0..=1_000_000,
        /// Whether a conjecture that says what a theorem before its context says is left out; beyond the paper.
        pub refuse_known: bool = false,
        /// Whether a conjecture that was a problem of an earlier round is left out; beyond the paper.
        pub refuse_seen: bool = false,
        /// Conjectures that are unsolved or too easy: trained on with reward 0 (paper), or left out (its code).
        pub unselected: Fate = Fate::Zero,
        /// Completions without a well-formed conjecture: trained on with reward 0, or left out (the paper's code).
        pub malformed: Fate = Fate::Zero,
        /// Equal rewards become 1 if positive and 0 otherwise, or always 1 (the paper's code).
        pub normalisation: Normalisation = Normalisation::Positive,
        /// Denominator of the REINFORCE loss, as for the Solver.
        pub loss_normalisation: LossNormalisation = LossNormalisation::Sequence,
        /// Constant learning rate of the Conjecturer.
        pub learning_rate: f64 = 3e-6, in above(0.0).below(1.0),
        /// STP's own numbers.
        pub stp: StpConfig,
    }
}

sgs_keys::choice! {
    /// What a conjecture is invented for.
    pub enum Conditioning {
        /// An unsolved target (paper, §3.1).
        Target = "target",
        /// A solved problem and its proof (STP).
        Solved = "solved",
        /// Nothing; still one conjecture for each unsolved target (paper, §4.4).
        None = "none",
    }
}

sgs_keys::choice! {
    /// Which conjectures are rewarded, and how.
    pub enum ConjectureRule {
        /// R_solve · R_guide (paper, §3.2).
        Sgs = "sgs",
        /// 1 for barely provable conjectures that are not long for their proofs, nothing for others (Dong and Ma 2025).
        Stp = "stp",
    }
}

sgs_keys::choice! {
    /// Which solve rates the top 30 % are the top of.
    pub enum RatePopulation {
        /// Those strictly between 0 and 1 (the paper's code).
        Interior = "interior",
        /// Those of every conjecture of the round (a literal reading of the paper).
        All = "all",
    }
}

sgs_keys::choice! {
    /// What becomes of conjectures that earn nothing.
    pub enum Fate {
        /// They train the Conjecturer with reward 0 and take part in the normalisation (paper).
        Zero = "zero",
        /// They are left out of both (the paper's code).
        Dropped = "dropped",
    }
}

sgs_keys::choice! {
    /// How equal rewards are normalised.
    pub enum Normalisation {
        /// All 1 if positive, otherwise all 0.
        Positive = "positive",
        /// All 1, even if they are 0 (the paper's code).
        Reference = "reference",
    }
}

sgs_keys::table! {
    /// STP's own numbers (Dong and Ma 2025, and their code).
    #[derive(Clone, Debug, PartialEq)]
    pub struct StpConfig {
        /// STP: a conjecture is barely provable if its solve rate is above 0 and below this.
        pub max_rate: f64 = 0.25, in above(0.0).at_most(1.0),
        /// STP: share of the barely provable conjectures with the shortest proofs for their length that is left out.
        pub elegance_cut: f64 = 0.2, in at_least(0.0).below(1.0),
        /// STP: only solved targets whose best solve rate in any round is above this get conjectures.
        pub min_seed_rate: f64 = 0.35, in at_least(0.0).below(1.0),
        /// STP: whether the chosen conjectures are weighted so that they lie as the unsolved targets do among the
        /// Conjecturer's embeddings of statements (on in method stp), or all weigh 1.
        pub reweight: bool = false,
        /// STP: a conjecture whose weight has come to this is given no further targets.
        pub max_weight: f64 = 4.0, in at_least(1.0).at_most(1e6),
    }
}

sgs_keys::table! {
    /// How invented problems are reviewed.
    #[derive(Clone, Debug, PartialEq)]
    pub struct GuideConfig {
        /// Whether there is a Guide; without it R_guide is 1.
        pub on: bool = true,
        /// Who scores: a language model's reviews (paper), the formal system by the symbols that conjecture and target
        /// share, or what became of the targets of reviewed conjectures.
        pub kind: GuideKind = GuideKind::Model,
        /// Which conjectures are reviewed: all (paper), or those with a positive R_solve (its code).
        pub scope: GuideScope = GuideScope::All,
        /// Reviews of each conjecture, whose mean R_guide is its own: an estimate of the expectation over what the Guide
        /// may write. The paper has one.
        pub samples: u32 = 1, in 1..=64,
        /// How many malformed reviews of a conjecture are sampled again.
        pub resamples: u32 = 1, in 0..=16,
        /// The learned Guide: rounds in which a target or its neighbours must fall after a conjecture was trained on.
        pub learned_rounds: u32 = 8, in 1..=10_000,
        /// The learned Guide: targets nearest to a conjecture's own, by the symbols they share, that count beside it.
        pub learned_neighbours: u32 = 8, in 0..=1000,
        /// Score of a conjecture whose reviews were all malformed: 0, or the mean of the round's others (the paper's
        /// code).
        pub malformed: MalformedReview = MalformedReview::Zero,
    }
}

sgs_keys::choice! {
    /// Who reviews conjectures.
    pub enum GuideKind {
        /// A language model (paper, §3.2).
        Model = "model",
        /// The formal system: how much a conjecture has of its target's symbols, and how near it is in length.
        Rubric = "rubric",
        /// A head on the language model's reviews, trained in the run on what conjectures did to their targets.
        Learned = "learned",
    }
}

sgs_keys::choice! {
    /// Which conjectures are reviewed.
    pub enum GuideScope {
        /// Every conjecture, as soon as it is read (paper, Algorithm 1).
        All = "all",
        /// Those with 0 < R_solve only, once all are judged (the paper's code).
        Selected = "selected",
    }
}

sgs_keys::choice! {
    /// Score of a conjecture whose reviews were all malformed.
    pub enum MalformedReview {
        /// R_guide is 0.
        Zero = "zero",
        /// R_guide is the mean over the round's well-formed reviews, 0 if there are none (the paper's code).
        Mean = "mean",
    }
}

sgs_keys::table! {
    /// Length penalty and forbidden tactics.
    #[derive(Clone, Debug, PartialEq)]
    pub struct PenaltyConfig {
        /// Whether long completions of Solver and Conjecturer get a negative reward.
        pub length: bool = true,
        /// Tokens that count towards the context window: prompt and completion (paper), or the completion (its code).
        pub length_scope: LengthScope = LengthScope::ContextWindow,
        /// Share of the context window that is free.
        pub length_start: f64 = 0.8, in at_least(0.0).below(1.0),
        /// Whether the length penalty reaches unproved rollouts under REINFORCE (paper: all; its code: proved ones only).
        pub length_of_unproved: bool = true,
        /// Whether a proof that uses a tactic marked by the formal system (Lean's try) earns nothing.
        pub forbidden_tactics: bool = true,
        /// Proofs with more characters earn nothing; 0: no limit.
        pub max_proof_characters: u32 = 0, in 0..=u64::from(u32::MAX),
        /// STP: a proof weighs exp(-rate x characters); 0: off.
        pub short_proof_rate: f64 = 0.0, in at_least(0.0).at_most(1.0),
    }
}

sgs_keys::choice! {
    /// What counts towards the context window.
    pub enum LengthScope {
        /// Prompt and completion (paper, §4.1).
        ContextWindow = "context-window",
        /// The completion alone (the paper's code).
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
        /// Decoupled weight decay per step, as a share of the learning rate.
        pub weight_decay: f64 = 0.0, in at_least(0.0).at_most(1.0),
        /// Largest norm of the whole gradient; 0: no clipping.
        pub clip_norm: f64 = 1.0, in at_least(0.0).at_most(1e6),
        /// Whether Adam starts anew in each round (the paper's code).
        pub reset_each_round: bool = false,
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

fn require(
    holds: bool,
    key: &'static str,
    value: impl fmt::Display,
    expected: &'static str,
) -> Result<(), Refused> {
    if holds {
        Ok(())
    } else {
        Err(Refused { key: key.into(), value: value.to_string(), expected: expected.into() })
    }
}

impl AlgorithmConfig {
    /// Checks every range and every combination.
    ///
    /// # Errors
    /// The first value that is not allowed, with its key below the algorithm's table.
    pub fn validate(&self) -> Result<(), Refused> {
        self.check("")?;
        self.check_solver()?;
        self.check_conjecturer()?;
        self.check_penalties()
    }

    fn check_solver(&self) -> Result<(), Refused> {
        let s = &self.solver;
        let few_proofs = s.effective_selection() == Selection::FewProofs;
        let expected = "expert-iteration together with the selection few-proofs (or auto), and no other";
        let stored = s.objective == Objective::ExpertIteration;
        require(few_proofs == stored, "solver.objective", format!("{:?}", s.objective), expected)?;
        let retire_after = self.batch.retire_after;
        let expected = "at most solver.proofs_cap: no more proofs are kept";
        require(retire_after <= s.proofs_cap, "batch.retire_after", retire_after, expected)?;
        let (cited, k) = (s.lemma_rollouts, self.rollouts_per_problem);
        require(cited <= k, "solver.lemma_rollouts", cited, "at most rollouts_per_problem")?;
        let groups = !s.objective.is_grouped() || self.rollouts_per_problem >= 2;
        require(groups, "rollouts_per_problem", k, "at least 2 with the objective cispo")
    }

    fn check_conjecturer(&self) -> Result<(), Refused> {
        let c = &self.conjecturer;
        let guided = self.guide.on;
        let expected = "false when conjecturer.on is false: nothing to review";
        require(c.on || !guided, "guide.on", guided, expected)?;
        let rule = c.rule == ConjectureRule::Sgs || !guided;
        require(rule, "guide.on", guided, "false when conjecturer.rule is stp: STP has no Guide")?;
        let tied = !self.tied_weights || !c.frozen;
        require(tied, "conjecturer.frozen", c.frozen, "false when tied_weights is true: there is one model")
    }

    fn check_penalties(&self) -> Result<(), Refused> {
        let p = &self.penalties;
        let kinds = [p.length, p.max_proof_characters > 0, p.short_proof_rate > 0.0];
        let many = kinds.iter().filter(|&&on| on).count();
        let expected =
            "the only length penalty: of length, max_proof_characters and short_proof_rate one at most is on";
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

impl Leaf for BatchSize {
    fn refused_by(&self, _: &Allowed) -> Option<String> {
        // Only "all" and positive numbers can be read.
        None
    }
}

impl Closed for BatchSize {
    const ALLOWED: Allowed = Allowed::NameOrWhole { name: "all", low: 1, high: u32::MAX as u64 };
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn written_keys(value: &Value, prefix: &str, into: &mut Vec<String>) {
        match value {
            Value::Object(table) => {
                table
                    .iter()
                    .for_each(|(key, value)| written_keys(value, &sgs_keys::dotted(prefix, key), into));
            }
            _ => into.push(prefix.to_owned()),
        }
    }

    /// What is declared is what stands in files, and each key says what it means.
    #[test]
    fn every_key_is_declared_with_a_meaning() {
        let mut written = Vec::new();
        written_keys(&serde_json::to_value(AlgorithmConfig::default()).unwrap(), "", &mut written);
        let declared = AlgorithmConfig::keys("");
        let mut names: Vec<String> = declared.iter().map(|key| key.key.clone()).collect();
        written.sort();
        names.sort();
        assert_eq!(written, names);
        for key in declared {
            assert!(key.meaning.len() > 10 && key.meaning.ends_with('.'), "{key:?}");
        }
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

    /// The default with one key set, if it can be read at all.
    fn with(key: &str, value: Value) -> Result<AlgorithmConfig, serde_json::Error> {
        let mut table = serde_json::to_value(AlgorithmConfig::default()).unwrap();
        *key.split('.').fold(&mut table, |table, part| &mut table[part]) = value;
        serde_json::from_value(table)
    }

    /// The values at the ends of a range, those that are allowed and those that are just outside.
    fn ends(allowed: Allowed) -> (Vec<Value>, Vec<Value>) {
        let whole = |low: u64, high: u64| {
            let below = i64::try_from(low).unwrap() - 1;
            (
                vec![json!(low), json!(high)],
                vec![json!(below), json!(u128::from(high) as f64 + 1.0), json!(high + 1)],
            )
        };
        match allowed {
            Allowed::Whole { low, high } => whole(low, high),
            Allowed::NameOrWhole { name, low, high } => {
                let (mut inside, outside) = whole(low, high);
                inside.push(json!(name));
                (inside, outside)
            }
            Allowed::Real { low, high } => {
                let (mut inside, mut outside) = (Vec::new(), Vec::new());
                for (end, beyond) in [(low, low.at.next_down()), (high, high.at.next_up())] {
                    outside.push(json!(beyond));
                    if end.included { inside.push(json!(end.at)) } else { outside.push(json!(end.at)) }
                }
                inside.push(json!(low.at.next_up()));
                inside.push(json!(high.at.next_down()));
                (inside, outside)
            }
            Allowed::Switch => (vec![json!(true), json!(false)], vec![json!("true"), json!(1)]),
            Allowed::Names(names) => {
                (names.iter().map(|name| json!(name)).collect(), vec![json!("other"), json!(1)])
            }
            Allowed::Text(_) => unreachable!("the algorithm has no free text"),
        }
    }

    #[test]
    fn every_range_is_enforced_at_both_ends() {
        for key in AlgorithmConfig::keys("") {
            let (inside, outside) = ends(key.allowed);
            assert!(inside.len() >= 2 && outside.len() >= 2, "{key:?}");
            for value in inside {
                let config = with(&key.key, value.clone()).unwrap_or_else(|e| panic!("{}: {e}", key.key));
                config.check("").unwrap_or_else(|e| panic!("{value} is allowed: {e}"));
            }
            for value in outside {
                // What does not fit the type is refused when it is read.
                let Ok(config) = with(&key.key, value.clone()) else { continue };
                let error = config.check("").expect_err(&format!("{} = {value}", key.key));
                assert_eq!((error.key, error.expected), (key.key.clone(), key.allowed.to_string()));
            }
        }
    }

    /// Each of these sets one key of the default to a value that does not go with another, which is named.
    #[test]
    fn combinations_that_make_no_sense_name_a_key() {
        let cases = [
            ("solver.selection", json!("few-proofs"), "solver.objective"),
            ("solver.lemma_rollouts", json!(9), "solver.lemma_rollouts"),
            ("batch.retire_after", json!(17), "batch.retire_after"),
            ("conjecturer.on", json!(false), "guide.on"),
            ("conjecturer.rule", json!("stp"), "guide.on"),
            ("penalties.max_proof_characters", json!(1000), "penalties.length"),
        ];
        for (key, value, blamed) in cases {
            let error = with(key, value).unwrap().validate().expect_err(key);
            assert_eq!(error.key, blamed, "{key}");
            assert!(error.to_string().contains(&error.expected));
        }
        let mut one = AlgorithmConfig { rollouts_per_problem: 1, ..AlgorithmConfig::default() };
        one.solver.objective = Objective::Cispo;
        assert_eq!(one.validate().unwrap_err().key, "rollouts_per_problem");
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
