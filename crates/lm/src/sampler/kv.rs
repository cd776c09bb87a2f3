//! The paged key/value cache: one allocation, cut into pages that hold a run of positions of one
//! sequence for all layers.
//!
//! A page holds for each layer the keys, `[kv_head][page_len / 16][head_dim][16 positions]`, then the
//! values, `[kv_head][page_len][head_dim]`. Keys lie position-innermost so that one query's scores of
//! sixteen positions are plain multiply-adds without a sum across a register.

#![allow(unsafe_code)]

use std::marker::PhantomData;

use memmap2::MmapMut;

use super::pages::Page;
use crate::config::ModelConfig;
use crate::error::{LmError, Result};

/// Positions that lie side by side in a block of keys; page lengths are multiples of it.
pub(crate) const BLOCK: usize = 16;

/// Sizes of a page's parts, in numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageShape {
    pub layers: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub page_len: usize,
}

impl PageShape {
    pub fn new(config: &ModelConfig, page_len: usize) -> Self {
        Self { layers: config.layers, kv_heads: config.kv_heads, head_dim: config.head_dim, page_len }
    }

    /// Keys (or values) of one head in one layer of a page.
    fn head_len(self) -> usize {
        self.page_len * self.head_dim
    }

    /// Numbers in a page.
    pub fn page_numbers(self) -> usize {
        2 * self.layers * self.kv_heads * self.head_len()
    }

    fn keys_at(self, page: Page, layer: usize, head: usize) -> usize {
        let within = (2 * layer * self.kv_heads + head) * self.head_len();
        page as usize * self.page_numbers() + within
    }

    fn values_at(self, page: Page, layer: usize, head: usize) -> usize {
        self.keys_at(page, layer, head) + self.kv_heads * self.head_len()
    }
}

/// The cache's memory: zeroed by the operating system when first touched, so an unused page costs
/// nothing, and in huge pages where it has them, because a step walks over all of it.
#[derive(Debug)]
pub(crate) struct KvCache {
    shape: PageShape,
    pages: usize,
    memory: MmapMut,
}

impl KvCache {
    pub fn new(shape: PageShape, pages: usize) -> Result<Self> {
        let bytes = pages * shape.page_numbers() * size_of::<f32>();
        let memory = MmapMut::map_anon(bytes).map_err(|e| LmError::Device {
            device: "cpu".to_owned(),
            message: format!("cannot map {bytes} bytes for the key/value cache: {e}"),
        })?;
        // Only advice: without huge pages everything works, a little slower.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        Ok(Self { shape, pages, memory })
    }

    /// Copies one page over another.
    pub fn copy(&mut self, from: Page, to: Page) {
        let len = self.shape.page_numbers() * size_of::<f32>();
        let (from, to) = (from as usize * len, to as usize * len);
        self.memory.copy_within(from..from + len, to);
    }

    /// The cache as the panels of a step see it.
    pub fn shared(&mut self) -> SharedKv<'_> {
        let len = self.pages * self.shape.page_numbers();
        // A mapping starts on a page of the system: aligned for f32 and for cache lines.
        SharedKv { shape: self.shape, len, numbers: self.memory.as_mut_ptr().cast(), life: PhantomData }
    }
}

/// The cache during a step, when several threads write to different pages of it.
///
/// The scheduler's plan guarantees what makes this sound: within a step a page is written by the columns
/// of at most one sequence, all in one panel, and a panel reads only pages of its own sequences, which
/// nobody else writes in that step.
#[derive(Clone, Copy)]
pub(crate) struct SharedKv<'a> {
    shape: PageShape,
    len: usize,
    numbers: *mut f32,
    life: PhantomData<&'a mut [f32]>,
}

// SAFETY: the pointer is to plain numbers that outlive `'a`; the type's contract keeps threads apart.
unsafe impl Send for SharedKv<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedKv<'_> {}

impl SharedKv<'_> {
    pub fn shape(&self) -> PageShape {
        self.shape
    }

    /// Writes one position's key and value of one head, each `[head_dim]`.
    ///
    /// # Safety
    /// The page belongs to a sequence of the calling panel, nobody else writes it in this step, and no
    /// slice of it is alive.
    pub unsafe fn append(
        &self,
        page: Page,
        layer: usize,
        head: usize,
        place: usize,
        key: &[f32],
        value: &[f32],
    ) {
        let shape = self.shape;
        let dim = shape.head_dim;
        assert!(place < shape.page_len && key.len() == dim && value.len() == dim && head < shape.kv_heads);
        let keys = shape.keys_at(page, layer, head) + place / BLOCK * BLOCK * dim + place % BLOCK;
        let values = shape.values_at(page, layer, head) + place * dim;
        assert!(values + dim <= self.len, "page {page} is outside of the cache");
        for (i, k) in key.iter().enumerate() {
            // SAFETY: `keys + i * BLOCK` is below `values`, which is within the allocation; the caller
            // promises that nobody else uses this page now.
            unsafe { self.numbers.add(keys + i * BLOCK).write(*k) };
        }
        // SAFETY: `values + dim <= len` was checked; the caller promises exclusive use.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), self.numbers.add(values), dim) };
    }

    /// Keys of one head: `[page_len / 16][head_dim][16]`.
    ///
    /// # Safety
    /// Nobody writes the page while the slice is alive.
    pub unsafe fn keys(&self, page: Page, layer: usize, head: usize) -> &[f32] {
        // SAFETY: passed on to the caller.
        unsafe { self.piece(self.shape.keys_at(page, layer, head)) }
    }

    /// Values of one head: `[page_len][head_dim]`.
    ///
    /// # Safety
    /// Nobody writes the page while the slice is alive.
    pub unsafe fn values(&self, page: Page, layer: usize, head: usize) -> &[f32] {
        // SAFETY: passed on to the caller.
        unsafe { self.piece(self.shape.values_at(page, layer, head)) }
    }

    /// # Safety
    /// Nobody writes the piece while the slice is alive.
    unsafe fn piece(&self, at: usize) -> &[f32] {
        let len = self.shape.head_len();
        assert!(at + len <= self.len, "a page is outside of the cache");
        // SAFETY: the range was checked against the allocation, which is initialised; the caller promises
        // that nobody writes it meanwhile.
        unsafe { std::slice::from_raw_parts(self.numbers.add(at), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_found_where_it_was_put_and_copies_follow() {
        let shape = PageShape { layers: 2, kv_heads: 3, head_dim: 4, page_len: 32 };
        let mut cache = KvCache::new(shape, 3).unwrap();
        let value = |page: usize, layer: usize, head: usize, place: usize, i: usize| {
            (((page * 2 + layer) * 3 + head) * 32 + place) as f32 * 10.0 + i as f32
        };
        let shared = cache.shared();
        for (page, layer, head, place) in
            (0..3 * 2 * 3 * 32).map(|n| (n / 192, n / 96 % 2, n / 32 % 3, n % 32))
        {
            let row: Vec<f32> = (0..4).map(|i| value(page, layer, head, place, i)).collect();
            let negative: Vec<f32> = row.iter().map(|v| -v).collect();
            // SAFETY: one thread, no slices alive.
            unsafe { shared.append(page as Page, layer, head, place, &row, &negative) };
        }
        cache.copy(2, 0);
        let shared = cache.shared();
        for (page, source) in [(0, 2), (1, 1), (2, 2)] {
            // SAFETY: nobody writes.
            let (keys, values) = unsafe { (shared.keys(page, 1, 2), shared.values(page, 1, 2)) };
            for (place, i) in (0..32 * 4).map(|n| (n / 4, n % 4)) {
                let want = value(source, 1, 2, place, i);
                assert_eq!(keys[place / 16 * 64 + i * 16 + place % 16], want);
                assert_eq!(values[place * 4 + i], -want);
            }
        }
    }
}
