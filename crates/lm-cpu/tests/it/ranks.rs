//! Training with several ranks: the result is that of one rank, any number of ranks can read the checkpoints, and
//! errors name the lost rank.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sgs_base::random::SeededRng;
use sgs_lm::checkpoint::{self, SaveOptions, Snapshot};
use sgs_lm::config::{Family, ModelConfig};
use sgs_lm::loss::{LossConfig, Normaliser, Objective, TrainExample};
use sgs_lm::model::{Mode, Model};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::ranks::{Parallel, ProcessGroup, RankConfig, Rendezvous};
use sgs_lm::testing::small_shape;
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};
use sgs_lm::weights::{FileType, HostWeights};
use sgs_lm::{LmError, Result};
use sgs_lm_cpu::Cpu;

fn shape(tied: bool) -> ModelConfig {
    ModelConfig {
        vocab_size: 43,
        hidden_size: 24,
        intermediate_size: 40,
        layers: 3,
        heads: 4,
        kv_heads: 2,
        head_dim: 6,
        tied_head: tied,
        qkv_bias: tied,
        family: if tied { Family::Qwen2 } else { Family::Llama },
        ..small_shape()
    }
}

/// Creates sequences of different lengths, some of weight 0.
fn examples(seed: u64) -> Vec<TrainExample> {
    let mut rng = SeededRng::stream(seed, 0);
    (0..26)
        .map(|i| TrainExample {
            tokens: (0..6 + i % 11).map(|_| rng.index(43) as u32).collect(),
            prompt_len: 1 + i % 3,
            weight: if i % 7 == 3 { 0.0 } else { rng.normal() },
            group: i as u32 / 4,
            ..TrainExample::default()
        })
        .collect()
}

fn options(normaliser: Normaliser) -> TrainOptions {
    TrainOptions {
        loss: LossConfig::new(Objective::Reinforce, normaliser),
        adam: AdamConfig { learning_rate: 1e-3, weight_decay: 0.1, ..AdamConfig::default() },
        schedule: LrSchedule::Cosine { warmup: 2, total: 40, floor: 0.1 },
        batch_size: 6,
        shuffle_seed: Some(5),
    }
}

fn place(dir: &Path, rank: usize, ranks: usize) -> RankConfig {
    RankConfig {
        rank,
        ranks,
        rendezvous: Rendezvous::File(dir.join("rendezvous")),
        token: "a token of this test".to_owned(),
        job: "test".to_owned(),
        host: "here".to_owned(),
        log: Some(PathBuf::from(format!("rank-{rank}.log"))),
        patience: Duration::from_secs(120),
        exit_after_loss: None,
    }
}

/// Creates a trainer of one of several ranks.
fn trainer(dir: &Path, rank: usize, ranks: usize, config: &ModelConfig, mode: Mode) -> Result<Trainer<Cpu>> {
    let device = Arc::new(Cpu::new(1)?);
    let peers = match ranks {
        1 => None,
        _ => Some(Cpu::connect(&device, ProcessGroup::join(place(dir, rank, ranks))?)?),
    };
    Trainer::with_peers(device, config, 20, mode, peers)
}

/// Runs every rank in a thread; returns the results in the order of ranks.
fn on_ranks<T: Send>(ranks: usize, act: impl Fn(&Path, usize) -> T + Sync) -> Vec<T> {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = (0..ranks)
            .map(|rank| {
                let dir = dir.path();
                scope.spawn(move || act(dir, rank))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn fresh(trainer: &mut Trainer<Cpu>, config: &ModelConfig) -> Policy<Cpu> {
    let model = Model::new(Arc::new(Cpu::new(1).unwrap()), HostWeights::random(config, 3), 64).unwrap();
    let shard = trainer.shard(&model.layout);
    Policy::of_shard(model, shard).unwrap()
}

/// Loss, gradient norm and number of tokens of every step, and the weights afterwards.
type Curve = (Vec<(f64, f64, usize)>, Vec<f32>);

fn pass(trainer: &mut Trainer<Cpu>, policy: &mut Policy<Cpu>, normaliser: Normaliser, seed: u64) -> Curve {
    let mut losses = Vec::new();
    trainer
        .train(policy, &examples(seed), &options(normaliser), |s| {
            losses.push((s.stats.loss, s.gradient_norm, s.tokens));
        })
        .unwrap();
    (losses, policy.model.params.to_vec())
}

#[track_caller]
fn assert_same(got: &Curve, want: &Curve, what: &str) {
    assert_eq!(got.0.len(), want.0.len(), "{what}");
    for (g, w) in got.0.iter().zip(&want.0) {
        assert!(
            (g.0 - w.0).abs() < 1e-6 && (g.1 - w.1).abs() < 1e-5 * w.1.max(1.0),
            "{what}: {g:?} for {w:?}"
        );
        assert_eq!(g.2, w.2, "{what}");
    }
    // Adam divides by the square root of small numbers, so rounding errors grow to a fraction of a step.
    let far = got.1.iter().zip(&want.1).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
    assert!(far < 2e-5, "{what}: weights differ by {far}");
}

#[test]
fn any_number_of_ranks_trains_like_one() {
    for (tied, normaliser, mode) in [
        (false, Normaliser::Sequence, Mode::Train),
        (true, Normaliser::Token, Mode::TrainRecompute { kept: 1 }),
        (true, Normaliser::Group, Mode::Train),
    ] {
        let config = shape(tied);
        let run = |dir: &Path, rank: usize, ranks: usize| {
            let mut trainer = trainer(dir, rank, ranks, &config, mode).unwrap();
            let mut policy = fresh(&mut trainer, &config);
            let curve = pass(&mut trainer, &mut policy, normaliser, 1);
            if let Some(group) = trainer.group() {
                group.finish();
            }
            curve
        };
        let want = run(Path::new("unused"), 0, 1);
        for ranks in [2, 3, 4] {
            let curves = on_ranks(ranks, |dir, rank| run(dir, rank, ranks));
            for curve in &curves {
                assert_same(curve, &want, &format!("{ranks} ranks, tied {tied}, {normaliser:?}"));
                // Every rank reports the same numbers and has the same weights, bit for bit.
                assert!(curve.0 == curves[0].0 && curve.1 == curves[0].1);
            }
        }
    }
}

#[test]
fn any_number_of_ranks_resumes_from_any_checkpoint() {
    let config = shape(false);
    let normaliser = Normaliser::Sequence;
    let mut alone = trainer(Path::new("unused"), 0, 1, &config, Mode::Train).unwrap();
    let mut policy = fresh(&mut alone, &config);
    pass(&mut alone, &mut policy, normaliser, 1);
    let want = pass(&mut alone, &mut policy, normaliser, 2);
    for (writers, readers, file_type) in [
        (4, 2, FileType::F32),
        (2, 3, FileType::Bf16),
        (3, 1, FileType::F32),
        (2, 1, FileType::Bf16),
        (1, 4, FileType::Bf16),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let saved = folder.path().join("checkpoint");
        let save =
            SaveOptions { file_type, extra: serde_json::json!({"at": writers}), ..SaveOptions::default() };
        on_ranks(writers, |dir, rank| {
            let mut trainer = trainer(dir, rank, writers, &config, Mode::Train).unwrap();
            let mut policy = fresh(&mut trainer, &config);
            pass(&mut trainer, &mut policy, normaliser, 1);
            match trainer.group() {
                Some(group) => {
                    checkpoint::save_together(&saved, &policy, &save, group).unwrap();
                    group.finish();
                }
                None => checkpoint::save(&saved, &policy, &save).unwrap(),
            }
        });
        let curves = on_ranks(readers, |dir, rank| {
            let mut trainer = trainer(dir, rank, readers, &config, Mode::Train).unwrap();
            let device = Arc::new(Cpu::new(1).unwrap());
            let (mut policy, extra) = checkpoint::load_for_rank(&saved, device, 64, (rank, readers)).unwrap();
            assert_eq!(extra["at"], writers);
            let curve = pass(&mut trainer, &mut policy, normaliser, 2);
            if let Some(group) = trainer.group() {
                group.finish();
            }
            curve
        });
        for curve in curves {
            assert_same(&curve, &want, &format!("{writers} to {readers} ranks, {file_type:?}"));
        }
        let other = Model::load(Arc::new(Cpu::new(1).unwrap()), &saved, 64).unwrap();
        assert_eq!(other.config, config);
    }
}

#[test]
fn a_damaged_part_of_a_checkpoint_is_named() {
    let config = shape(false);
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("checkpoint");
    on_ranks(2, |dir, rank| {
        let mut trainer = trainer(dir, rank, 2, &config, Mode::Train).unwrap();
        let policy = fresh(&mut trainer, &config);
        let group = trainer.group().unwrap();
        checkpoint::save_together(&saved, &policy, &SaveOptions::default(), group).unwrap();
        group.finish();
    });
    let load = || match checkpoint::load(&saved, Arc::new(Cpu::new(1).unwrap()), 64) {
        Ok(_) => "loaded".to_owned(),
        Err(e) => e.to_string(),
    };
    assert_eq!(load(), "loaded");
    let parts = ["optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"]
        .map(|p| saved.join(p));
    let whole = std::fs::read(&parts[1]).unwrap();
    std::fs::write(&parts[1], &whole[..whole.len() - 4]).unwrap();
    assert!(load().contains("optimizer-00002-of-00002.safetensors"), "{}", load());
    std::fs::remove_file(&parts[1]).unwrap();
    assert!(load().contains("optimizer-00002-of-00002.safetensors"), "{}", load());
}

#[test]
fn a_save_that_fails_on_one_rank_fails_on_all_and_leaves_the_old_checkpoint() {
    let config = shape(false);
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("checkpoint");
    let errors = on_ranks(2, |dir, rank| {
        let mut trainer = trainer(dir, rank, 2, &config, Mode::Train).unwrap();
        let mut policy = fresh(&mut trainer, &config);
        let save = SaveOptions { file_type: FileType::Bf16, ..SaveOptions::default() };
        checkpoint::save_together(&saved, &policy, &save, trainer.group().unwrap()).unwrap();
        // Only rank 1's part has the NaN; rank 0 writes the model from its own memory.
        if rank == 1 {
            let at = policy.shard.pieces[0].from;
            Arc::get_mut(&mut policy.model).unwrap().params[at] = f32::NAN;
        }
        let error = checkpoint::save_together(&saved, &policy, &save, trainer.group().unwrap()).unwrap_err();
        trainer.group().unwrap().finish();
        error.to_string()
    });
    assert!(errors[0].contains("rank 1") && errors[0].contains("rank-1.log"), "{}", errors[0]);
    assert!(errors[1].contains("master") && errors[1].contains("NaN"), "{}", errors[1]);
    checkpoint::load(&saved, Arc::new(Cpu::new(1).unwrap()), 64).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing temporary is left");
}

#[test]
fn a_rank_that_stops_is_named_by_all_others() {
    let config = shape(false);
    let errors = on_ranks(4, |dir, rank| {
        let mut trainer = trainer(dir, rank, 4, &config, Mode::Train).unwrap();
        let mut policy = fresh(&mut trainer, &config);
        let examples = examples(1);
        let batch: Vec<&TrainExample> = examples.iter().take(8).collect();
        for step in 0.. {
            if rank == 2 && step == 3 {
                trainer.group().unwrap().fail("its disk is on fire");
                return "stopped".to_owned();
            }
            if let Err(error) = trainer.step(&mut policy, &batch, &options(Normaliser::Token)) {
                assert!(matches!(error, LmError::Rank { .. }), "{error}");
                return error.to_string();
            }
        }
        String::new()
    });
    for (rank, error) in errors.iter().enumerate().filter(|(rank, _)| *rank != 2) {
        for part in ["rank 2 ", "host here", "rank-2.log", "disk is on fire"] {
            assert!(error.contains(part), "rank {rank}: {error}");
        }
    }
}

#[test]
fn a_rank_that_disconnects_is_named() {
    for leaver in [0, 1] {
        let errors = on_ranks(3, |dir, rank| {
            let mut group = ProcessGroup::join(place(dir, rank, 3)).unwrap();
            if rank == leaver {
                return String::new();
            }
            group.barrier().unwrap_err().to_string()
        });
        for (_, error) in errors.iter().enumerate().filter(|(rank, _)| *rank != leaver) {
            assert!(error.contains(&format!("rank {leaver} ")), "{error}");
        }
    }
}

#[test]
fn numbers_are_exchanged_in_the_order_of_ranks() {
    let rows = on_ranks(3, |dir, rank| {
        let mut group = ProcessGroup::join(place(dir, rank, 3)).unwrap();
        let mut rows = Vec::new();
        for turn in 0..50 {
            rows.push(group.exchange(&[rank as f64, f64::from(turn)]).unwrap());
        }
        let mut sums = [1.0, rank as f64];
        group.sum(&mut sums).unwrap();
        assert_eq!(sums, [3.0, 3.0]);
        let told = group.broadcast(if rank == 0 { b"secret" } else { b"" }).unwrap();
        assert_eq!(told, b"secret");
        assert_eq!(group.members().iter().map(|m| m.rank).collect::<Vec<_>>(), [0, 1, 2]);
        group.finish();
        rows
    });
    let want: Vec<Vec<Vec<f64>>> =
        (0..50).map(|turn| (0..3).map(|rank| vec![f64::from(rank), f64::from(turn)]).collect()).collect();
    assert!(rows.iter().all(|r| *r == want));
}

#[test]
fn a_snapshot_of_rank_0_and_the_other_ranks_parts_form_a_checkpoint() {
    let config = shape(false);
    for file_type in [FileType::F32, FileType::Bf16] {
        let folder = tempfile::tempdir().unwrap();
        let [together, copied] = ["together", "copied"].map(|name| folder.path().join(name));
        std::fs::create_dir(&copied).unwrap();
        let save = SaveOptions { file_type, ..SaveOptions::default() };
        let errors = on_ranks(3, |dir, rank| {
            let mut trainer = trainer(dir, rank, 3, &config, Mode::Train).unwrap();
            let mut policy = fresh(&mut trainer, &config);
            pass(&mut trainer, &mut policy, Normaliser::Token, 1);
            let group = trainer.group().unwrap();
            checkpoint::save_together(&together, &policy, &save, group).unwrap();
            let mut early = String::new();
            if rank == 0 {
                let (commands, copy) = (group.command_channel(), Snapshot::over(None, &policy).unwrap());
                early = copy.complete(&copied, &save).unwrap_err().to_string();
                commands.send(b"save").unwrap();
                copy.save_part(&copied, &save).unwrap();
                commands.wait().unwrap();
                copy.complete(&copied, &save).unwrap();
            } else {
                assert_eq!(group.next_command().unwrap().unwrap(), b"save");
                checkpoint::save_part(&copied, &policy, &save).unwrap();
                group.acknowledge(Ok(())).unwrap();
                assert_eq!(group.next_command().unwrap(), None);
            }
            group.finish();
            early
        });
        assert!(errors[0].contains("optimizer-00001-of-00003"), "{}", errors[0]);
        let files = |dir: &Path| -> Vec<(String, Vec<u8>)> {
            let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap());
            let file = |e: std::fs::DirEntry| {
                (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap())
            };
            let mut files: Vec<_> = entries.map(file).collect();
            files.sort();
            files
        };
        assert!(files(&together).len() > 5 && files(&together) == files(&copied));
    }
}

#[test]
fn commands_of_any_size_are_executed_at_any_time_and_failures_are_named() {
    let order = |turn: usize| vec![turn as u8; [0, 1, 70 << 20, 3][turn % 4]];
    let ends = on_ranks(3, |dir, rank| {
        let mut group = ProcessGroup::join(place(dir, rank, 3)).unwrap();
        if rank == 0 {
            let commands = group.command_channel();
            for turn in 0..4 {
                commands.send(&order(turn)).unwrap();
            }
            commands.wait().unwrap();
            commands.send(b"impossible").unwrap();
            let error = commands.wait().unwrap_err().to_string();
            commands.check().unwrap();
            group.finish();
            return error;
        }
        for turn in 0..4 {
            assert!(group.next_command().unwrap().unwrap() == order(turn), "order {turn}");
        }
        group.acknowledge(Ok(())).unwrap();
        assert_eq!(group.next_command().unwrap().unwrap(), b"impossible");
        group.acknowledge(if rank == 2 { Err("its disk is full") } else { Ok(()) }).unwrap();
        let end = group.next_command();
        group.finish();
        format!("{end:?}")
    });
    for part in ["rank 2 (host here", "rank-2.log", "its disk is full"] {
        assert!(ends[0].contains(part), "{}", ends[0]);
    }
    assert_eq!(ends[1..], ["Ok(None)", "Ok(None)"]);
}

#[test]
fn leaving_is_announced_before_the_process_group_is_dropped() {
    let heard = AtomicUsize::new(0);
    on_ranks(3, |dir, rank| {
        let mut group = ProcessGroup::join(place(dir, rank, 3)).unwrap();
        if rank == 0 {
            group.finish();
            group.leave();
            // Simulates a communicator of GPUs, which all ranks must destroy together.
            let begun = Instant::now();
            while heard.load(Ordering::SeqCst) < 2 {
                assert!(begun.elapsed() < Duration::from_secs(60), "the others still wait for orders");
                std::thread::sleep(Duration::from_millis(5));
            }
            return;
        }
        assert_eq!(group.next_command().unwrap(), None);
        heard.fetch_add(1, Ordering::SeqCst);
        group.finish();
    });
}

#[test]
fn no_acknowledgement_is_awaited_from_a_lost_rank() {
    let ends = on_ranks(3, |dir, rank| {
        let mut group = ProcessGroup::join(place(dir, rank, 3)).unwrap();
        match rank {
            0 => group.command_channel().wait().unwrap_err().to_string(),
            1 => group.next_command().unwrap_err().to_string(),
            _ => {
                group.fail("its disk is on fire");
                String::new()
            }
        }
    });
    for end in &ends[..2] {
        assert!(end.contains("rank 2 (host here") && end.contains("disk is on fire"), "{end}");
    }
}

#[test]
fn ranks_that_do_not_connect_or_do_not_match_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let hurried = |dir: &Path, rank, ranks| RankConfig {
        patience: Duration::from_millis(300),
        ..place(dir, rank, ranks)
    };
    let error = ProcessGroup::join(hurried(dir.path(), 0, 3)).unwrap_err().to_string();
    assert!(error.contains("ranks 1, 2") && error.contains("rendezvous"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let error = ProcessGroup::join(hurried(dir.path(), 1, 2)).unwrap_err().to_string();
    assert!(error.contains("rank 1 waited") && error.contains("rank 0"), "{error}");
    let error = ProcessGroup::join(place(dir.path(), 2, 2)).unwrap_err().to_string();
    assert!(error.contains("no rank 2 of 2"), "{error}");
    let open = RankConfig {
        rendezvous: Rendezvous::Address("127.0.0.1:0".to_owned()),
        token: String::new(),
        ..place(dir.path(), 0, 2)
    };
    let error = ProcessGroup::join(open).unwrap_err().to_string();
    assert!(error.contains("SGS_TOKEN"), "{error}");

    let errors = on_ranks(2, |dir, rank| {
        let own = RankConfig { job: format!("job {rank}"), ..place(dir, rank, 2) };
        ProcessGroup::join(own).unwrap_err().to_string()
    });
    assert!(
        errors.iter().all(|e| e.contains("rank 1 (host here") && e.contains("different job")),
        "{errors:?}"
    );
    let errors = on_ranks(2, |dir, rank| {
        // Rank 0 times out, after the other rank has had enough time to connect.
        let patience = Duration::from_secs(if rank == 0 { 5 } else { 60 });
        let own = RankConfig { token: format!("token {rank}"), patience, ..place(dir, rank, 2) };
        ProcessGroup::join(own).unwrap_err().to_string()
    });
    assert!(errors[0].contains("rank 1"), "{errors:?}");
    assert!(errors[1].contains("has another token than this rank"), "{errors:?}");
}

/// A foreign server listens at rank 0's address: in plain text, or over TLS with its own key.
#[test]
fn a_rank_says_nothing_to_a_stranger_in_place_of_rank_0() {
    for over_tls in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stranger = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut heard = Vec::new();
            if over_tls {
                let own = sgs_tls::Identity::from_secret("the key of a stranger").server();
                assert!(sgs_tls::TlsStream::accept(socket, &own).is_err(), "the rank accepts another key");
            } else {
                heard.resize(4096, 0);
                let read = socket.read(&mut heard).unwrap();
                heard.truncate(read);
                socket.write_all(&[0; 64]).unwrap();
                let _ = socket.read_to_end(&mut heard);
            }
            heard
        });
        let dir = tempfile::tempdir().unwrap();
        let rank = RankConfig { rendezvous: Rendezvous::Address(address), ..place(dir.path(), 1, 2) };
        let secret = rank.token.clone();
        let error = ProcessGroup::join(rank).unwrap_err().to_string();
        assert!(error.contains("has another token than this rank"), "{error}");
        let heard = stranger.join().unwrap();
        assert!(over_tls || !heard.is_empty());
        assert!(!heard.windows(secret.len()).any(|part| part == secret.as_bytes()), "it heard the token");
    }
}

/// Rank 0 has the token, but its table does not name every rank once.
#[test]
fn a_wrong_table_of_ranks_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let own = place(dir.path(), 1, 2);
    let member = |rank| serde_json::json!({"rank": rank, "host": "h", "pid": 1, "log": null, "address": "127.0.0.1:1"});
    for table in [vec![], vec![member(0)], vec![member(1), member(0)], vec![member(0), member(1), member(2)]]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let identity = sgs_tls::Identity::from_secret(&own.token).server();
        let rank_0 = std::thread::spawn(move || {
            let stream = sgs_tls::TlsStream::accept(listener.accept().unwrap().0, &identity).unwrap();
            let table = serde_json::to_vec(&table).unwrap();
            (&stream).write_all(&[&[2][..], &(table.len() as u32).to_le_bytes(), &table].concat()).unwrap();
            let _ = (&stream).read_to_end(&mut Vec::new());
        });
        let error =
            ProcessGroup::join(RankConfig { rendezvous: Rendezvous::Address(address), ..own.clone() });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("does not name the ranks 0 to 1"), "{error}");
        rank_0.join().unwrap();
    }
}

/// Foreign clients connect to rank 0 before the other rank does: a silent one, one in plain text, and one over TLS with
/// a wrong token.
#[test]
fn rank_0_ignores_strangers() {
    let hello = |token: &str| {
        let member =
            serde_json::json!({"rank": 1, "host": "away", "pid": 1, "log": null, "address": "127.0.0.1:1"});
        let hello = serde_json::json!({"magic": "sgs-ranks-3", "token": token, "job": "test", "ranks": 2, "member": member});
        let hello = hello.to_string();
        [&[1][..], &(hello.len() as u32).to_le_bytes(), hello.as_bytes()].concat()
    };
    let hosts = on_ranks(2, |dir, rank| {
        let own = place(dir, rank, 2);
        if rank == 1 {
            let rendezvous = dir.join("rendezvous");
            let address = loop {
                match std::fs::read_to_string(&rendezvous) {
                    Ok(address) => break address,
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            };
            let connect = || TcpStream::connect(address.trim()).unwrap();
            // One after the other, they would delay rank 0 beyond its patience.
            let _silent: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
            connect().write_all(&hello(&own.token)).unwrap();
            // The key of rank 0 is public.
            let key = sgs_tls::Identity::from_secret(&own.token).fingerprint();
            let stream = sgs_tls::TlsStream::connect(connect(), key).unwrap();
            (&stream).write_all(&hello("a wrong token")).unwrap();
            let mut reply = Vec::new();
            let _ = (&stream).read_to_end(&mut reply);
            assert!(reply.is_empty(), "a stranger got {} bytes", reply.len());
        }
        let mut group = ProcessGroup::join(own).unwrap();
        group.barrier().unwrap();
        group.finish();
        group.members()[1].host.clone()
    });
    assert_eq!(hosts, ["here", "here"]);
}

#[test]
fn a_gradient_that_is_not_finite_is_named_on_every_rank() {
    let config = shape(false);
    let errors = on_ranks(2, |dir, rank| {
        let mut trainer = trainer(dir, rank, 2, &config, Mode::Train).unwrap();
        let mut weights = HostWeights::random(&config, 3);
        let at = weights.layout.layers[1].down.offset;
        weights.data[at] = f32::NAN;
        let model = Model::new(Arc::new(Cpu::new(1).unwrap()), weights, 64).unwrap();
        let shard = trainer.shard(&model.layout);
        let mut policy = Policy::of_shard(model, shard).unwrap();
        let examples = examples(1);
        let batch: Vec<&TrainExample> = examples.iter().take(6).collect();
        let error = trainer.step(&mut policy, &batch, &options(Normaliser::Token)).unwrap_err();
        trainer.group().unwrap().finish();
        error.to_string()
    });
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].contains("not finite") && errors[0].contains("gradient of "), "{}", errors[0]);
}
