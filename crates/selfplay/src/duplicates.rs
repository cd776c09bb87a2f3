//! Exact duplicates among the statements of a round.

use crate::data::ProblemId;
use std::collections::HashMap;
use std::sync::Arc;

/// The statements that a new conjecture must differ from: those of all targets and of the conjectures accepted so far.
///
/// Equality is equality of the canonical text; nothing is normalised here. Conjectures of earlier rounds do not count.
#[derive(Clone, Debug, Default)]
pub struct Statements {
    first: HashMap<Arc<str>, ProblemId>,
}

impl Statements {
    /// Enters a statement; gives the id of the problem that already has it, if there is one.
    ///
    /// # Errors
    /// The id of the earlier problem.
    pub fn enter(&mut self, statement: &Arc<str>, id: &ProblemId) -> Result<(), ProblemId> {
        if let Some(earlier) = self.first.get(statement) {
            return Err(earlier.clone());
        }
        self.first.insert(statement.clone(), id.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_one_stays() {
        let mut statements = Statements::default();
        let (a, b) = (ProblemId::new("a"), ProblemId::new("b"));
        assert_eq!(statements.enter(&Arc::from("|- x"), &a), Ok(()));
        assert_eq!(statements.enter(&Arc::from("|- x"), &b), Err(a));
        assert_eq!(statements.enter(&Arc::from("|- y"), &b), Ok(()));
    }
}
