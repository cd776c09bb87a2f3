//! Fuzz test of the messages among ranks.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../../../../fleet/tests/it/fuzzing/mod.rs"]
mod fuzzing;

use super::*;
use fuzzing::Fuzzer;

fn message(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind][..], &(payload.len() as u32).to_le_bytes(), payload].concat()
}

#[test]
#[ignore = "as long as SGS_FUZZ_SECONDS says, 10 s otherwise"]
fn fuzz_messages_of_ranks() {
    let config = RankConfig {
        rank: 1,
        ranks: 3,
        rendezvous: Rendezvous::Address("127.0.0.1:1".into()),
        token: "a token of this test".into(),
        job: "{}".into(),
        host: "here".into(),
        log: Some("/log".into()),
        patience: Duration::from_secs(1),
        exit_after_loss: None,
    };
    let members: Vec<RankInfo> =
        (0..3).map(|rank| RankConfig { rank, ..config.clone() }.member(([127, 0, 0, 1], 9).into())).collect();
    let values: Vec<u8> = [1_u64, f64::MAX.to_bits(), 7].iter().flat_map(|n| n.to_le_bytes()).collect();
    let session = [
        message(kind::HEARTBEAT, &[]),
        message(kind::VALUES, &values.repeat(3)),
        message(kind::ORDER, &2_u64.to_le_bytes()),
        message(kind::ORDER, b"{}"),
        message(kind::ANSWER, b"no space left"),
        message(kind::BYTES, b"bytes"),
        message(kind::LOST, "rank 2 ∀".as_bytes()),
        message(kind::BYE, &[]),
    ];
    let mut fuzzer = Fuzzer::new(vec![
        message(kind::HELLO, &serde_json::to_vec(&config.hello(([127, 0, 0, 1], 9).into())).unwrap()),
        message(kind::WELCOME, &serde_json::to_vec(&members).unwrap()),
        session.concat(),
    ]);
    while let Some(bytes) = fuzzer.input() {
        let mut is_whole = false;
        let mut rest = &bytes[..];
        while let Ok((kind, payload)) = receive(&mut rest, MAX_HELLO) {
            if let Ok(table) = config.members(&payload) {
                assert!(table.iter().map(|member| member.rank).eq(0..3));
                is_whole = true;
            }
            if let Some(rows) = config.rows(1, 2, payload.chunks(24)) {
                assert!(rows.len() == 3 && rows.iter().all(|row| row.len() == 2));
                is_whole = true;
            }
            if let Ok(hello) = config.admit((kind, payload), &[const { None }; 3]) {
                assert!(hello.token == config.token && (1..3).contains(&hello.member.rank));
                is_whole = true;
            }
        }
        let shared = GroupLinks {
            state: Mutex::default(),
            changed: Condvar::new(),
            links: vec![None, None, None],
            rank: 1,
            members: members.clone(),
        };
        let (outbox, inbox) = mpsc::channel();
        read_messages(&shared, 0, &bytes[..], &outbox);
        is_whole |= shared.check().is_ok();
        assert!(inbox.try_iter().map(|message| message.payload.len()).sum::<usize>() <= bytes.len());
        if is_whole {
            fuzzer.keep(bytes);
        }
    }
    fuzzer.report("messages of ranks");
}
