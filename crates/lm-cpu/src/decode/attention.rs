//! Causal attention of a few queries over the pages of the cache.
//!
//! Queries whose sequences share their first pages (adjacent tokens of a prompt, requests with a common prompt, heads
//! of one group) read these pages together, so that keys and values are loaded once for up to four of them. Each query
//! reads its remaining pages alone. In both cases the sums of a query are computed in the same order.

#![allow(unsafe_code)]

use pulp::{Arch, Simd, WithSimd};

use super::kv::{BLOCK, SharedKv};
use super::prefetch::{LINE, prefetch};
use crate::math;
use sgs_lm::decode::{InputToken, PageId};

/// Maximum number of queries that read the same keys together.
pub(crate) const TOGETHER: usize = 4;

/// Returns the number of f32 values of scratch memory that [`PagedAttention::run`] needs for sequences of up to
/// `positions` tokens.
pub(crate) fn scratch_len(positions: usize, head_dim: usize) -> usize {
    TOGETHER * (positions.next_multiple_of(BLOCK) + 2 * head_dim)
}

/// Attention of some input tokens in one layer. Their keys and values are in the cache.
pub(crate) struct PagedAttention<'a> {
    pub kv: SharedKv<'a>,
    pub layer: usize,
    /// Number of query heads; a multiple of the number of key heads.
    pub heads: usize,
    pub columns: &'a [InputToken],
    /// The page tables that the tokens refer to.
    pub tables: &'a [PageId],
    /// One row per token, which starts with its `[heads, head_dim]` queries.
    pub queries: &'a [f32],
    /// Distance between rows of `queries`.
    pub stride: usize,
    /// Output, `[tokens, heads, head_dim]`.
    pub out: &'a mut [f32],
    /// Scratch memory of [`scratch_len`] numbers for the longest sequence.
    pub scratch: &'a mut [f32],
}

impl PagedAttention<'_> {
    /// Computes `softmax(q k / sqrt(head_dim)) v` for each query over all positions up to its own.
    ///
    /// # Safety
    /// No other thread may write to the pages of these sequences during the call.
    pub unsafe fn run(self) {
        Arch::new().dispatch(self);
    }
}

impl WithSimd for PagedAttention<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let group = self.heads / self.kv.shape().kv_heads;
        let columns = self.columns;
        let mut first = 0;
        for run in columns.chunk_by(|a, b| self.tables[a.table.0 as usize] == self.tables[b.table.0 as usize])
        {
            let queries = run.len() * group;
            for kv_head in 0..self.kv.shape().kv_heads {
                // Map an index to the query's token and to its head within the group.
                let of = |index: usize| (first + index / group, kv_head * group + index % group);
                let mut index = 0;
                while index < queries {
                    index += match queries - index {
                        4.. => self.together::<S, 4>(simd, kv_head, std::array::from_fn(|g| of(index + g))),
                        2..4 => self.together::<S, 2>(simd, kv_head, std::array::from_fn(|g| of(index + g))),
                        _ => self.together::<S, 1>(simd, kv_head, [of(index)]),
                    };
                }
            }
            first += run.len();
        }
    }
}

impl<'a> PagedAttention<'a> {
    /// Returns the page table of a token's sequence.
    fn table(&self, column: usize) -> &'a [PageId] {
        let (first, count) = self.columns[column].table;
        &self.tables[first as usize..][..count as usize]
    }

    /// Computes `G` queries of one key head, each given as token and head; returns `G`.
    #[inline(always)]
    fn together<S: Simd, const G: usize>(
        &mut self,
        simd: S,
        kv_head: usize,
        of: [(usize, usize); G],
    ) -> usize {
        let shape = self.kv.shape();
        let dim = shape.head_dim;
        let lens = of.map(|(column, _)| self.columns[column].position as usize + 1);
        let longest = lens.into_iter().fold(0, usize::max);
        let padded = longest.next_multiple_of(BLOCK);
        let tables = of.map(|(column, _)| self.table(column));
        // Number of pages that all sequences share.
        let pages = (0..longest.div_ceil(shape.page_len))
            .take_while(|n| tables.iter().all(|table| table.get(*n) == tables[0].get(*n)))
            .count();
        let shared = (pages * shape.page_len).min(padded);
        let head = HeadQuery { kv: self.kv, layer: self.layer, kv_head };

        let stride = self.stride;
        let queries = of.map(|(column, head)| &self.queries[column * stride + head * dim..][..dim]);
        let (scores, sums) = self.scratch.split_at_mut(G * padded);
        let mut rows = scores.chunks_exact_mut(padded);
        #[allow(clippy::expect_used, reason = "missing scratch memory must stop the program")]
        let mut scores: [&mut [f32]; G] = std::array::from_fn(|_| {
            rows.next().expect("invariant: the scratch memory holds the scores of G queries")
        });
        head.scores(simd, tables[0], 0..shared, queries, &mut scores);
        for g in 0..G {
            let own = shared..lens[g].next_multiple_of(BLOCK);
            head.scores(simd, tables[g], own, [queries[g]], &mut [&mut *scores[g]]);
        }
        let mut inverse = [0.0f32; G];
        for g in 0..G {
            inverse[g] = 1.0 / softmax(scores[g], lens[g], 1.0 / (dim as f32).sqrt());
        }

        // Keep two partial sums per number of each query: over even and over odd positions.
        let sums = &mut sums[..G * 2 * dim];
        sums.fill(0.0);
        let weights = scores.map(|row| &row[..]);
        head.weighted(simd, tables[0], 0..shared.min(longest), weights, sums);
        for (g, sums) in sums.chunks_exact_mut(2 * dim).enumerate() {
            head.weighted(simd, tables[g], shared..lens[g], [weights[g]], sums);
        }
        for (g, (column, head)) in of.into_iter().enumerate() {
            let out = &mut self.out[(column * self.heads + head) * dim..][..dim];
            let (even, odd) = sums[g * 2 * dim..][..2 * dim].split_at(dim);
            for ((out, even), odd) in out.iter_mut().zip(even).zip(odd) {
                *out = (even + odd) * inverse[g];
            }
        }
        G
    }
}

/// One key head in one layer. Its slices are valid under the contract of [`PagedAttention::run`].
#[derive(Clone, Copy)]
struct HeadQuery<'k> {
    kv: SharedKv<'k>,
    layer: usize,
    kv_head: usize,
}

impl HeadQuery<'_> {
    /// Computes the scores of `G` queries against the keys at `positions` (whole blocks), into the same
    /// positions of `scores`.
    #[inline(always)]
    fn scores<S: Simd, const G: usize>(
        self,
        simd: S,
        table: &[PageId],
        positions: std::ops::Range<usize>,
        queries: [&[f32]; G],
        scores: &mut [&mut [f32]; G],
    ) {
        let (end, mut keys) = (positions.end, &[][..]);
        for start in positions.step_by(BLOCK) {
            if keys.is_empty() {
                keys = self.key_block(table, start);
            }
            // The values of the first positions are read after the last keys.
            let next = if start + BLOCK < end { self.key_block(table, start + BLOCK) } else { &[] };
            let ahead = if next.is_empty() { self.values(table, 0) } else { next };
            block_scores(simd, keys, ahead.as_ptr(), queries, scores, start);
            keys = next;
        }
    }

    /// Returns the keys of the block at a position: `[head_dim][16]`.
    #[inline(always)]
    fn key_block(&self, table: &[PageId], start: usize) -> &[f32] {
        let shape = self.kv.shape();
        let block_len = BLOCK * shape.head_dim;
        // SAFETY: the caller of `run` guarantees that no thread writes to these pages.
        let keys = unsafe { self.kv.keys(table[start / shape.page_len], self.layer, self.kv_head) };
        &keys[start % shape.page_len / BLOCK * block_len..][..block_len]
    }

    /// Returns the values of the page of a position: `[page_len][head_dim]`.
    #[inline(always)]
    fn values(&self, table: &[PageId], position: usize) -> &[f32] {
        let page = table[position / self.kv.shape().page_len];
        // SAFETY: the caller of `run` guarantees that no thread writes to these pages.
        unsafe { self.kv.values(page, self.layer, self.kv_head) }
    }

    /// Adds the values at `positions`, which start at the beginning of a page, to `sums`, `[G][2][head_dim]`,
    /// with the weights at the same positions of `weights`.
    #[inline(always)]
    fn weighted<S: Simd, const G: usize>(
        self,
        simd: S,
        table: &[PageId],
        positions: std::ops::Range<usize>,
        weights: [&[f32]; G],
        sums: &mut [f32],
    ) {
        if positions.is_empty() {
            return;
        }
        let dim = self.kv.shape().head_dim;
        let mut at = 0;
        // Use at most sixteen registers for the sums.
        while at + 4 * S::F32_LANES <= dim && G < 4 {
            self.registers::<S, G, 4>(simd, table, positions.clone(), weights, sums, at);
            at += 4 * S::F32_LANES;
        }
        while at + 2 * S::F32_LANES <= dim {
            self.registers::<S, G, 2>(simd, table, positions.clone(), weights, sums, at);
            at += 2 * S::F32_LANES;
        }
        while at + S::F32_LANES <= dim {
            self.registers::<S, G, 1>(simd, table, positions.clone(), weights, sums, at);
            at += S::F32_LANES;
        }
        (at..dim).for_each(|at| self.one(table, positions.clone(), weights, sums, at));
    }

    /// Does the same as [`HeadQuery::weighted`], for `C` registers of the head's width starting at `at`.
    #[inline(always)]
    fn registers<S: Simd, const G: usize, const C: usize>(
        self,
        simd: S,
        table: &[PageId],
        positions: std::ops::Range<usize>,
        weights: [&[f32]; G],
        memory: &mut [f32],
        at: usize,
    ) {
        let shape = self.kv.shape();
        let dim = shape.head_dim;
        let mut sums = [[[simd.splat_f32s(0.0); C]; G]; 2];
        for (i, g, c) in (0..2 * G * C).map(|n| (n / (G * C), n / C % G, n % C)) {
            let place = &memory[(2 * g + i) * dim + at + c * S::F32_LANES..];
            sums[i][g][c] = S::as_simd_f32s(place).0[0];
        }
        for start in positions.clone().step_by(shape.page_len) {
            let count = shape.page_len.min(positions.end - start);
            let values = self.values(table, start);
            let ahead =
                if start + count < positions.end { self.values(table, start + count) } else { values };
            let ahead = ahead[at..].as_ptr();
            let weights: [&[f32]; G] = weights.map(|row| &row[start..start + count]);
            // Page lengths are even, so the first position of a pair is always even.
            let pairs = values.chunks_exact(2 * dim).take(count / 2);
            for (t, pair) in pairs.enumerate() {
                for line in (0..C * S::F32_LANES).step_by(LINE) {
                    prefetch(ahead.wrapping_add(2 * t * dim + line));
                    prefetch(ahead.wrapping_add((2 * t + 1) * dim + line));
                }
                let (even, odd) = pair.split_at(dim);
                add_weighted(simd, &even[at..], weights.map(|row| row[2 * t]), &mut sums[0]);
                add_weighted(simd, &odd[at..], weights.map(|row| row[2 * t + 1]), &mut sums[1]);
            }
            if count % 2 == 1 {
                let last = &values[(count - 1) * dim..];
                add_weighted(simd, &last[at..], weights.map(|row| row[count - 1]), &mut sums[0]);
            }
        }
        for (i, g, c) in (0..2 * G * C).map(|n| (n / (G * C), n / C % G, n % C)) {
            let place = &mut memory[(2 * g + i) * dim + at + c * S::F32_LANES..];
            S::as_mut_simd_f32s(place).0[0] = sums[i][g][c];
        }
    }

    /// Does the same as [`HeadQuery::weighted`], for one number, if the width is not a multiple of a register.
    #[inline(always)]
    fn one<const G: usize>(
        self,
        table: &[PageId],
        positions: std::ops::Range<usize>,
        weights: [&[f32]; G],
        sums: &mut [f32],
        at: usize,
    ) {
        let shape = self.kv.shape();
        for t in positions {
            let value = self.values(table, t)[t % shape.page_len * shape.head_dim + at];
            for g in 0..G {
                sums[(2 * g + t % 2) * shape.head_dim + at] += weights[g][t] * value;
            }
        }
    }
}

/// Computes `sums += weight * row` for `G` weights and `C` registers of the row.
#[inline(always)]
fn add_weighted<S: Simd, const G: usize, const C: usize>(
    simd: S,
    row: &[f32],
    weights: [f32; G],
    sums: &mut [[S::f32s; C]; G],
) {
    let row = S::as_simd_f32s(row).0;
    let row: [S::f32s; C] = std::array::from_fn(|c| row[c]);
    for g in 0..G {
        let weight = simd.splat_f32s(weights[g]);
        for c in 0..C {
            sums[g][c] = simd.mul_add_e_f32s(weight, row[c], sums[g][c]);
        }
    }
}

/// Computes the scores of `G` queries against a block of sixteen keys, `[dim][16]`. Prefetches as many numbers from
/// `ahead`.
#[inline(always)]
fn block_scores<S: Simd, const G: usize>(
    simd: S,
    keys: &[f32],
    ahead: *const f32,
    queries: [&[f32]; G],
    scores: &mut [&mut [f32]; G],
    start: usize,
) {
    for lane in (0..BLOCK).step_by(S::F32_LANES) {
        // Use four partial sums per query, so that additions do not depend on each other.
        let mut sums = [[simd.splat_f32s(0.0); 4]; G];
        for (d, keys) in keys.chunks_exact(4 * BLOCK).enumerate() {
            for j in 0..4 {
                prefetch(ahead.wrapping_add((4 * d + j) * BLOCK + lane));
                let key = S::as_simd_f32s(&keys[j * BLOCK + lane..]).0[0];
                for g in 0..G {
                    sums[g][j] = simd.mul_add_e_f32s(simd.splat_f32s(queries[g][4 * d + j]), key, sums[g][j]);
                }
            }
        }
        let rest = keys.len() / BLOCK / 4 * 4;
        for (j, keys) in keys[rest * BLOCK..].chunks_exact(BLOCK).enumerate() {
            let key = S::as_simd_f32s(&keys[lane..]).0[0];
            for g in 0..G {
                sums[g][j] = simd.mul_add_e_f32s(simd.splat_f32s(queries[g][rest + j]), key, sums[g][j]);
            }
        }
        for g in 0..G {
            let [a, b, c, d] = sums[g];
            let sum = simd.add_f32s(simd.add_f32s(a, b), simd.add_f32s(c, d));
            S::as_mut_simd_f32s(&mut scores[g][start + lane..]).0[0] = sum;
        }
    }
}

/// Replaces the first `len` scores by `e^(scale (s - max))` and the others by zeros; returns the sum.
#[inline(always)]
fn softmax(scores: &mut [f32], len: usize, scale: f32) -> f32 {
    // The remaining scores belong to later positions or were never written.
    scores[len..].fill(f32::NEG_INFINITY);
    let mut peaks = [f32::NEG_INFINITY; BLOCK];
    for block in scores.chunks_exact(BLOCK) {
        for i in 0..BLOCK {
            peaks[i] = if block[i] > peaks[i] { block[i] } else { peaks[i] };
        }
    }
    let peak = peaks.into_iter().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a });
    for score in scores.iter_mut() {
        *score = math::exp((*score - peak) * scale);
    }
    scores[len..].fill(0.0);
    let mut sums = [0.0f32; BLOCK];
    for block in scores.chunks_exact(BLOCK) {
        for i in 0..BLOCK {
            sums[i] += block[i];
        }
    }
    sums.into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::kv::{KvCache, PageShape};
    use sgs_base::random::SeededRng;
    use sgs_lm::decode::NextToken;

    /// Queries, keys and values of one sequence; also computes attention in f64 directly from the definition.
    struct Case {
        shape: PageShape,
        heads: usize,
        len: usize,
        q: Vec<f32>,
        k: Vec<f32>,
        v: Vec<f32>,
    }

    impl Case {
        fn new(heads: usize, kv_heads: usize, head_dim: usize, page_len: usize, len: usize) -> Self {
            let mut rng = SeededRng::stream(5, len as u64);
            let mut random = |n: usize| (0..n).map(|_| 2.0 * rng.normal()).collect::<Vec<f32>>();
            let (q, k, v) = (
                random(len * heads * head_dim),
                random(len * kv_heads * head_dim),
                random(len * kv_heads * head_dim),
            );
            Self { shape: PageShape { layers: 2, kv_heads, head_dim, page_len }, heads, len, q, k, v }
        }

        fn exact(&self, t: usize, head: usize) -> Vec<f64> {
            let (dim, kv) = (self.shape.head_dim, self.shape.kv_heads);
            let kv_head = head / (self.heads / kv);
            let q = &self.q[(t * self.heads + head) * dim..][..dim];
            let row = |data: &[f32], s: usize| -> Vec<f64> {
                data[(s * kv + kv_head) * dim..][..dim].iter().map(|x| f64::from(*x)).collect()
            };
            let scores: Vec<f64> = (0..=t)
                .map(|s| {
                    row(&self.k, s).iter().zip(q).map(|(k, q)| k * f64::from(*q)).sum::<f64>()
                        / (dim as f64).sqrt()
                })
                .collect();
            let peak = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - peak).exp()).collect();
            let total: f64 = weights.iter().sum();
            (0..dim).map(|i| (0..=t).map(|s| weights[s] / total * row(&self.v, s)[i]).sum()).collect()
        }

        /// Computes attention of all positions, `count` tokens at a time. Every other token belongs to a copy of the
        /// sequence that has its own pages from position `own` on.
        fn run(&self, count: usize, own: usize) -> Vec<f32> {
            // SAFETY: no other thread uses the cache.
            self.run_by(count, own, |attention| unsafe { attention.run() })
        }

        fn run_by(&self, count: usize, own: usize, by: impl Fn(PagedAttention<'_>)) -> Vec<f32> {
            let PageShape { kv_heads, head_dim: dim, page_len, .. } = self.shape;
            let pages = self.len.div_ceil(page_len);
            // Pages are in reverse order and hold NaN where nothing was written, as in a used cache.
            let mut tables: Vec<PageId> = (0..pages as PageId).rev().collect();
            let copy = |n: usize| if n * page_len < own { pages - 1 - n } else { pages + n } as PageId;
            tables.extend((0..pages).map(copy));
            let mut cache = KvCache::new(self.shape, 2 * pages).unwrap();
            let kv = cache.shared();
            let nan = vec![f32::NAN; dim];
            for (s, h) in (0..2 * pages * page_len * kv_heads).map(|i| (i / kv_heads, i % kv_heads)) {
                let (page, s) = (tables[s / page_len], s % (pages * page_len));
                let at = (s * kv_heads + h) * dim;
                let (k, v) = match s < self.len {
                    true => (&self.k[at..at + dim], &self.v[at..at + dim]),
                    false => (&nan[..], &nan[..]),
                };
                // SAFETY: there is one thread, and no slice is alive.
                unsafe { kv.append(page, 1, h, s % page_len, k, v) };
            }
            let width = self.heads * dim;
            let mut out = vec![0.0; self.len * width];
            let mut scratch = vec![f32::NAN; scratch_len(self.len, dim)];
            for first in (0..self.len).step_by(count) {
                let columns: Vec<InputToken> = (first..self.len.min(first + count))
                    .map(|t| InputToken {
                        token: NextToken::Known(0),
                        position: t as u32,
                        table: ((t % 2 * pages) as u32, pages as u32),
                    })
                    .collect();
                let attention = PagedAttention {
                    kv,
                    layer: 1,
                    heads: self.heads,
                    columns: &columns,
                    tables: &tables,
                    queries: &self.q[first * width..],
                    stride: width,
                    out: &mut out[first * width..][..columns.len() * width],
                    scratch: &mut scratch,
                };
                by(attention);
            }
            out
        }
    }

    #[test]
    fn attention_follows_its_definition_for_every_grouping() {
        let shapes =
            [(4, 4, 64, 16), (8, 2, 16, 16), (6, 2, 32, 32), (7, 1, 10, 16), (2, 2, 128, 48), (3, 3, 2, 16)];
        for (heads, kv_heads, dim, page_len) in shapes {
            let case = Case::new(heads, kv_heads, dim, page_len, 53);
            let one = case.run(1, 0);
            for (count, own) in [(2, 0), (2, 20), (3, 33), (4, 48), (4, 999), (7, 999), (7, 17)] {
                let many = case.run(count, own);
                assert!(
                    one.iter().zip(&many).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{heads} {dim} {count}"
                );
            }
            for (t, head) in (0..case.len * heads).map(|i| (i / heads, i % heads)) {
                for (got, want) in one[(t * heads + head) * dim..].iter().zip(case.exact(t, head)) {
                    assert!((f64::from(*got) - want).abs() < 2e-5, "{heads} {dim} {t}: {got} {want}");
                }
            }
        }
    }

    /// Tests the code for other machines: registers of eight numbers, and no vector registers.
    #[test]
    fn narrower_registers_give_the_same_attention() {
        for (heads, kv_heads, dim, page_len) in [(4, 4, 24, 16), (8, 2, 20, 32)] {
            let case = Case::new(heads, kv_heads, dim, page_len, 40);
            let wide = case.run(4, 20);
            let mut narrow = vec![case.run_by(4, 20, |a| Simd::vectorize(pulp::Scalar::new(), a))];
            #[cfg(target_arch = "x86_64")]
            if let Some(simd) = pulp::x86::V3::try_new() {
                narrow.push(case.run_by(4, 20, |a| Simd::vectorize(simd, a)));
            }
            for narrow in narrow {
                assert!(wide.iter().zip(&narrow).all(|(a, b)| (a - b).abs() < 2e-5), "{heads} {dim}");
            }
        }
    }
}
