//! Which weights a role uses, and whether they are trained: the one rule that the loop, its workers, checkpoints and
//! resume agree on.

use crate::config::AlgorithmConfig;
use crate::data::Role;

/// A set of weights of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Weights {
    /// The base model's, which nothing changes.
    Base,
    /// The Solver's, trained; under tied weights the Conjecturer's too, whichever of the two trains them.
    Solver,
    /// The Conjecturer's own, trained.
    Conjecturer,
    /// The Guide's: the base model's or those of a model of its own, which nothing changes.
    Guide,
    /// Another server's own, which this run neither loads nor changes.
    Served,
}

impl Weights {
    /// Whether updates change them: they then stand in every checkpoint, and every worker follows them.
    pub fn is_trained(self) -> bool {
        matches!(self, Weights::Solver | Weights::Conjecturer)
    }

    /// Their folder in a checkpoint; `None` if they stand in none.
    pub fn folder(self) -> Option<&'static str> {
        match self {
            Weights::Solver => Some("solver"),
            Weights::Conjecturer => Some("conjecturer"),
            Weights::Base | Weights::Guide | Weights::Served => None,
        }
    }
}

/// Who samples for a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Player {
    /// The run's own samplers, or workers with copies of its weights.
    Own,
    /// Another server, whose weights stay as they are.
    Server,
    /// Another server that is given the role's weights after each update.
    Follower,
}

impl AlgorithmConfig {
    /// The weights that a role uses, whoever plays it.
    pub fn weights_of(&self, role: Role, player: Player) -> Weights {
        let own = self.own_weights_of(role);
        match player {
            Player::Own => own,
            // What nothing trains nobody has to be given.
            Player::Follower if own.is_trained() => own,
            Player::Follower | Player::Server => Weights::Served,
        }
    }

    fn own_weights_of(&self, role: Role) -> Weights {
        match role {
            Role::Guide => Weights::Guide,
            Role::Solver | Role::Conjecturer if self.tied_weights => {
                if self.is_trained_on(Role::Solver) || self.is_trained_on(Role::Conjecturer) {
                    Weights::Solver
                } else {
                    Weights::Base
                }
            }
            Role::Solver if self.is_trained_on(role) => Weights::Solver,
            Role::Conjecturer if self.is_trained_on(role) => Weights::Conjecturer,
            Role::Solver | Role::Conjecturer => Weights::Base,
        }
    }

    /// Whether a round's examples of a role are trained on, whoever else uses the weights.
    pub fn is_trained_on(&self, role: Role) -> bool {
        match role {
            Role::Solver => self.solver.train,
            Role::Conjecturer => self.conjecturer.on && !self.conjecturer.frozen,
            Role::Guide => false,
        }
    }

    /// Whether any weights change.
    pub fn trains(&self) -> bool {
        self.is_trained_on(Role::Solver) || self.is_trained_on(Role::Conjecturer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All combinations against the rule in words: a role's weights are trained if and only if an update can change them
    /// and reaches its player, two roles use the same ones if and only if they are tied, and what is not trained is the
    /// base model's.
    #[test]
    fn every_combination_follows_the_rule() {
        let all = [false, true];
        let players = [Player::Own, Player::Server, Player::Follower];
        for (tied, train, on) in
            all.iter().flat_map(|&a| all.map(|b| (a, b))).flat_map(|(a, b)| all.map(|c| (a, b, c)))
        {
            for (frozen, plays_solver, plays_conjecturer) in all
                .iter()
                .flat_map(|&a| players.map(|b| (a, b)))
                .flat_map(|(a, b)| players.map(|c| (a, b, c)))
            {
                let mut config = AlgorithmConfig { tied_weights: tied, ..AlgorithmConfig::default() };
                config.solver.train = train;
                config.conjecturer.on = on;
                config.conjecturer.frozen = frozen;
                let solver = config.weights_of(Role::Solver, plays_solver);
                let conjecturer = config.weights_of(Role::Conjecturer, plays_conjecturer);
                let case = format!(
                    "tied {tied}, train {train}, on {on}, frozen {frozen}, {plays_solver:?}, {plays_conjecturer:?}"
                );
                let conjecturer_learns = on && !frozen;
                let changes_solver = train || (tied && conjecturer_learns);
                let changes_conjecturer = conjecturer_learns || (tied && train);
                let reaches = |player| player != Player::Server;
                assert_eq!(solver.is_trained(), changes_solver && reaches(plays_solver), "{case}");
                assert_eq!(
                    conjecturer.is_trained(),
                    changes_conjecturer && reaches(plays_conjecturer),
                    "{case}"
                );
                assert_eq!(config.trains(), train || conjecturer_learns, "{case}");
                if plays_solver == Player::Own && plays_conjecturer == Player::Own {
                    let one = tied || !(changes_solver || changes_conjecturer);
                    assert_eq!(solver == conjecturer, one, "{case}: {solver:?} {conjecturer:?}");
                }
                for (role, weights, player) in [
                    (Role::Solver, solver, plays_solver),
                    (Role::Conjecturer, conjecturer, plays_conjecturer),
                    (Role::Guide, config.weights_of(Role::Guide, Player::Own), Player::Own),
                ] {
                    let is_served = player != Player::Own && !weights.is_trained();
                    assert_eq!(weights == Weights::Served, is_served, "{case}");
                    assert_eq!(weights.folder().is_some(), weights.is_trained(), "{case}");
                    assert_eq!(weights == Weights::Guide, role == Role::Guide, "{case}");
                }
            }
        }
    }
}
