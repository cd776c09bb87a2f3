//! `sgs bench dispatch`.

use crate::program::sgs;

#[test]
fn benchmark_measures_board_and_service() {
    let args = ["bench", "dispatch", "--open", "50", "--workers", "4", "--seconds", "1"];
    let text = sgs(&args).expect(0).out;
    assert!(text.contains("board alone") && text.contains("tasks/s leased and reported"), "{text}");
    let json = sgs(&[&args[..], &["--json", "--capacity", "8"]].concat()).expect(0).json();
    assert_eq!((&json["open"], &json["capacity"]), (&50.into(), &8.into()));
    let service = &json["service"];
    assert!(service["tasks_per_s"].as_f64().is_some_and(|n| n > 0.0), "{json}");
    assert_eq!(service["broken"], 0);
    // More tasks than the board held at first, because it is refilled.
    assert!(service["tasks"].as_u64().is_some_and(|n| n > 50), "{json}");
    assert!(json["board"]["ns_per_task"].as_f64().is_some_and(|n| n > 0.0), "{json}");
}
