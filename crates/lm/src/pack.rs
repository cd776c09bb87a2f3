//! Packs several sequences into one micro-batch without padding.

/// One micro-batch: the tokens of all sequences, the start of each sequence, and the rows that have a loss.
///
/// Its vectors are cleared and refilled, so a step allocates nothing after they have grown.
#[derive(Debug, Clone)]
pub struct Packed {
    /// Input tokens of all sequences, concatenated.
    pub tokens: Vec<u32>,
    /// Position of each token within its sequence.
    pub positions: Vec<u32>,
    /// First token of each sequence and, last, the number of tokens.
    pub starts: Vec<usize>,
    /// Rows (indices into `tokens`) whose next token has a loss, ascending.
    pub rows: Vec<u32>,
    /// The token that follows each of `rows`.
    pub targets: Vec<u32>,
    /// Weight of the target's log-probability in the loss, including the normaliser.
    pub weight: Vec<f32>,
    /// The normaliser alone.
    pub norm: Vec<f32>,
    /// The target's log-probability when it was sampled; NaN if unknown.
    pub old: Vec<f32>,
    /// The target's log-probability under the reference model; NaN if unknown.
    pub reference: Vec<f32>,
}

/// One row with a loss; the fields correspond to those of [`Packed`].
#[derive(Debug, Clone, Copy)]
pub struct LossRow {
    /// Index of the input token within its sequence.
    pub index: usize,
    /// The token that follows.
    pub target: u32,
    /// Weight of its log-probability.
    pub weight: f32,
    /// The normaliser that `weight` includes.
    pub norm: f32,
    /// Log-probability when it was sampled.
    pub old: f32,
    /// Log-probability under the reference model.
    pub reference: f32,
}

impl Default for LossRow {
    /// Returns a row of weight 0 with unknown log-probabilities.
    fn default() -> Self {
        Self { index: 0, target: 0, weight: 0.0, norm: 0.0, old: f32::NAN, reference: f32::NAN }
    }
}

impl Packed {
    /// Creates an empty micro-batch with room for `tokens` tokens.
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

    /// Removes all sequences.
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

    /// Returns whether there is no sequence.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Appends a sequence of input tokens and its loss rows; an empty sequence is ignored.
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

    /// Appends sequences of at most `longest` tokens until there are `tokens` tokens and `rows` rows. The added
    /// rows have weight 0, so they do not change any gradient. At least as many tokens as rows must be missing.
    pub fn pad(&mut self, tokens: usize, rows: usize, longest: usize) {
        const TOKEN: [u32; 64] = [0; 64];
        // A reference this improbable keeps the slope of the penalty finite for any output of the model.
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
    fn surplus_rows_are_in_surplus_sequences_and_have_no_weight() {
        let mut packed = Packed::with_capacity(8);
        packed.push(
            &[5, 6, 7],
            [LossRow { index: 2, target: 9, weight: 1.0, norm: 1.0, ..LossRow::default() }],
        );
        packed.pad(300, 90, 50);
        assert_eq!((packed.tokens.len(), packed.rows.len()), (300, 90));
        assert!(packed.starts.windows(2).all(|ends| ends[1] - ends[0] <= 50));
        assert!(packed.rows.is_sorted_by(|a, b| a < b) && packed.rows[1] == 3);
        assert!(packed.weight[1..].iter().chain(&packed.norm[1..]).all(|n| *n == 0.0));
        let whole = packed.clone();
        packed.pad(300, 90, 50);
        assert_eq!(packed.starts, whole.starts);
    }

    #[test]
    fn loss_rows_refer_to_their_sequence() {
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
