//! Detection of exact duplicates among the statements of a round.

use crate::data::ProblemId;
use std::collections::HashMap;
use std::sync::Arc;

/// The statements that a new conjecture must differ from: those of all targets and of the accepted conjectures.
///
/// Statements are compared by their canonical text without further normalisation. Conjectures of earlier rounds are not
/// included.
#[derive(Clone, Debug, Default)]
pub struct StatementIndex {
    first: HashMap<Arc<str>, ProblemId>,
}

impl StatementIndex {
    /// Adds a statement.
    ///
    /// # Errors
    /// Returns the id of the problem that already has this statement.
    pub fn insert(&mut self, statement: &Arc<str>, id: &ProblemId) -> Result<(), ProblemId> {
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
    fn the_first_problem_with_a_statement_is_kept() {
        let mut statements = StatementIndex::default();
        let (a, b) = (ProblemId::new("a"), ProblemId::new("b"));
        assert_eq!(statements.insert(&Arc::from("|- x"), &a), Ok(()));
        assert_eq!(statements.insert(&Arc::from("|- x"), &b), Err(a));
        assert_eq!(statements.insert(&Arc::from("|- y"), &b), Ok(()));
    }
}
