//! Tests verdicts of workers that cannot be trusted.
#![allow(clippy::unwrap_used)]

use crate::system;
use sgs_fleet::{Client, Lease, Payload, WorkerConfig, WorkerName, run_worker};
use sgs_formal::{Condition, FormalSystem, Malformed, Prompt};
use sgs_run::config::folder;
use sgs_run::config::held_out::EvaluationConfig;
use sgs_run::config::{self, Layers};
use sgs_run::lm_cpu::Cpu;
use sgs_run::train::policies;
use sgs_run::workers::config::{By, FleetConfig, WorkerPoolConfig};
use sgs_run::workers::coordinator::CoordinatorAddress;
use sgs_run::workers::tasks::{self, VERIFY, VerifyResult, VerifyTask};
use sgs_run::workers::verify;
use sgs_run::{Outcome, Runner, StopFlag};
use sgs_rundir::RunView;
use sgs_selfplay::{Features, Judgement, ParsedConjecture, Problem, ProblemId, Review, Verdict};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use system::Echo;

/// The formal system of the example, with proofs that are easy to find.
struct Easy {
    is_quick: bool,
    /// Number of verifications that still fail.
    faults: AtomicUsize,
    /// Number of verifications on a thread of Rayon, where workers have none.
    in_place: AtomicUsize,
}

/// Returns a system with slow verification.
fn slow() -> Easy {
    Easy { is_quick: false, faults: AtomicUsize::new(0), in_place: AtomicUsize::new(0) }
}

impl FormalSystem for Easy {
    fn name(&self) -> &'static str {
        "slow"
    }
    fn solver_prompt(&self, problem: &Problem) -> Prompt {
        Echo.solver_prompt(problem)
    }
    fn conjecturer_prompt(&self, condition: Condition<'_>) -> Prompt {
        Echo.conjecturer_prompt(condition)
    }
    fn guide_prompt(&self, target: &Problem, conjecture: &Problem) -> Prompt {
        Echo.guide_prompt(target, conjecture)
    }
    fn read_proof(&self, problem: &Problem, completion: &str) -> Result<String, Malformed> {
        Echo.read_proof(problem, completion)
    }
    fn read_conjecture(
        &self,
        condition: Condition<'_>,
        completion: &str,
    ) -> Result<ParsedConjecture, Malformed> {
        Echo.read_conjecture(condition, completion)
    }
    fn read_review(&self, completion: &str) -> Result<Review, Malformed> {
        Echo.read_review(completion)
    }
    fn features(&self, statement: &str) -> Features {
        Echo.features(statement)
    }
    fn is_penalised(&self, proof: &str) -> bool {
        Echo.is_penalised(proof)
    }
    fn parallel_verifications(&self) -> usize {
        2
    }
    fn is_quick(&self) -> bool {
        self.is_quick
    }
    fn verify(&self, problem: &Problem, proof: &str) -> Judgement {
        self.in_place.fetch_add(usize::from(rayon::current_thread_index().is_some()), Ordering::SeqCst);
        let take = |left: usize| left.checked_sub(1);
        if self.faults.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            let reason = "the checker failed".to_owned();
            return Judgement { verdict: Verdict::Infra, reason, step: None, micros: 0 };
        }
        match proof.len() % 3 {
            0 => Judgement { verdict: Verdict::Proved, reason: String::new(), step: None, micros: 0 },
            _ => Echo.verify(problem, proof),
        }
    }
}

fn runner(folder: &Path, system: Arc<dyn FormalSystem>, fleet: Option<FleetConfig>) -> Runner<Cpu> {
    let set = ["rounds=2", "sampling.solver_tokens=4", "sampling.batch=64", "algorithm.guide.min_readable=0"]
        .map(str::to_owned)
        .to_vec();
    let config = config::resolve(&Layers { set, ..Layers::default() }, std::iter::empty()).unwrap().config;
    Runner {
        run: Arc::new(folder::begin(&config, folder).unwrap()),
        base: policies::base_folder(&config, &folder.join("base")).unwrap(),
        system,
        targets: system::targets(),
        held_out: Vec::new(),
        device: Arc::new(Cpu::new(2).unwrap()),
        config: Arc::new(config),
        interrupt: StopFlag::default(),
        fleet,
        process_group: None,
    }
}

/// Returns a configuration in which verification workers connect on their own.
fn by_others(recheck: Option<f64>) -> Option<FleetConfig> {
    Some(FleetConfig {
        verify: WorkerPoolConfig { by: By::None, ..WorkerPoolConfig::default() },
        recheck,
        ..FleetConfig::default()
    })
}

/// Waits until the coordinator of a run listens, and returns a client for it.
fn client(run: &Path) -> Client {
    let remembered = loop {
        match CoordinatorAddress::read(run) {
            Ok(Some(remembered)) => break remembered,
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let token = CoordinatorAddress::token(run).unwrap();
    Client::new(remembered.url.as_deref().unwrap(), Some(token), None).unwrap()
}

/// Starts a verification worker with this name, which runs until it is told to leave.
fn worker(
    run: &Path,
    name: &'static str,
    drain: &StopFlag,
    check: impl Fn(&Lease) -> Result<Payload, String> + Send + Sync + 'static,
) -> std::thread::JoinHandle<()> {
    let (run, drain) = (run.to_owned(), drain.clone());
    std::thread::spawn(move || {
        let client = client(&run);
        let config = WorkerConfig {
            patience: Duration::from_secs(5),
            grace: Duration::from_secs(1),
            ..WorkerConfig::new(WorkerName::new(name).unwrap(), VERIFY)
        };
        // If the run ends with an error, it does not wait for its workers, so ignore their errors.
        let _ =
            run_worker(Arc::new(client), config, drain, 2, move |lease: &Lease, _: &StopFlag| check(lease));
    })
}

fn honest(system: impl FormalSystem) -> impl Fn(&Lease) -> Result<Payload, String> {
    move |lease| verify::verify(&system, lease)
}

/// Returns a checker that gives the same verdict on every proof.
fn says(verdict: Verdict) -> impl Fn(&Lease) -> Result<Payload, String> {
    move |lease| {
        let task: VerifyTask = tasks::unpack(lease.payload.as_bytes()).map_err(|e| e.to_string())?;
        let reason = if verdict == Verdict::Proved { "" } else { "so it is" }.to_owned();
        let judgement = Judgement { verdict, reason, step: None, micros: 1 };
        let proofs = task.proofs.iter().map(|(_, proofs)| proofs.len()).sum();
        tasks::pack(&vec![judgement; proofs]).map_err(|e| e.to_string())
    }
}

fn verdicts(run: &Path) -> Vec<(ProblemId, u32, Verdict)> {
    let rounds = RunView::open(run).unwrap().rounds().unwrap();
    let rows = rounds.iter().flat_map(|round| round.rollouts().unwrap());
    rows.map(|row| row.map(|row| (row.problem, row.index, row.verdict)).unwrap()).collect()
}

fn evaluated(run: &Path) -> Vec<(ProblemId, u32, u32)> {
    let evaluations = RunView::open(run).unwrap().evaluations().unwrap();
    let rows = evaluations.iter().flat_map(|evaluation| evaluation.problems().unwrap());
    rows.map(|row| row.map(|row| (row.id, row.judged, row.proved)).unwrap()).collect()
}

fn proved(run: &Path) -> usize {
    let rounds = RunView::open(run).unwrap().rounds().unwrap();
    let rows = rounds.iter().flat_map(|round| round.rollouts().unwrap());
    rows.filter(|row| row.as_ref().unwrap().verdict == Verdict::Proved).count()
}

#[test]
fn a_forged_verdict_is_refused_by_the_coordinator_where_a_check_takes_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let (alone, run) = (dir.path().join("alone"), dir.path().join("run"));
    let with_held_out = |run: &Path, fleet| {
        let mut runner = runner(run, Arc::new(Echo), fleet);
        runner.held_out = runner.targets.split_off(6);
        let config = Arc::make_mut(&mut runner.config);
        config.evaluation =
            EvaluationConfig { samples: 4, every: 1, target_samples: 2, ..config.evaluation.clone() };
        runner
    };
    assert_eq!(with_held_out(&alone, None).work(&mut |_| ()).unwrap(), Outcome::Done);
    let drain = StopFlag::default();
    let runner = with_held_out(&run, by_others(None));
    let lies = Arc::new(AtomicUsize::new(0));
    // Let both workers begin together: if the forger is the only worker, a task fails, and if it starts too late, it
    // never lies.
    let meet = {
        let (run, have_met) = (run.clone(), AtomicBool::new(false));
        Arc::new(move || {
            while !have_met.load(Ordering::SeqCst) {
                let board = client(&run).status_within(Duration::from_secs(60)).unwrap();
                let names = board.workers.iter().map(|stats| stats.worker.as_str());
                let both = names.filter(|name| name.starts_with("verify-")).count() == 2;
                have_met.store(both, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
            }
        })
    };
    let forger = {
        let (lies, forge, check) = (Arc::clone(&lies), says(Verdict::Proved), honest(Echo));
        let meet = Arc::clone(&meet);
        worker(&run, "verify-forger", &drain, move |lease| {
            meet();
            let (forged, right) = (forge(lease)?, check(lease)?);
            let verdicts = |payload: &Payload| -> Vec<Verdict> {
                let judged: VerifyResult = tasks::unpack(payload.as_bytes()).unwrap();
                judged.iter().map(|judged| judged.verdict).collect()
            };
            lies.fetch_add(usize::from(verdicts(&forged) != verdicts(&right)), Ordering::SeqCst);
            Ok(forged)
        })
    };
    let check = honest(Echo);
    let other = worker(&run, "verify-honest", &drain, move |lease| {
        meet();
        check(lease)
    });
    assert_eq!(runner.work(&mut |_| ()).unwrap(), Outcome::Done, "the run goes on");
    drain.set();
    [forger, other].into_iter().for_each(|worker| worker.join().unwrap());
    assert!(lies.load(Ordering::SeqCst) > 0, "or there was nothing to refuse");
    assert_eq!(verdicts(&run), verdicts(&alone), "no lie counts");
    assert_eq!(evaluated(&run), evaluated(&alone), "in no evaluation either");
    assert_eq!(evaluated(&run).len(), 3 * 2 + 6, "held-out problems each time, the targets at first");
}

#[test]
fn proofs_of_a_quick_system_are_verified_in_place_and_again_after_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let (slow_run, quick_run) = (dir.path().join("slow"), dir.path().join("quick"));
    let work = |run: &Path, system: &Arc<Easy>| {
        let system: Arc<dyn FormalSystem> = Arc::clone(system) as Arc<_>;
        assert_eq!(runner(run, system, None).work(&mut |_| ()).unwrap(), Outcome::Done);
    };
    let (slow, quick) =
        (Arc::new(slow()), Arc::new(Easy { is_quick: true, faults: AtomicUsize::new(2), ..slow() }));
    work(&slow_run, &slow);
    work(&quick_run, &quick);
    assert_eq!(slow.in_place.load(Ordering::SeqCst), 0);
    assert!(quick.in_place.load(Ordering::SeqCst) > proved(&quick_run));
    assert_eq!(quick.faults.load(Ordering::SeqCst), 0, "two verifications failed");
    assert!(proved(&quick_run) > 0);
    assert_eq!(verdicts(&quick_run), verdicts(&slow_run));
}

#[test]
fn honest_workers_are_confirmed_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (alone, run) = (dir.path().join("alone"), dir.path().join("run"));
    assert_eq!(runner(&alone, Arc::new(slow()), None).work(&mut |_| ()).unwrap(), Outcome::Done);
    let drain = StopFlag::default();
    let runner = runner(&run, Arc::new(slow()), by_others(Some(1.0)));
    let checked = Arc::new(AtomicUsize::new(0));
    let count = |checked: &Arc<AtomicUsize>| {
        let (checked, check) = (Arc::clone(checked), honest(slow()));
        move |lease: &Lease| {
            checked.fetch_add(1, Ordering::Relaxed);
            check(lease)
        }
    };
    let workers = ["verify-a", "verify-b"].map(|name| worker(&run, name, &drain, count(&checked)));
    assert_eq!(runner.work(&mut |_| ()).unwrap(), Outcome::Done);
    drain.set();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!(verdicts(&run), verdicts(&alone));
    let (all, proved) = (verdicts(&run).len(), proved(&run));
    assert!(proved > 0, "or there was nothing to confirm");
    let checked = checked.load(Ordering::Relaxed);
    assert!(checked > proved && checked <= all + proved + 64, "{checked} checks, {proved} of {all} proved");
}

#[test]
fn workers_that_differ_stop_the_run_and_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let drain = StopFlag::default();
    // Even with a share of 0, proofs of targets that were never solved are rechecked.
    let runner = runner(&run, Arc::new(slow()), by_others(Some(0.0)));
    // Start the other worker after the first lie of the forger, because it depends on chance how many proofs there are
    // and which worker gets them.
    let lied = Arc::new(AtomicBool::new(false));
    let forge = {
        let (lied, forge, check) = (Arc::clone(&lied), says(Verdict::Proved), honest(slow()));
        move |lease: &Lease| {
            let answer = forge(lease)?;
            let verdict = |payload: &Payload| {
                let verdicts: VerifyResult = tasks::unpack(payload.as_bytes()).unwrap();
                verdicts[0].verdict
            };
            if verdict(&check(lease)?) != verdict(&answer) {
                lied.store(true, Ordering::SeqCst);
            }
            Ok(answer)
        }
    };
    let forger = worker(&run, "verify-forger", &drain, forge);
    let other = {
        let (run, drain) = (run.clone(), drain.clone());
        std::thread::spawn(move || {
            while !lied.load(Ordering::SeqCst) && !drain.is_set() {
                std::thread::sleep(Duration::from_millis(5));
            }
            worker(&run, "verify-honest", &drain, honest(slow())).join().unwrap();
        })
    };
    let error = format!("{:#}", runner.work(&mut |_| ()).unwrap_err());
    for part in ["verify-forger reports", "verify-honest reports `refused`"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(proved(&run), 0, "nothing was counted");
    drain.set();
    forger.join().unwrap();
    other.join().unwrap();
}

#[test]
fn what_nobody_can_confirm_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let drain = StopFlag::default();
    let runner = runner(&run, Arc::new(slow()), by_others(Some(1.0)));
    let workers = [
        worker(&run, "verify-forger", &drain, says(Verdict::Proved)),
        worker(&run, "verify-short-of-memory", &drain, says(Verdict::Resource)),
    ];
    assert_eq!(runner.work(&mut |_| ()).unwrap(), Outcome::Done);
    drain.set();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!(proved(&run), 0);
}
