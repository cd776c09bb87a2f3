//! Parses arbitrary text as a statement of a small theory. A parsed statement must survive a round trip and have one normal
//! form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sgs_metamath::database::Database;
use sgs_metamath::statement::{Statement, StatementLimits};
use sgs_metamath::theory::Theory;
use sgs_metamath::unify::Goal;
use std::sync::LazyLock;

static THEORY: LazyLock<Theory> = LazyLock::new(|| {
    Theory::new(Database::parse("mini.mm", *include_bytes!("../../tests/data/mini.mm")).unwrap()).unwrap()
});

fuzz_target!(|text: &str| {
    let theory = &*THEORY;
    let limits = StatementLimits::default();
    let Ok(statement) = Statement::parse(theory, text, limits) else { return };
    let written = statement.text(theory);
    let again = Statement::parse(theory, &written, limits);
    assert_eq!(again.as_ref(), Ok(&statement), "{written}");
    if let Some(normal) = statement.normal_form(theory, |_| None) {
        assert_eq!(normal.normal_form(theory, |_| None).as_ref(), Some(&normal), "{written}");
        let text = normal.text(theory);
        assert_eq!(Statement::parse(theory, &text, limits).as_ref(), Ok(&normal), "{text}");
    }
    for before in theory.database().assertions().step_by(7).map(|(id, _, _)| id) {
        let _ = Goal::new(theory, &statement, before);
    }
});
