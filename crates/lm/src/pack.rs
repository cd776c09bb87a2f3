//! Several sequences behind each other in one micro-batch, without padding.

/// One micro-batch: the tokens of all sequences, where each starts, and the rows that have a loss.
///
/// Its vectors are cleared and filled again, so that a step allocates nothing once they have grown.
#[derive(Debug, Clone, Default)]
pub struct Packed {
    /// Input tokens of all sequences, one after the other.
    pub tokens: Vec<u32>,
    /// Position of each token within its sequence.
    pub positions: Vec<u32>,
    /// First token of every sequence and, last, the number of tokens.
    pub starts: Vec<usize>,
    /// Rows (indices into `tokens`) whose next token has a loss, ascending.
    pub rows: Vec<u32>,
    /// The token that follows each of `rows`.
    pub targets: Vec<u32>,
    /// Weight of its log-prob in the loss, the normaliser included.
    pub weight: Vec<f32>,
    /// The normaliser alone.
    pub norm: Vec<f32>,
    /// Its log-prob when it was sampled; NaN where unknown.
    pub old: Vec<f32>,
    /// Its log-prob under the reference model; NaN where unknown.
    pub reference: Vec<f32>,
}

/// One row with a loss; fields as in [`Packed`].
#[derive(Debug, Clone, Copy)]
pub struct LossRow {
    /// Index of the input token within its sequence.
    pub index: usize,
    /// The token that follows.
    pub target: u32,
    /// Weight of its log-prob.
    pub weight: f32,
    pub norm: f32,
    /// Log-prob when sampled.
    pub old: f32,
    /// Log-prob under the reference model.
    pub reference: f32,
}

impl Default for LossRow {
    /// A row of weight 0 whose other log-probs are unknown.
    fn default() -> Self {
        Self { index: 0, target: 0, weight: 0.0, norm: 0.0, old: f32::NAN, reference: f32::NAN }
    }
}

impl Packed {
    /// An empty micro-batch with room for `tokens` tokens.
    pub fn with_capacity(tokens: usize) -> Self {
        let mut starts = Vec::with_capacity(tokens + 1);
        starts.push(0);
        Self {
            tokens: Vec::with_capacity(tokens),
            positions: Vec::with_capacity(tokens),
            starts,
            rows: Vec::with_capacity(tokens),
            targets: Vec::with_capacity(tokens),
            weight: Vec::with_capacity(tokens),
            norm: Vec::with_capacity(tokens),
            old: Vec::with_capacity(tokens),
            reference: Vec::with_capacity(tokens),
        }
    }

    /// Forgets all sequences.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.starts.clear();
        self.starts.push(0);
        self.rows.clear();
        self.targets.clear();
        for numbers in [&mut self.weight, &mut self.norm, &mut self.old, &mut self.reference] {
            numbers.clear();
        }
    }

    /// Whether it holds no sequence.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Appends a sequence of input tokens and its loss rows; an empty sequence is left out.
    pub fn push(&mut self, inputs: &[u32], rows: impl IntoIterator<Item = LossRow>) {
        if inputs.is_empty() {
            return;
        }
        let first = self.tokens.len();
        self.tokens.extend_from_slice(inputs);
        self.positions.extend(0..inputs.len() as u32);
        self.starts.push(self.tokens.len());
        for row in rows {
            debug_assert!(row.index < inputs.len());
            self.rows.push((first + row.index) as u32);
            self.targets.push(row.target);
            self.weight.push(row.weight);
            self.norm.push(row.norm);
            self.old.push(row.old);
            self.reference.push(row.reference);
        }
    }

    /// Fills up to so many tokens and rows with sequences of at most `longest` tokens, whose rows have no weight: they
    /// change no gradient. There must be at least as many tokens as rows to fill up with.
    pub fn fill_up(&mut self, tokens: usize, rows: usize, longest: usize) {
        const TOKEN: [u32; 64] = [0; 64];
        // A reference that is this improbable makes its penalty's slope finite whatever the model says.
        let row = LossRow { old: 0.0, reference: f32::MIN, ..LossRow::default() };
        while self.tokens.len() < tokens {
            let count = (tokens - self.tokens.len()).min(longest.clamp(1, TOKEN.len()));
            let with_row = rows.saturating_sub(self.rows.len()).min(count);
            self.push(&TOKEN[..count], (0..with_row).map(|index| LossRow { index, ..row }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_rows_lie_in_surplus_sequences_and_have_no_weight() {
        let mut packed = Packed::with_capacity(8);
        packed.push(
            &[5, 6, 7],
            [LossRow { index: 2, target: 9, weight: 1.0, norm: 1.0, ..LossRow::default() }],
        );
        packed.fill_up(300, 90, 50);
        assert_eq!((packed.tokens.len(), packed.rows.len()), (300, 90));
        assert!(packed.starts.windows(2).all(|ends| ends[1] - ends[0] <= 50));
        assert!(packed.rows.is_sorted_by(|a, b| a < b) && packed.rows[1] == 3);
        assert!(packed.weight[1..].iter().chain(&packed.norm[1..]).all(|n| *n == 0.0));
        let whole = packed.clone();
        packed.fill_up(300, 90, 50);
        assert_eq!(packed.starts, whole.starts);
    }

    #[test]
    fn rows_point_into_their_sequence() {
        let mut packed = Packed::with_capacity(8);
        packed.push(&[5, 6, 7], [LossRow { index: 2, target: 9, ..LossRow::default() }]);
        packed.push(&[], []);
        packed.push(&[8, 9], (0..2).map(|index| LossRow { index, ..LossRow::default() }));
        assert_eq!(packed.starts, [0, 3, 5]);
        assert_eq!(packed.positions, [0, 1, 2, 0, 1]);
        assert_eq!(packed.rows, [2, 3, 4]);
        packed.clear();
        assert!(packed.is_empty() && packed.starts == [0]);
    }
}
