#![allow(clippy::unwrap_used)] // A failing test panics.

use sgs_keys::{Allowed, above, at_least};

#[test]
fn the_description_matches_the_check() {
    let cases = [
        (above(0.0).below(1.0), "a number above 0, below 1", [false, true, false, false]),
        (above(0.0).at_most(1.0), "a number above 0, at most 1", [false, true, true, false]),
        (at_least(0.0).below(1.0), "a number from 0, below 1", [true, true, false, false]),
        (at_least(0.0).at_most(1.0), "a number from 0 to 1", [true, true, true, false]),
    ];
    for (allowed, said, admitted) in cases {
        assert_eq!(allowed.to_string(), said);
        assert_eq!([0.0, 0.5, 1.0, 1.5].map(|x| allowed.admits_real(x)), admitted, "{said}");
        assert!(!allowed.admits_real(f64::NAN) && !allowed.admits_real(f64::NEG_INFINITY), "{said}");
        assert!(!allowed.admits_whole(0) && !allowed.admits_text("0"), "{said}: another type");
    }
    let whole = Allowed::from(2..=5);
    assert_eq!(
        (whole.to_string().as_str(), [1, 2, 5, 6].map(|n| whole.admits_whole(n))),
        ("an integer from 2 to 5", [false, true, true, false],)
    );
    let names = Allowed::from(&["cpu", "cuda"]);
    assert_eq!(names.to_string(), "cpu, cuda");
    assert!(names.admits_text("cuda") && !names.admits_text("tpu"));
    let either = Allowed::NameOrWhole { name: "all", low: 1, high: 9 };
    assert_eq!(either.to_string(), "\"all\", or an integer from 1 to 9");
    assert!(either.admits_text("all") && either.admits_whole(9) && !either.admits_whole(0));
}
