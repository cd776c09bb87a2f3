//! Simulates a cluster by discrete events: how long a round takes, and how busy the workers are.
//!
//! The board is real; time, workers and work are simulated. In a round, every rollout is generated and then verified,
//! either at once (pipelined) or after the whole generation. Workers have several slots and different speeds; some attempts
//! get stuck, and some workers die silently and are replaced.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use sgs_fleet::{
    Backpressure, Board, BoardConfig, LeaseId, LeaseOutcome, Payload, Receipt, Report, Speculation, Task,
    TaskId, TaskResult, Time, WorkKind, WorkerName,
};

const GENERATE: WorkKind = WorkKind::of("generate");
const VERIFY: WorkKind = WorkKind::of("verify");

/// Parameters of a cluster and a round.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Number of rollouts per round. Each is one generation and one verification.
    pub rollouts: u64,
    /// Number of generation workers (GPUs).
    pub gpus: usize,
    /// Slots per generation worker.
    pub slots_per_gpu: usize,
    /// Number of verification workers (nodes).
    pub verifiers: usize,
    /// Slots per verification worker.
    pub slots_per_verifier: usize,
    /// Deaths per worker and hour.
    pub deaths_per_hour: f64,
    /// Fraction of workers that are three times slower, in 0..=1.
    pub slow_share: f64,
    /// Fraction of attempts that get stuck for ten minutes, in 0..=1.
    pub stuck_share: f64,
    /// Whether idle workers get speculative copies.
    pub speculation: bool,
    /// Whether verification overlaps with generation.
    pub pipelining: bool,
    /// Random seed.
    pub seed: u64,
}

impl Scenario {
    /// Returns the paper's scale (section on infrastructure): 64 GPU workers with 128 slots, 128 verification workers with 33
    /// slots, about 40,000 generations per round. One death per hundred worker hours is assumed.
    pub fn paper() -> Self {
        Self {
            rollouts: 40_000,
            gpus: 64,
            slots_per_gpu: 128,
            verifiers: 128,
            slots_per_verifier: 33,
            deaths_per_hour: 0.01,
            slow_share: 0.03,
            stuck_share: 0.0005,
            speculation: true,
            pipelining: true,
            seed: 1,
        }
    }

    /// Multiplies the numbers of rollouts and workers.
    #[must_use]
    pub fn times(mut self, factor: usize) -> Self {
        self.rollouts *= factor as u64;
        self.gpus *= factor;
        self.verifiers *= factor;
        self
    }
}

/// Results of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// Seconds from the first lease to the last verdict.
    pub round_s: f64,
    /// Seconds until the last rollout was generated.
    pub generation_s: f64,
    /// Seconds until 99% of the verdicts were available.
    pub most_s: f64,
    /// Fraction of the generation slots' time spent on accepted outcomes, until the end of generation, in 0..=1.
    pub gpu_use: f64,
    /// Fraction of the verification slots' time spent on accepted outcomes, over the round, in 0..=1.
    pub cpu_use: f64,
    /// Fraction of all slots' busy time spent on outcomes that were not accepted, in 0..=1.
    pub waste: f64,
    /// Number of speculative copies.
    pub copies: u64,
    /// Number of workers that died.
    pub deaths: u64,
    /// Number of tasks that were quarantined.
    pub quarantined: u64,
    /// Number of calls to the board.
    pub calls: u64,
}

/// Lease lifetime, heartbeat interval and polling interval of the simulated workers.
const LEASE: Duration = Duration::from_secs(60);
const BEAT_MS: u64 = 15_000;
const POLL_MS: u64 = 1000;
/// Time until a dead worker's replacement is ready: queue, start, loading of a model.
const REPLACE_MS: u64 = 120_000;
/// Duration of a stuck attempt.
const STUCK_MS: u64 = 600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ask(u32),
    Finish(u32, LeaseId),
    HeartbeatAck(u32),
    Die(u32),
    Born(bool),
}

struct Worker {
    name: WorkerName,
    generates: bool,
    slots: usize,
    slowness: f64,
    /// Running attempts and their start times.
    running: BTreeMap<LeaseId, Time>,
    asking: bool,
    alive: bool,
}

struct Simulation {
    scenario: Scenario,
    board: Board,
    random: fastrand::Rng,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    next_event: u64,
    workers: Vec<Worker>,
    /// Rollouts generated but not yet submitted for verification.
    held_back: Vec<u64>,
    generated: u64,
    verified: u64,
    generation_end: Time,
    most: Time,
    useful_ms: [u64; 2],
    wasted_ms: u64,
    deaths: u64,
    quarantined: u64,
    calls: u64,
}

/// Simulates one round.
pub fn simulate(scenario: Scenario) -> Simulated {
    let config = BoardConfig {
        lease: LEASE,
        speculation: scenario.speculation.then(Speculation::default),
        backpressure: scenario.pipelining.then_some(Backpressure {
            hold: GENERATE,
            while_open: VERIFY,
            limit: scenario.rollouts as usize,
        }),
        ..BoardConfig::default()
    };
    let random = fastrand::Rng::with_seed(scenario.seed);
    let mut simulation = Simulation {
        board: Board::new(config),
        random,
        events: BinaryHeap::new(),
        next_event: 0,
        workers: Vec::new(),
        held_back: Vec::new(),
        generated: 0,
        verified: 0,
        generation_end: Time(0),
        most: Time(0),
        useful_ms: [0; 2],
        wasted_ms: 0,
        deaths: 0,
        quarantined: 0,
        calls: 0,
        scenario,
    };
    simulation.run()
}

impl Simulation {
    fn run(&mut self) -> Simulated {
        for id in 0..self.scenario.rollouts {
            self.submit(Time(0), id, GENERATE);
        }
        for _ in 0..self.scenario.gpus {
            self.born(Time(0), true);
        }
        for _ in 0..self.scenario.verifiers {
            self.born(Time(0), false);
        }
        let mut now = Time(0);
        while self.verified + self.quarantined < self.scenario.rollouts {
            let Some(Reverse((time, _, event))) = self.events.pop() else { break };
            now = time;
            match event {
                Event::Ask(worker) => self.ask(now, worker),
                Event::Finish(worker, lease) => self.finish(now, worker, lease),
                Event::HeartbeatAck(worker) => self.heartbeat_ack(now, worker),
                Event::Die(worker) => self.die(now, worker),
                Event::Born(generates) => self.born(now, generates),
            }
            self.consume(now);
        }
        self.report(now)
    }

    fn report(&mut self, end: Time) -> Simulated {
        // Attempts that are still running are wasted, because their tasks have ended elsewhere.
        for worker in &self.workers {
            self.wasted_ms += worker.running.values().map(|since| end.0 - since.0).sum::<u64>();
        }
        let slot_ms =
            |workers: usize, slots: usize, span: Time| (workers * slots) as f64 * span.0.max(1) as f64;
        let s = &self.scenario;
        let useful = (self.useful_ms[0] + self.useful_ms[1]) as f64;
        Simulated {
            round_s: end.0 as f64 / 1e3,
            generation_s: self.generation_end.0 as f64 / 1e3,
            most_s: self.most.0 as f64 / 1e3,
            gpu_use: self.useful_ms[0] as f64 / slot_ms(s.gpus, s.slots_per_gpu, self.generation_end),
            cpu_use: self.useful_ms[1] as f64 / slot_ms(s.verifiers, s.slots_per_verifier, end),
            waste: self.wasted_ms as f64 / (self.wasted_ms as f64 + useful),
            copies: self.board.counters().copies,
            deaths: self.deaths,
            quarantined: self.quarantined,
            calls: self.calls,
        }
    }

    fn at(&mut self, time: Time, event: Event) {
        self.next_event += 1;
        self.events.push(Reverse((time, self.next_event, event)));
    }

    fn after(&mut self, now: Time, ms: u64, event: Event) {
        self.at(Time(now.0 + ms), event);
    }

    fn submit(&mut self, now: Time, id: u64, kind: WorkKind) {
        let id = TaskId(2 * id + u64::from(kind == VERIFY));
        self.calls += 1;
        // Ids are unique and the board is large enough, so this cannot fail.
        let _ = self.board.submit(now, Task { id, kind, priority: 0, payload: Payload::from("") });
    }

    fn born(&mut self, now: Time, generates: bool) {
        let number = self.workers.len() as u32;
        let Ok(name) = WorkerName::new(&format!("{}-{number}", if generates { "gpu" } else { "cpu" })) else {
            return;
        };
        let slow = self.random.f64() < self.scenario.slow_share;
        let slots = if generates { self.scenario.slots_per_gpu } else { self.scenario.slots_per_verifier };
        let slowness = if slow { 3.0 } else { 0.9 + 0.2 * self.random.f64() };
        self.workers.push(Worker {
            name,
            generates,
            slots,
            slowness,
            running: BTreeMap::new(),
            asking: true,
            alive: true,
        });
        let jitter = self.random.u64(0..POLL_MS);
        self.after(now, jitter, Event::Ask(number));
        self.after(now, jitter + BEAT_MS, Event::HeartbeatAck(number));
        let hours = -(1.0 - self.random.f64()).ln() / self.scenario.deaths_per_hour.max(1e-9);
        self.after(now, (hours * 3.6e6).min(1e15) as u64, Event::Die(number));
    }

    fn ask(&mut self, now: Time, number: u32) {
        let worker = &mut self.workers[number as usize];
        worker.asking = false;
        if !worker.alive || worker.running.len() >= worker.slots {
            return;
        }
        let kind = if worker.generates { GENERATE } else { VERIFY };
        self.calls += 1;
        let leases = self.board.lease(now, &worker.name, &kind, worker.slots - worker.running.len());
        for lease in leases {
            let ms = self.duration(number, lease.task);
            self.workers[number as usize].running.insert(lease.id(), now);
            self.after(now, ms, Event::Finish(number, lease.id()));
        }
        if self.workers[number as usize].running.len() < self.workers[number as usize].slots {
            self.ask_later(now, number, POLL_MS);
        }
    }

    fn ask_later(&mut self, now: Time, number: u32, ms: u64) {
        let worker = &mut self.workers[number as usize];
        if worker.alive && !worker.asking {
            worker.asking = true;
            self.after(now, ms, Event::Ask(number));
        }
    }

    /// Returns the duration of an attempt in milliseconds. The part due to the task (tokens, proof steps) is the same for all
    /// its attempts.
    fn duration(&mut self, worker: u32, task: TaskId) -> u64 {
        let mut of_task =
            fastrand::Rng::with_seed(self.scenario.seed ^ task.0.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let normal = {
            let (a, b) = (1.0 - of_task.f64(), of_task.f64());
            (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
        };
        let worker = &self.workers[worker as usize];
        let seconds = if worker.generates {
            // The number of tokens has a median of 600, a long tail and a maximum of 8,192. A token takes 25 ms with
            // all slots busy.
            (600.0 * normal.exp()).clamp(20.0, 8192.0) * 0.025
        } else {
            // The time has a median of 6 s, a heavy tail and a maximum of 200 s, the time limit.
            (6.0 * (1.2 * normal).exp()).clamp(1.0, 200.0)
        };
        let stuck = self.random.f64() < self.scenario.stuck_share;
        (seconds * worker.slowness * 1e3) as u64 + if stuck { STUCK_MS } else { 0 }
    }

    fn finish(&mut self, now: Time, number: u32, lease: LeaseId) {
        let worker = &mut self.workers[number as usize];
        // The lease was abandoned, or the worker died.
        let Some(since) = worker.running.remove(&lease) else { return };
        let took = now.0 - since.0;
        let report = Report {
            task: lease.task,
            attempt: lease.attempt,
            outcome: LeaseOutcome::Done(Payload::from("")),
        };
        self.calls += 1;
        match self.board.report(now, &worker.name, report) {
            Receipt::Accepted => self.useful_ms[usize::from(!worker.generates)] += took,
            _ => self.wasted_ms += took,
        }
        self.ask_later(now, number, 0);
    }

    fn heartbeat_ack(&mut self, now: Time, number: u32) {
        let worker = &mut self.workers[number as usize];
        if !worker.alive {
            return;
        }
        let held: Vec<LeaseId> = worker.running.keys().copied().collect();
        self.calls += 1;
        for lease in self.board.heartbeat(now, &worker.name, &held).abandon {
            if let Some(since) = worker.running.remove(&lease) {
                self.wasted_ms += now.0 - since.0;
            }
        }
        self.ask_later(now, number, 0);
        self.after(now, BEAT_MS, Event::HeartbeatAck(number));
    }

    /// Lets a worker die silently.
    fn die(&mut self, now: Time, number: u32) {
        let worker = &mut self.workers[number as usize];
        worker.alive = false;
        self.wasted_ms +=
            std::mem::take(&mut worker.running).values().map(|since| now.0 - since.0).sum::<u64>();
        self.deaths += 1;
        let generates = worker.generates;
        self.after(now, REPLACE_MS, Event::Born(generates));
    }

    fn consume(&mut self, now: Time) {
        while let Some(finished) = self.board.next_finished() {
            let rollout = finished.task.0 / 2;
            self.board.remove(finished.task);
            self.calls += 2;
            match finished.result {
                TaskResult::Quarantined { .. } => self.quarantined += 1,
                TaskResult::Done { .. } if finished.kind == GENERATE => self.sampled(now, rollout),
                TaskResult::Done { .. } => {
                    self.verified += 1;
                    if self.verified * 100 <= self.scenario.rollouts * 99 {
                        self.most = now;
                    }
                }
            }
        }
    }

    fn sampled(&mut self, now: Time, rollout: u64) {
        self.generated += 1;
        if self.generated + self.quarantined == self.scenario.rollouts {
            self.generation_end = now;
        }
        if self.scenario.pipelining {
            self.submit(now, rollout, VERIFY);
            return;
        }
        self.held_back.push(rollout);
        if self.generated + self.quarantined == self.scenario.rollouts {
            for rollout in std::mem::take(&mut self.held_back) {
                self.submit(now, rollout, VERIFY);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Scenario {
        Scenario { rollouts: 6000, gpus: 8, verifiers: 16, ..Scenario::paper() }
    }

    #[test]
    fn a_round_ends_and_every_rollout_counts_once() {
        let hard = Scenario { deaths_per_hour: 6.0, stuck_share: 0.01, ..small() };
        for scenario in [small(), Scenario { speculation: false, ..small() }, hard] {
            let result = simulate(scenario);
            assert_eq!(result.quarantined, 0, "{result:?}");
            assert!(result.gpu_use > 0.2 && result.gpu_use <= 1.0, "{result:?}");
            assert!(result.generation_s <= result.round_s && result.most_s <= result.round_s, "{result:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_round() {
        assert_eq!(simulate(small()), simulate(small()));
    }

    #[test]
    fn pipelining_and_speculation_shorten_the_round() {
        let of = |speculation, pipelining| {
            let rounds =
                (1..=3).map(|seed| simulate(Scenario { speculation, pipelining, seed, ..small() }).round_s);
            rounds.sum::<f64>()
        };
        let (both, no_copies, one_by_one) = (of(true, true), of(false, true), of(true, false));
        assert!(both < 0.8 * no_copies, "{both} s with copies, {no_copies} s without");
        assert!(both < 0.9 * one_by_one, "{both} s pipelined, {one_by_one} s sequentially");
    }
}
