//! Sizes of a step, the layout of its integers, and the division of prompts into tiles.

use super::CHOICE;
use crate::attention::ROWS;
use sgs_lm::decode::{DecoderSizes, InputToken, PANEL};

/// Maximum number of positions for which a single warp processes a head of a column.
const SHORT: usize = 128;
/// Number of blocks per multiprocessor up to which attention is split.
const BLOCKS_EACH: usize = 4;
/// Columns that are much longer than the others are split further, so that a block has about one sixteenth of a
/// multiprocessor's share of all positions, if the scratch allows that.
const PARTS_OF_A_SHARE: usize = 16;
/// Maximum number of blocks per multiprocessor of an attention that is split.
pub(super) const MOST_BLOCKS_EACH: usize = 256;

/// Sizes of a step, rounded up so that few different shapes occur. The surplus columns, tiles and samples are
/// padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StepShape {
    /// Columns of running requests, which come first.
    pub(super) decode: usize,
    /// Columns of prompt tokens.
    pub(super) prompt: usize,
    /// Tiles of prompt tokens for the tensor cores.
    pub(super) tiles: usize,
    /// Maximum number of parts into which the attention of one column is split.
    pub(super) most_parts: usize,
    /// Minimum number of positions of a part.
    pub(super) shortest_part: usize,
    /// Whether every column outside of tiles attends to few positions.
    pub(super) short: bool,
}

/// Rounds up the rows of products; the surplus is never read.
pub(super) fn padded(columns: usize) -> usize {
    let step = match columns {
        0..=64 => 8,
        65..=512 => 64,
        513..=2048 => 128,
        _ => 256,
    };
    columns.next_multiple_of(step)
}

/// Rounds up the number of prompt tokens.
fn padded_prompt(columns: usize) -> usize {
    match columns {
        0 => 0,
        1..=256 => columns.next_power_of_two().max(PANEL),
        257..=2048 => columns.next_multiple_of(256),
        _ => columns.next_multiple_of(512),
    }
}

/// Returns the maximum number of columns of a step.
pub(super) fn most_columns(sizes: &DecoderSizes) -> usize {
    padded(padded(sizes.max_batch) + padded_prompt(sizes.prefill_tokens))
}

impl StepShape {
    pub(super) fn columns(self) -> usize {
        self.decode + self.prompt
    }

    /// Returns the offsets of the starts, sampling parameters, tiles and page tables of a step.
    pub(super) fn places(self) -> [usize; 4] {
        let n = self.columns();
        let choices = 3 * n;
        let tiles = choices + CHOICE * self.decode;
        [2 * n, choices, tiles, tiles + 4 * self.tiles]
    }

    /// Computes the sizes for these columns; `heads` is the model's number of query heads.
    pub(super) fn new(
        decode: &[InputToken],
        prompt: &[InputToken],
        by_tiles: bool,
        heads: usize,
        processors: usize,
    ) -> Self {
        let tiles = if by_tiles && !prompt.is_empty() { tiles(prompt, 0).len() } else { 0 };
        let mut shape = Self {
            decode: padded(decode.len()),
            prompt: padded_prompt(prompt.len()),
            tiles: if tiles == 0 { 0 } else { tiles.next_power_of_two().max(8) },
            most_parts: 1,
            shortest_part: 1,
            short: false,
        };
        let (alone, prompt) = if by_tiles { (shape.decode, &[][..]) } else { (shape.columns(), prompt) };
        let lengths = decode.iter().chain(prompt).map(|column| column.position as usize + 1);
        let (longest, sum) = lengths.fold((0, 0), |(longest, sum), n| (n.max(longest), sum + n));
        (shape.most_parts, shape.shortest_part) = most_parts(alone * heads, longest, sum * heads, processors);
        shape.short = longest <= SHORT;
        shape
    }
}

/// Divides prompt tokens into tiles of up to [`ROWS`] consecutive tokens of one sequence, as prompt.cu reads
/// them, those with the most keys first. `offset` is the first token's column.
pub(super) fn tiles(prompt: &[InputToken], offset: usize) -> Vec<[u32; 4]> {
    let mut tiles: Vec<[u32; 4]> = Vec::new();
    for (i, column) in prompt.iter().enumerate() {
        match tiles.last_mut() {
            Some([_, count, position, table])
                if *table == column.table.0
                    && *position + *count == column.position
                    && (*count as usize) < ROWS =>
            {
                *count += 1;
            }
            _ => tiles.push([(offset + i) as u32, 1, column.position, column.table.0]),
        }
    }
    tiles.sort_by_key(|[_, count, position, _]| std::cmp::Reverse(position + count));
    tiles
}

/// Returns the maximum number of parts of a column's attention, and the minimum number of positions of a part. `rows` is
/// the number of pairs of a column and a head, `longest` the largest number of positions of one, `sum` that of all.
fn most_parts(rows: usize, longest: usize, sum: usize, processors: usize) -> (usize, usize) {
    let to_fill = BLOCKS_EACH * processors / rows.max(1);
    let shortest = if to_fill > 1 { 128 } else { 512 };
    let to_balance = longest / (sum / (PARTS_OF_A_SHARE * processors)).max(512);
    let most = longest.div_ceil(shortest).min(MOST_BLOCKS_EACH * processors / rows.max(1)).max(1);
    // Each number of parts needs a separate graph, so only powers of two occur.
    (to_fill.max(to_balance).max(1).next_power_of_two().min(1 << most.ilog2()), shortest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sgs_lm::decode::NextToken;

    #[test]
    fn parts_fill_the_gpu_balance_its_blocks_and_fit_the_scratch() {
        let of = |columns: &[(usize, usize)], heads: usize| {
            let rows = heads * columns.iter().map(|(count, _)| count).sum::<usize>();
            let sum = heads * columns.iter().map(|(count, length)| count * length).sum::<usize>();
            let longest = columns.iter().map(|(_, length)| *length).max().unwrap_or(0);
            let (most_parts, shortest) = most_parts(rows, longest, sum, 132);
            assert!(most_parts >= 1 && most_parts <= longest.div_ceil(shortest));
            assert!(most_parts == 1 || rows * most_parts <= MOST_BLOCKS_EACH * 132);
            (most_parts, shortest)
        };
        assert_eq!(of(&[(1, 8000)], 32), (16, 128), "a single column fills the GPU");
        assert_eq!(of(&[(64, 8000)], 32), (1, 512), "equal columns are not split");
        assert_eq!(of(&[(60, 500), (4, 8000)], 32), (8, 512), "long columns among short ones are split");
        assert_eq!(of(&[(300, 120), (1, 8000)], 32), (2, 512), "the scratch limits the number of parts");
        for (columns, heads) in [((1, 100), 1), ((3, 129), 4), ((1, 100_000), 2), ((20_000, 500), 32)] {
            of(&[columns], heads);
        }
    }

    #[test]
    fn padding_keeps_shapes_few() {
        assert_eq!([1, 8, 9, 64, 65, 500, 513, 2049].map(padded), [8, 8, 16, 64, 128, 512, 640, 2304]);
    }

    fn prompt(pieces: &[(u32, u32, u32)]) -> Vec<InputToken> {
        let columns = |&(table, first, count): &(u32, u32, u32)| {
            (first..first + count).map(move |position| InputToken {
                token: NextToken::Known(7),
                position,
                table: (table, 9),
            })
        };
        pieces.iter().flat_map(columns).collect()
    }

    #[test]
    fn tiles_cover_every_prompt_token_once_and_stay_within_a_sequence() {
        let columns = prompt(&[(0, 0, 130), (9, 64, 1), (18, 3, 64), (27, 67, 2)]);
        let tiles = tiles(&columns, 8);
        let mut covered = vec![0; columns.len()];
        for [column, count, position, table] in &tiles {
            assert!((1..=ROWS as u32).contains(count));
            for i in 0..*count {
                let at = (*column + i) as usize - 8;
                covered[at] += 1;
                assert_eq!((columns[at].position, columns[at].table.0), (position + i, *table));
            }
        }
        assert!(covered.iter().all(|n| *n == 1));
        assert_eq!(tiles.len(), 6);
        assert!(tiles.is_sorted_by_key(|[_, count, position, _]| std::cmp::Reverse(position + count)));
    }

    #[test]
    fn integers_of_a_step_are_aligned_for_the_kernels() {
        let decode = prompt(&[(0, 5, 1), (1, 300, 1), (2, 7, 1)]);
        for (decode, prompt) in [(&decode[..], prompt(&[(9, 0, 70)])), (&[][..], prompt(&[(9, 0, 1)]))] {
            let shape = StepShape::new(decode, &prompt, true, 4, 132);
            let [starts, choices, tiles, tables] = shape.places();
            // Sampling parameters contain an f64, and tiles are read 16 bytes at a time.
            assert!(choices.is_multiple_of(2) && tiles.is_multiple_of(4));
            assert!(starts < choices && choices <= tiles && tiles < tables);
            assert!(shape.decode.is_multiple_of(8) && shape.prompt.is_multiple_of(PANEL));
        }
        let alone = StepShape::new(&decode, &[], true, 4, 132);
        assert_eq!((alone.tiles, alone.prompt, alone.most_parts, alone.short), (0, 0, 2, false));
        let short = StepShape::new(&decode[..1], &[], true, 4, 132);
        assert_eq!((short.most_parts, short.short), (1, true));
    }
}
