//! The rule for weights.

use sgs_selfplay::config::{ConjectureForm, ConjectureRule, GuideKind};
use sgs_selfplay::{AlgorithmConfig, Role, RoleBackend, Weights};

/// Returns whether rank 0 loads the base model if it samples.
fn uses_base(
    config: &AlgorithmConfig,
    backend_of: impl Fn(Role) -> RoleBackend + Copy,
    has_own_guide: bool,
) -> bool {
    config.samples_with_base(backend_of, has_own_guide) || config.updates_with_base(backend_of)
}

/// Checks all combinations against the rule in words. A role's weights are trained if and only if an update can change
/// them and its backend receives them. Two roles use the same weights if and only if they are tied, neither is
/// trained, or conjectures are the Solver's attempts.
#[test]
fn every_combination_follows_the_rule() {
    let all = [false, true];
    let backends = [RoleBackend::Local, RoleBackend::Endpoint, RoleBackend::SyncedEndpoint];
    let forms =
        [ConjectureForm::Statement, ConjectureForm::Proof, ConjectureForm::Attempt, ConjectureForm::Composed];
    for (tied, train, (on, form)) in all.iter().flat_map(|&a| all.map(|b| (a, b))).flat_map(|(a, b)| {
        all.iter()
            .flat_map(|on| forms.map(|form| (*on, form)))
            .map(move |of_conjecturer| (a, b, of_conjecturer))
    }) {
        for (frozen, solver_backend, conjecturer_backend) in
            all.iter().flat_map(|&a| backends.map(|b| (a, b))).flat_map(|(a, b)| backends.map(|c| (a, b, c)))
        {
            let mut config = AlgorithmConfig { tied_weights: tied, ..AlgorithmConfig::default() };
            config.solver.train = train;
            config.conjecturer.on = on;
            config.conjecturer.frozen = frozen;
            config.conjecturer.form = form;
            let solver = config.weights_of(Role::Solver, solver_backend);
            let conjecturer = config.weights_of(Role::Conjecturer, conjecturer_backend);
            let case = format!(
                "tied {tied}, train {train}, on {on}, {form:?}, frozen {frozen}, {solver_backend:?}, {conjecturer_backend:?}"
            );
            let conjecturer_writes = matches!(form, ConjectureForm::Statement | ConjectureForm::Proof);
            let conjecturer_learns = on && !frozen && conjecturer_writes;
            // The Solver makes the attempts.
            let shared = tied || form == ConjectureForm::Attempt;
            let changes_solver = train || (tied && conjecturer_learns);
            let changes_conjecturer = conjecturer_learns || (shared && train);
            let reaches = |backend| backend != RoleBackend::Endpoint;
            assert_eq!(solver.is_trained(), changes_solver && reaches(solver_backend), "{case}");
            assert_eq!(
                conjecturer.is_trained(),
                changes_conjecturer && reaches(conjecturer_backend),
                "{case}"
            );
            assert_eq!(config.trains(), train || conjecturer_learns, "{case}");
            if solver_backend == RoleBackend::Local && conjecturer_backend == RoleBackend::Local {
                let one = shared || !(changes_solver || changes_conjecturer);
                assert_eq!(solver == conjecturer, one, "{case}: {solver:?} {conjecturer:?}");
            }
            for (role, weights, backend) in [
                (Role::Solver, solver, solver_backend),
                (Role::Conjecturer, conjecturer, conjecturer_backend),
                (Role::Guide, config.weights_of(Role::Guide, RoleBackend::Local), RoleBackend::Local),
            ] {
                let is_served = backend != RoleBackend::Local && !weights.is_trained();
                assert_eq!(weights == Weights::Served, is_served, "{case}");
                assert_eq!(weights.folder().is_some(), weights.is_trained(), "{case}");
                assert_eq!(weights == Weights::Guide, role == Role::Guide, "{case}");
            }
        }
    }
}

/// What a method changes, and whether it then uses the base model. Without changes, Solver and Conjecturer are trained,
/// and no model reviews conjectures.
#[test]
fn the_base_is_loaded_only_if_something_uses_it() {
    type Change = fn(&mut AlgorithmConfig);
    let stp = |config: &mut AlgorithmConfig| config.conjecturer.rule = ConjectureRule::Stp;
    let local: fn(Role) -> RoleBackend = |_| RoleBackend::Local;
    let cases: [(&str, Change, bool); 12] = [
        ("nothing", |_| {}, false),
        ("a model as Guide", |c| c.guide.on = true, true),
        ("the rubric as Guide", |c| (c.guide.on, c.guide.kind) = (true, GuideKind::Rubric), false),
        ("an untrained Solver", |c| c.solver.train = false, true),
        ("a KL penalty", |c| c.solver.kl_coefficient = 0.1, true),
        ("a frozen Conjecturer", |c| c.conjecturer.frozen = true, true),
        ("no Conjecturer", |c| c.conjecturer.on = false, false),
        ("attempts", |c| c.conjecturer.form = ConjectureForm::Attempt, false),
        (
            "attempts of an untrained Solver",
            |c| (c.conjecturer.form, c.solver.train) = (ConjectureForm::Attempt, false),
            true,
        ),
        ("composed theorems", |c| c.conjecturer.form = ConjectureForm::Composed, false),
        (
            "composed theorems with a frozen Conjecturer",
            |c| (c.conjecturer.form, c.conjecturer.frozen) = (ConjectureForm::Composed, true),
            false,
        ),
        ("tied weights", |c| c.tied_weights = true, false),
    ];
    let plain = || {
        let mut config = AlgorithmConfig::default();
        (config.guide.on, config.solver.kl_coefficient) = (false, 0.0);
        config
    };
    for (name, change, expected) in cases {
        let mut config = plain();
        change(&mut config);
        assert_eq!(uses_base(&config, local, false), expected, "{name}");
    }
    // The matching embeds statements with the Conjecturer's weights, or with the base model if there are none.
    for (form, reweight, expected) in [
        (ConjectureForm::Statement, true, false),
        (ConjectureForm::Attempt, true, false),
        (ConjectureForm::Composed, true, true),
        (ConjectureForm::Composed, false, false),
    ] {
        let mut config = plain();
        stp(&mut config);
        (config.conjecturer.form, config.conjecturer.stp.reweight) = (form, reweight);
        assert_eq!(uses_base(&config, local, false), expected, "{form:?}, re-weighted: {reweight}");
    }
    // A Guide that is another model, or is on a server, is not the base model.
    let mut config = plain();
    config.guide.on = true;
    assert!(!uses_base(&config, local, true));
    let served = |role| if role == Role::Guide { RoleBackend::Endpoint } else { RoleBackend::Local };
    assert!(!uses_base(&config, served, false));
    let synced = |role| if role == Role::Solver { RoleBackend::SyncedEndpoint } else { RoleBackend::Local };
    assert!(uses_base(&plain(), synced, false));
}
