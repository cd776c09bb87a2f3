//! The paged key/value cache: one allocation, divided into pages. A page holds consecutive positions of one
//! sequence for all layers.
//!
//! For each layer, a page holds the keys, `[kv_head][page_len / 16][head_dim][16 positions]`, followed by the
//! values, `[kv_head][page_len][head_dim]`. In blocks of keys the position is the innermost index, so the
//! scores of one query at sixteen positions are multiply-adds without a sum across a register.

#![allow(unsafe_code)]

use std::marker::PhantomData;

use memmap2::MmapMut;

use sgs_lm::config::ModelConfig;
pub(crate) use sgs_lm::decode::PAGE_BLOCK as BLOCK;
use sgs_lm::decode::PageId;
use sgs_lm::error::{LmError, Result};

/// Sizes of the parts of a page, in numbers.
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

    /// Returns the length of the keys (or values) of one head in one layer of a page.
    fn head_len(self) -> usize {
        self.page_len * self.head_dim
    }

    /// Returns the number of f32 values per page.
    pub fn page_numbers(self) -> usize {
        2 * self.layers * self.kv_heads * self.head_len()
    }

    fn keys_at(self, page: PageId, layer: usize, head: usize) -> usize {
        let within = (2 * layer * self.kv_heads + head) * self.head_len();
        page as usize * self.page_numbers() + within
    }

    fn values_at(self, page: PageId, layer: usize, head: usize) -> usize {
        self.keys_at(page, layer, head) + self.kv_heads * self.head_len()
    }
}

/// The cache's memory. The operating system zeroes it on first use, so an unused page costs nothing. It uses
/// huge pages if available, because a step reads all of it.
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
        // This is only a hint. Without huge pages, the cache is a little slower.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        Ok(Self { shape, pages, memory })
    }

    /// Copies one page to another.
    pub fn copy(&mut self, from: PageId, to: PageId) {
        let len = self.shape.page_numbers() * size_of::<f32>();
        let (from, to) = (from as usize * len, to as usize * len);
        self.memory.copy_within(from..from + len, to);
    }

    /// Gives the panels of a step shared access to the cache.
    pub fn shared(&mut self) -> SharedKv<'_> {
        let len = self.pages * self.shape.page_numbers();
        // A mapping starts at a page of the system, so it is aligned for f32 and for cache lines.
        SharedKv { shape: self.shape, len, numbers: self.memory.as_mut_ptr().cast(), life: PhantomData }
    }
}

/// Shared access to the cache during a step, in which several threads write to different pages.
///
/// This is sound because of the scheduler's plan. In one step, all tokens that write to a page belong to one sequence
/// and to one panel. A panel reads only pages of its own sequences, and no other panel writes to these in that step.
#[derive(Clone, Copy)]
pub(crate) struct SharedKv<'a> {
    shape: PageShape,
    len: usize,
    numbers: *mut f32,
    life: PhantomData<&'a mut [f32]>,
}

// SAFETY: the pointer refers to plain numbers that outlive `'a`; the contract of the methods excludes data races.
unsafe impl Send for SharedKv<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedKv<'_> {}

impl SharedKv<'_> {
    pub fn shape(&self) -> PageShape {
        self.shape
    }

    /// Writes the key and value of one head at one position, each `[head_dim]`.
    ///
    /// # Safety
    /// The page must belong to a sequence of the calling panel, no other thread may write to it in this step,
    /// and no slice of it may be alive.
    pub unsafe fn append(
        &self,
        page: PageId,
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
            // SAFETY: `keys + i * BLOCK` is less than `values`, which is within the allocation; the caller
            // guarantees exclusive access to the page.
            unsafe { self.numbers.add(keys + i * BLOCK).write(*k) };
        }
        // SAFETY: `values + dim <= len` was checked above; the caller guarantees exclusive access.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), self.numbers.add(values), dim) };
    }

    /// Returns the keys of one head: `[page_len / 16][head_dim][16]`.
    ///
    /// # Safety
    /// No thread may write to the page while the slice is alive.
    pub unsafe fn keys(&self, page: PageId, layer: usize, head: usize) -> &[f32] {
        // SAFETY: guaranteed by the caller.
        unsafe { self.piece(self.shape.keys_at(page, layer, head)) }
    }

    /// Returns the values of one head: `[page_len][head_dim]`.
    ///
    /// # Safety
    /// No thread may write to the page while the slice is alive.
    pub unsafe fn values(&self, page: PageId, layer: usize, head: usize) -> &[f32] {
        // SAFETY: guaranteed by the caller.
        unsafe { self.piece(self.shape.values_at(page, layer, head)) }
    }

    /// Returns the keys or values of one head, which start at the number `at`.
    ///
    /// # Safety
    /// No thread may write to the range while the slice is alive.
    unsafe fn piece(&self, at: usize) -> &[f32] {
        let len = self.shape.head_len();
        assert!(at + len <= self.len, "a page is outside of the cache");
        // SAFETY: the range was checked against the allocation, which is initialised; the caller guarantees
        // that no thread writes to it.
        unsafe { std::slice::from_raw_parts(self.numbers.add(at), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_appended_position_can_be_read_from_its_page_and_from_copies() {
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
            // SAFETY: there is one thread, and no slice is alive.
            unsafe { shared.append(page as PageId, layer, head, place, &row, &negative) };
        }
        cache.copy(2, 0);
        let shared = cache.shared();
        for (page, source) in [(0, 2), (1, 1), (2, 2)] {
            // SAFETY: no thread writes to the cache.
            let (keys, values) = unsafe { (shared.keys(page, 1, 2), shared.values(page, 1, 2)) };
            for (place, i) in (0..32 * 4).map(|n| (n / 4, n % 4)) {
                let want = value(source, 1, 2, place, i);
                assert_eq!(keys[place / 16 * 64 + i * 16 + place % 16], want);
                assert_eq!(values[place * 4 + i], -want);
            }
        }
    }
}
