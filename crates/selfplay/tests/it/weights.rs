//! The rule for weights.

use sgs_selfplay::{AlgorithmConfig, Role, RoleBackend, Weights};

/// Checks all combinations against the rule in words. A role's weights are trained if and only if an update can change
/// them and its backend receives them. Two roles use the same weights if and only if they are tied or neither is
/// trained.
#[test]
fn every_combination_follows_the_rule() {
    let all = [false, true];
    let backends = [RoleBackend::Local, RoleBackend::Endpoint, RoleBackend::SyncedEndpoint];
    for (tied, train, on) in
        all.iter().flat_map(|&a| all.map(|b| (a, b))).flat_map(|(a, b)| all.map(|c| (a, b, c)))
    {
        for (frozen, solver_backend, conjecturer_backend) in
            all.iter().flat_map(|&a| backends.map(|b| (a, b))).flat_map(|(a, b)| backends.map(|c| (a, b, c)))
        {
            let mut config = AlgorithmConfig { tied_weights: tied, ..AlgorithmConfig::default() };
            config.solver.train = train;
            config.conjecturer.on = on;
            config.conjecturer.frozen = frozen;
            let solver = config.weights_of(Role::Solver, solver_backend);
            let conjecturer = config.weights_of(Role::Conjecturer, conjecturer_backend);
            let case = format!(
                "tied {tied}, train {train}, on {on}, frozen {frozen}, {solver_backend:?}, {conjecturer_backend:?}"
            );
            let conjecturer_learns = on && !frozen;
            let changes_solver = train || (tied && conjecturer_learns);
            let changes_conjecturer = conjecturer_learns || (tied && train);
            let reaches = |backend| backend != RoleBackend::Endpoint;
            assert_eq!(solver.is_trained(), changes_solver && reaches(solver_backend), "{case}");
            assert_eq!(
                conjecturer.is_trained(),
                changes_conjecturer && reaches(conjecturer_backend),
                "{case}"
            );
            assert_eq!(config.trains(), train || conjecturer_learns, "{case}");
            if solver_backend == RoleBackend::Local && conjecturer_backend == RoleBackend::Local {
                let one = tied || !(changes_solver || changes_conjecturer);
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
