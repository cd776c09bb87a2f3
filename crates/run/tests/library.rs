//! A run as a library, with a formal system that this crate has never seen: the example's.
#![allow(clippy::unwrap_used)]

#[path = "../examples/echo/system.rs"]
mod system;

use sgs_run::config::{self, Layers};
use sgs_run::lm::Cpu;
use sgs_run::{Interrupt, Outcome, RunEvent, Runner, folder, policies};
use sgs_rundir::RunView;
use std::path::Path;
use std::sync::Arc;

fn runner(folder: &Path, rounds: u32) -> Runner<Cpu> {
    let set = vec![
        format!("rounds={rounds}"),
        "sampling.solver_tokens=4".to_owned(),
        "sampling.batch=64".to_owned(),
    ];
    let config = config::resolve(&Layers { set, ..Layers::default() }, std::iter::empty()).unwrap().config;
    Runner {
        run: Arc::new(folder::begin(&config, folder).unwrap()),
        base: policies::base_folder(&config, &folder.join("base")).unwrap(),
        system: Arc::new(system::Echo),
        targets: system::targets(),
        device: Arc::new(Cpu::new(2).unwrap()),
        config: Arc::new(config),
        interrupt: Interrupt::default(),
        fleet: None,
        meeting: None,
    }
}

#[test]
fn a_run_tells_what_happens_and_leaves_it_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("run");
    let (mut boards, mut stages, mut finished, mut published) = (0, Vec::new(), Vec::new(), Vec::new());
    let outcome = runner(&folder, 2)
        .work(&mut |event| match event {
            RunEvent::Board(_) => boards += 1,
            RunEvent::Stage { round, stage, .. } => stages.push((round, stage.as_str())),
            RunEvent::RoundFinished { outcome, metrics } => {
                assert_eq!(outcome.round, metrics.round);
                assert_eq!(outcome.targets().count(), 8);
                finished.push(outcome.round);
            }
            RunEvent::RoundPublished { round, .. } => published.push(round),
            RunEvent::Warning(text) => panic!("{text}"),
            _ => {}
        })
        .unwrap();
    assert_eq!(outcome, Outcome::Done);
    assert_eq!((boards, finished, published), (1, vec![0, 1], vec![0, 1]));
    assert_eq!(stages, [(0, "sampling"), (0, "updating"), (1, "sampling"), (1, "updating")]);
    let view = RunView::open(&folder).unwrap();
    assert_eq!(view.rounds().unwrap().len(), 2);
    assert_eq!(view.state().unwrap().next_round, 2);
}

#[test]
fn an_interrupt_ends_a_run_that_can_be_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("run");
    let first = runner(&folder, 3);
    let stop = first.interrupt.flag();
    let outcome = first
        .work(&mut |event| {
            if let RunEvent::Stage { round: 1, .. } = event {
                stop.store(true, std::sync::atomic::Ordering::Release);
            }
        })
        .unwrap();
    assert_eq!(outcome, Outcome::Interrupted);
    let (run, config) = folder::reopen(&folder).unwrap();
    let base = policies::base_folder(&config, &folder.join("base")).unwrap();
    let again = Runner {
        run: Arc::new(run),
        base,
        system: Arc::new(system::Echo),
        targets: system::targets(),
        device: Arc::new(Cpu::new(2).unwrap()),
        config: Arc::new(config),
        interrupt: Interrupt::default(),
        fleet: None,
        meeting: None,
    };
    assert_eq!(again.work(&mut |_| ()).unwrap(), Outcome::Done);
    assert_eq!(RunView::open(&folder).unwrap().rounds().unwrap().len(), 3);
}
