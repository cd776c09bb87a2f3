//! A fixed-size f32 buffer in host memory, aligned to cache lines; large buffers use huge pages.

#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use crate::error::{LmError, Result};

/// Sixteen numbers in one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct CacheLine([f32; 16]);

/// Buffers of at least this many bytes are mapped separately: the size of a huge page.
const LARGE: usize = 2 << 20;

/// A zero-initialised f32 buffer, aligned to 64 bytes. It dereferences to a slice.
#[derive(Debug)]
pub struct HostBuffer {
    storage: Storage,
    len: usize,
}

#[derive(Debug)]
enum Storage {
    Heap(Vec<CacheLine>),
    Pages(MmapMut),
    ForeignMemory(Box<dyn ForeignMemory>),
}

/// Host memory that a driver allocated, for example pinned memory.
pub trait ForeignMemory: std::fmt::Debug + Send + Sync {
    /// Returns all numbers.
    fn floats(&self) -> &[f32];
    /// Returns all numbers for writing.
    fn floats_mut(&mut self) -> &mut [f32];
}

impl HostBuffer {
    /// Allocates `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let heap = || Storage::Heap(vec![CacheLine([0.0; 16]); len.div_ceil(16)]);
        let storage =
            if len * 4 >= LARGE { pages(len * 4).map_or_else(heap, Storage::Pages) } else { heap() };
        Self { storage, len }
    }

    /// Allocates `len` zeros, where `len` depends on a file.
    ///
    /// # Errors
    /// Returns [`LmError::Device`] with the requested size if there is not enough memory.
    pub fn try_zeros(len: usize) -> Result<Self> {
        let refused = || LmError::Device {
            device: "cpu".to_owned(),
            message: format!(
                "not enough memory for a buffer of {}: use a smaller model, or a machine with more memory",
                crate::error::bytes(len.saturating_mul(4))
            ),
        };
        // No allocation can be larger.
        if len > isize::MAX as usize / 8 {
            return Err(refused());
        }
        if len * 4 >= LARGE {
            let pages = pages(len * 4).ok_or_else(refused)?;
            return Ok(Self { storage: Storage::Pages(pages), len });
        }
        Ok(Self::zeros(len))
    }

    /// Wraps memory that a driver allocated, without copying it.
    pub fn lent(memory: Box<dyn ForeignMemory>) -> Self {
        Self { len: memory.floats().len(), storage: Storage::ForeignMemory(memory) }
    }

    /// Copies `values`.
    pub fn from_slice(values: &[f32]) -> Self {
        let mut floats = Self::zeros(values.len());
        floats.copy_from_slice(values);
        floats
    }
}

/// Maps zeroed pages. Uses huge pages if the system provides them, because address translation of small pages slows
/// down products of large matrices.
fn pages(bytes: usize) -> Option<MmapMut> {
    let map = MmapMut::map_anon(bytes.next_multiple_of(64)).ok()?;
    #[cfg(target_os = "linux")]
    {
        // If the system refuses, the buffer is only slower.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    Some(map)
}

impl Default for HostBuffer {
    fn default() -> Self {
        Self::zeros(0)
    }
}

impl Clone for HostBuffer {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

impl Deref for HostBuffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        let start = match &self.storage {
            Storage::Heap(lines) => lines.as_ptr().cast(),
            Storage::Pages(map) => map.as_ptr().cast(),
            Storage::ForeignMemory(memory) => return memory.floats(),
        };
        // SAFETY: the storage holds at least `len` initialised f32 values with the right alignment. `CacheLine`
        // is `repr(C)` around `[f32; 16]` and its size equals its alignment, so there is no padding. A map is
        // zeroed, starts at a page boundary and has at least `4 len` bytes. Every bit pattern is a valid f32.
        unsafe { std::slice::from_raw_parts(start, self.len) }
    }
}

impl DerefMut for HostBuffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        let start = match &mut self.storage {
            Storage::Heap(lines) => lines.as_mut_ptr().cast(),
            Storage::Pages(map) => map.as_mut_ptr().cast(),
            Storage::ForeignMemory(memory) => return memory.floats_mut(),
        };
        // SAFETY: as in `deref`; in addition, `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(start, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_size_is_an_error() {
        for len in [usize::MAX, usize::MAX / 4, 1 << 46] {
            let error = HostBuffer::try_zeros(len).expect_err("no room").to_string();
            assert!(error.contains("memory for a buffer"), "{error}");
        }
        assert_eq!(HostBuffer::try_zeros(LARGE).expect("room").len(), LARGE);
    }

    #[test]
    fn small_and_large_buffers_are_zeroed_aligned_and_cloned() {
        for len in [0, 1, 17, LARGE / 4 - 1, LARGE / 4, LARGE / 2 + 5] {
            let mut floats = HostBuffer::zeros(len);
            assert_eq!(floats.len(), len);
            assert!(floats.iter().all(|x| *x == 0.0));
            assert_eq!(floats.as_ptr() as usize % 64, 0);
            if let Some(last) = floats.last_mut() {
                *last = 7.0;
            }
            assert_eq!(floats.clone()[..], floats[..]);
        }
    }
}
