//! Stored proofs.

use proptest::prelude::*;
use sgs_selfplay::ProblemId;
use sgs_selfplay::store::{ProofStore, StoredProof, admit};

fn proof(round: u32, index: u32, fingerprint: u64) -> StoredProof {
    StoredProof { round, index, weight: Some(1.0), generated_tokens: 9, fingerprint }
}

proptest! {
    #[test]
    fn the_cap_is_respected_and_the_order_is_kept(
        stored in prop::collection::vec(0u64..5, 0..20),
        new in prop::collection::vec(0u64..5, 0..20),
        cap in 1u32..20,
        distinct: bool,
    ) {
        let stored: Vec<_> = stored.iter().map(|&f| proof(0, 0, f)).collect();
        let new: Vec<_> = new.iter().enumerate().map(|(i, &f)| proof(1, i as u32, f)).collect();
        let admitted = admit(&stored, &new, cap, distinct);
        prop_assert!(admitted.is_empty() || stored.len() + admitted.len() <= cap as usize);
        prop_assert!(admitted.windows(2).all(|pair| pair[0].index < pair[1].index));
        if distinct {
            for (i, p) in admitted.iter().enumerate() {
                prop_assert!(stored.iter().chain(&admitted[..i]).all(|q| q.fingerprint != p.fingerprint));
            }
        } else {
            prop_assert_eq!(admitted.len(), new.len().min((cap as usize).saturating_sub(stored.len())));
        }
    }
}

#[test]
fn the_store_survives_a_round_trip() {
    let mut store = ProofStore::default();
    store.extend(&ProblemId::new("a"), [proof(3, 1, 7)]);
    store.extend(&ProblemId::new("b"), []);
    let text = serde_json::to_string(&store).unwrap();
    let back: ProofStore = serde_json::from_str(&text).unwrap();
    assert_eq!(back, store);
    assert_eq!(back.iter().count(), 1);
    assert!(back.of(&ProblemId::new("b")).is_empty());
}
