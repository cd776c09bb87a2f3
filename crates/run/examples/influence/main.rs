//! Measures which conjectures help to prove their targets:
//! `cargo run --release -p sgs-run --example influence -- RUN [COUNT] [RATE] > influence.jsonl`.
//!
//! For each conjecture that a Metamath run proved, the base model is trained for one step on the proofs of that
//! conjecture alone, as in an update of the Solver (Adam, learning rate RATE, default 1e-4). The *influence* of the
//! conjecture is the resulting change of the log-probability (in nats) of the database's own proof of the conjecture's
//! target, minus the mean change for 15 other unsolved targets of the run. A run never sees these proofs; this example
//! uses them to find out which properties a useful conjecture has. The mean influence, and its rank correlation with
//! known properties of the conjectures, are printed to standard error.

use anyhow::{Context, Result};
use serde::Serialize;
use sgs_analysis::stats::rank_correlation;
use sgs_formal::FormalSystem;
use sgs_lm::Device;
use sgs_lm::loss::{LossConfig, Normaliser, Objective, TrainExample};
use sgs_lm::model::{Mode, Model};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};
use sgs_metamath::proof_text::write_steps;
use sgs_metamath::system::Metamath;
use sgs_metamath::theorem_proofs::theorem_proof;
use sgs_run::config::RunConfig;
use sgs_run::config::device;
use sgs_run::config::folder;
use sgs_run::config::system::metamath_targets;
use sgs_run::train::policies;
use sgs_run::workers::sampling;
use sgs_rundir::RunView;
use sgs_selfplay::seed::SeededRng;
use sgs_selfplay::{Problem, ProblemId, Verdict};
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of other targets that a conjecture's target is compared with.
const OTHERS: usize = 15;

/// A line of the output.
#[derive(Serialize)]
struct Line {
    round: u32,
    target: String,
    /// Change of the log-probability of the target's known proof in nats, and the mean change for the other targets.
    own: f64,
    others: f64,
    /// The Guide's score and that of the rubric, each 0 to 8.
    r_guide: f64,
    rubric: f64,
    solve_rate: f64,
    /// Steps of the shortest proof found, and the fraction of the theorems in it that the target's known proof also
    /// cites.
    steps: f64,
    shared: f64,
    /// Number of symbols of the conjecture, divided by that of the target.
    length: f64,
}

/// A proved conjecture, with the completions that prove it.
struct Proved {
    round: u32,
    target: ProblemId,
    statement: Arc<str>,
    r_guide: f64,
    solve_rate: f64,
    proofs: Vec<Rollout>,
}

/// A proof as the Solver wrote it.
struct Rollout {
    /// Prompt and completion.
    tokens: Vec<u32>,
    prompt_len: usize,
    proof: Arc<str>,
}

/// The database's proof of a target, in the format in which the Solver would write it.
struct KnownProof {
    tokens: Vec<u32>,
    prompt_len: usize,
    /// The theorems that it cites.
    cites: HashSet<String>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let run = arguments.first().context("give the folder of a run on Metamath")?;
    let count = arguments.get(1).map_or(Ok(500), |n| n.parse()).context("COUNT is a number")?;
    let rate = arguments.get(2).map_or(Ok(1e-4), |n| n.parse()).context("RATE is a number")?;
    let run = RunView::open(Path::new(run))?;
    let config = folder::config_of(&run)?;
    let base = policies::base_folder(&config, &run.path().join("base"))?;
    let mut study = Study::new(&run, &config, base, rate)?;
    let mut proved = proved_conjectures(&run)?;
    SeededRng::new(1).shuffle(&mut proved);
    proved.truncate(count);
    let mut out = String::new();
    let mut lines = Vec::new();
    for one in &proved {
        if let Some(line) = study.look_at(one)? {
            out.push_str(&serde_json::to_string(&line)?);
            out.push('\n');
            lines.push(line);
        }
    }
    std::io::stdout().write_all(out.as_bytes())?;
    tell(&lines);
    Ok(())
}

/// Returns every conjecture that was proved, with its distinct proofs.
fn proved_conjectures(run: &RunView) -> Result<Vec<Proved>> {
    let mut all = Vec::new();
    for round in run.rounds()? {
        let mut proofs: HashMap<ProblemId, Vec<Rollout>> = HashMap::new();
        for row in round.rollouts()? {
            let row = row?;
            let Some(proof) = row.proof.filter(|_| row.verdict == Verdict::Proved) else { continue };
            let mine = proofs.entry(row.problem).or_default();
            if mine.iter().all(|other| other.proof != proof) {
                let tokens = [&row.prompt_tokens, &row.tokens[..]].concat();
                mine.push(Rollout { tokens, prompt_len: row.prompt_tokens.len(), proof });
            }
        }
        for row in round.conjectures()? {
            let row = row?;
            let (Some(statement), Some(proofs)) = (row.statement, proofs.remove(&row.id)) else { continue };
            let (r_guide, solve_rate) = (row.r_guide.unwrap_or(0.0), row.solve_rate.unwrap_or(0.0));
            all.push(Proved {
                round: round.round(),
                target: row.target,
                statement,
                r_guide,
                solve_rate,
                proofs,
            });
        }
    }
    Ok(all)
}

/// The models and data of the study.
struct Study {
    system: Metamath,
    device: Arc<sgs_lm_cpu::Cpu>,
    base: PathBuf,
    positions: usize,
    trainer: Trainer<sgs_lm_cpu::Cpu>,
    rate: f64,
    /// Known proofs of the targets that the run never proved.
    known: HashMap<ProblemId, KnownProof>,
    /// The base model's log-probability of each known proof.
    before: HashMap<ProblemId, f64>,
    targets: HashMap<ProblemId, Problem>,
    unsolved: Vec<ProblemId>,
}

impl Study {
    fn new(run: &RunView, config: &RunConfig, base: PathBuf, rate: f64) -> Result<Self> {
        let system = Metamath::shipped()?;
        let device = Arc::new(sgs_lm_cpu::Cpu::new(device::threads())?);
        let positions = config.model.positions();
        let model = Model::load(Arc::clone(&device), &base, positions)?;
        let tokenizer = policies::tokenizer(&base, &model.config)?;
        let tokens = config.training_tokens(&model.config);
        let mut trainer = Trainer::new(Arc::clone(&device), &model.config, tokens, Mode::Train)?;
        let solved = run.state()?.solved;
        let targets = metamath_targets(&system, &config.problems.set)?;
        let targets: HashMap<ProblemId, Problem> = targets.into_iter().map(|p| (p.id.clone(), p)).collect();
        let mut known = HashMap::new();
        for problem in targets.values().filter(|problem| !solved.contains_key(&problem.id)) {
            if let Some(proof) = known_proof(&system, &tokenizer, problem)? {
                known.insert(problem.id.clone(), proof);
            }
        }
        let mut unsolved: Vec<ProblemId> = known.keys().cloned().collect();
        unsolved.sort();
        let before = log_probs(&mut trainer, &model, &known, &unsolved)?;
        let before = unsolved.iter().cloned().zip(before).collect();
        Ok(Self { system, device, base, positions, trainer, rate, known, before, targets, unsolved })
    }

    /// Measures the influence of a conjecture. Returns `None` if the run has proved its target, or if the known proof
    /// of the target is too long.
    fn look_at(&mut self, one: &Proved) -> Result<Option<Line>> {
        let Some(KnownProof { cites, .. }) = self.known.get(&one.target) else { return Ok(None) };
        let target = &self.targets[&one.target];
        let conjecture = self.system.problem_from_text("conjecture", &one.statement, &target.context)?;
        let rubric = {
            let read = |p: &Problem| {
                sgs_metamath::statement::Statement::parse(
                    self.system.theory(),
                    &p.statement,
                    Default::default(),
                )
            };
            sgs_metamath::rubric::rubric(self.system.theory(), &read(target)?, &read(&conjecture)?)
        };
        let shortest =
            one.proofs.iter().map(|rollout| &rollout.proof).min_by_key(|p| self.system.proof_steps(p));
        let own_labels: HashSet<String> = shortest.map(|proof| labels(proof)).unwrap_or_default();
        let shared = own_labels.intersection(cites).count() as f64 / own_labels.len().max(1) as f64;
        let symbols = |text: &str| text.split_whitespace().count() as f64;
        let length = symbols(&conjecture.statement) / symbols(&target.statement);
        let steps = shortest.map_or(0.0, |proof| f64::from(self.system.proof_steps(proof)));
        // Seed it with the round, so that a repeated study compares with the same targets.
        let mut draw = SeededRng::new(u64::from(one.round));
        let mut others: Vec<ProblemId> =
            self.unsolved.iter().filter(|id| **id != one.target).cloned().collect();
        draw.shuffle(&mut others);
        others.truncate(OTHERS);
        let mut watched = vec![one.target.clone()];
        watched.extend(others);
        let changes = self.changes(one, &watched)?;
        let (own, others) = (changes[0], mean(&changes[1..]));
        let (target, r_guide, solve_rate) = (one.target.to_string(), one.r_guide, one.solve_rate);
        Ok(Some(Line {
            round: one.round,
            target,
            own,
            others,
            r_guide,
            rubric,
            solve_rate,
            steps,
            shared,
            length,
        }))
    }

    /// Trains the base model for one step on the conjecture's proofs. Returns the changes of the log-probabilities of
    /// the known proofs of the `watched` targets.
    fn changes(&mut self, one: &Proved, watched: &[ProblemId]) -> Result<Vec<f64>> {
        let model = Model::load(Arc::clone(&self.device), &self.base, self.positions)?;
        let mut policy = Policy::new(model)?;
        let example = |rollout: &Rollout| TrainExample {
            tokens: rollout.tokens.clone(),
            prompt_len: rollout.prompt_len,
            weight: 1.0,
            ..TrainExample::default()
        };
        let examples: Vec<TrainExample> = one.proofs.iter().map(example).collect();
        let options = TrainOptions {
            loss: LossConfig::new(Objective::Reinforce, Normaliser::Token),
            adam: AdamConfig { learning_rate: self.rate, ..AdamConfig::default() },
            schedule: LrSchedule::Constant,
            batch_size: examples.len(),
            shuffle_seed: None,
        };
        self.trainer.train(&mut policy, &examples, &options, |_| ())?;
        let after = log_probs(&mut self.trainer, &policy.model, &self.known, watched)?;
        Ok(watched.iter().zip(after).map(|(id, after)| after - self.before[id]).collect())
    }
}

/// Returns the known proof of a target, or `None` if the proof is too long for the Solver.
fn known_proof(system: &Metamath, tokenizer: &Tokenizer, problem: &Problem) -> Result<Option<KnownProof>> {
    let theory = system.theory();
    let Some(rule) = theory.find(problem.id.as_str()) else { return Ok(None) };
    let steps = theorem_proof(theory, rule, 24).map_err(anyhow::Error::msg)?;
    let Some(steps) = steps else { return Ok(None) };
    let proof = write_steps(theory, &steps);
    let mut tokens = sampling::encode(tokenizer, &system.solver_prompt(problem))?.to_vec();
    let prompt_len = tokens.len();
    tokens.extend(tokenizer.encode(&system.proof_completion(&proof))?);
    tokens.extend(tokenizer.eos().first());
    Ok(Some(KnownProof { tokens, prompt_len, cites: labels(&proof) }))
}

/// Returns the theorems that a proof cites.
fn labels(proof: &str) -> HashSet<String> {
    proof.split_whitespace().filter(|token| !token.starts_with('$')).map(str::to_owned).collect()
}

fn log_probs<D: Device>(
    trainer: &mut Trainer<D>,
    model: &Model<D>,
    known: &HashMap<ProblemId, KnownProof>,
    ids: &[ProblemId],
) -> Result<Vec<f64>> {
    let sequences = ids.iter().map(|id| (known[id].tokens.as_slice(), known[id].prompt_len));
    let stats = trainer.log_probs(model, sequences)?;
    Ok(stats.iter().map(|s| s.log_probs.iter().map(|&x| f64::from(x)).sum()).collect())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn tell(lines: &[Line]) {
    let influence: Vec<f64> = lines.iter().map(|line| line.own - line.others).collect();
    let n = influence.len() as f64;
    let mean_influence = mean(&influence);
    let variance = influence.iter().map(|x| (x - mean_influence).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    let positive = influence.iter().filter(|x| **x > 0.0).count();
    eprintln!(
        "{n} conjectures: influence {mean_influence:+.4} ± {:.4} nats (mean, standard error), above 0 for {positive}; on \
         the own target {:+.4}, on others {:+.4}",
        (variance / n.max(1.0)).sqrt(),
        mean(&lines.iter().map(|line| line.own).collect::<Vec<_>>()),
        mean(&lines.iter().map(|line| line.others).collect::<Vec<_>>()),
    );
    for name in ["r_guide", "rubric", "solve_rate", "steps", "shared", "length"] {
        let of = |line: &Line| match name {
            "r_guide" => line.r_guide,
            "rubric" => line.rubric,
            "solve_rate" => line.solve_rate,
            "steps" => line.steps,
            "shared" => line.shared,
            _ => line.length,
        };
        let pairs: Vec<(f64, f64)> = lines.iter().map(of).zip(influence.iter().copied()).collect();
        match rank_correlation(&pairs) {
            Some(rho) => eprintln!("rank correlation with {name}: {rho:+.3}"),
            None => eprintln!("rank correlation with {name}: none"),
        }
    }
}
