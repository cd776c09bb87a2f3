//! A fixed-size f32 buffer that starts on a cache line and, when it is large, lies in huge pages.

#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use crate::error::{LmError, Result};

/// Sixteen numbers on one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Buffers of at least this many bytes get pages of their own: the size of a huge page.
const LARGE: usize = 2 << 20;

/// A zero-initialised f32 buffer aligned to 64 bytes; it reads and writes as a slice.
#[derive(Debug)]
pub struct Floats {
    storage: Storage,
    len: usize,
}

#[derive(Debug)]
enum Storage {
    Heap(Vec<Line>),
    Pages(MmapMut),
    Lent(Box<dyn Lent>),
}

/// Memory for numbers that a driver provides.
pub(crate) trait Lent: std::fmt::Debug + Send + Sync {
    /// All of it.
    fn floats(&self) -> &[f32];
    /// All of it, to be written.
    fn floats_mut(&mut self) -> &mut [f32];
}

impl Floats {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let heap = || Storage::Heap(vec![Line([0.0; 16]); len.div_ceil(16)]);
        let storage =
            if len * 4 >= LARGE { pages(len * 4).map_or_else(heap, Storage::Pages) } else { heap() };
        Self { storage, len }
    }

    /// `len` zeros, or an error if the system has no room for them: for a length that a file decides.
    ///
    /// # Errors
    /// [`LmError::Device`] says how much was asked for.
    pub fn try_zeros(len: usize) -> Result<Self> {
        let refused = || LmError::Device {
            device: "cpu".to_owned(),
            message: format!(
                "there is no memory for a buffer of {}: take a smaller model, or a machine with more",
                crate::error::bytes(len.saturating_mul(4))
            ),
        };
        // No allocation is larger than this.
        if len > isize::MAX as usize / 8 {
            return Err(refused());
        }
        if len * 4 >= LARGE {
            let pages = pages(len * 4).ok_or_else(refused)?;
            return Ok(Self { storage: Storage::Pages(pages), len });
        }
        Ok(Self::zeros(len))
    }

    /// A buffer in memory that a driver provides, as it is.
    pub(crate) fn lent(memory: Box<dyn Lent>) -> Self {
        Self { len: memory.floats().len(), storage: Storage::Lent(memory) }
    }

    /// A copy of `values`.
    pub fn from_slice(values: &[f32]) -> Self {
        let mut floats = Self::zeros(values.len());
        floats.copy_from_slice(values);
        floats
    }
}

/// Fresh zeroed pages, huge ones if the system gives them: products over large matrices otherwise lose
/// time to address translation.
fn pages(bytes: usize) -> Option<MmapMut> {
    let map = MmapMut::map_anon(bytes.next_multiple_of(64)).ok()?;
    #[cfg(target_os = "linux")]
    {
        // A refusal costs speed only.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    Some(map)
}

impl Default for Floats {
    fn default() -> Self {
        Self::zeros(0)
    }
}

impl Clone for Floats {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

impl Deref for Floats {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        let start = match &self.storage {
            Storage::Heap(lines) => lines.as_ptr().cast(),
            Storage::Pages(map) => map.as_ptr().cast(),
            Storage::Lent(memory) => return memory.floats(),
        };
        // SAFETY: the storage holds at least `len` initialised f32 values, aligned for them: lines are
        // `repr(C)` around `[f32; 16]` with size equal to alignment, so without padding; a map is zeroed, on
        // a page boundary and at least `4 len` bytes long. Any bits are a valid f32.
        unsafe { std::slice::from_raw_parts(start, self.len) }
    }
}

impl DerefMut for Floats {
    fn deref_mut(&mut self) -> &mut [f32] {
        let start = match &mut self.storage {
            Storage::Heap(lines) => lines.as_mut_ptr().cast(),
            Storage::Pages(map) => map.as_mut_ptr().cast(),
            Storage::Lent(memory) => return memory.floats_mut(),
        };
        // SAFETY: as in `deref`, and `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(start, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_room_for_is_an_error() {
        for len in [usize::MAX, usize::MAX / 4, 1 << 46] {
            let error = Floats::try_zeros(len).expect_err("no room").to_string();
            assert!(error.contains("no memory for a buffer"), "{error}");
        }
        assert_eq!(Floats::try_zeros(LARGE).expect("room").len(), LARGE);
    }

    #[test]
    fn small_and_large_buffers_are_zeroed_aligned_and_cloned() {
        for len in [0, 1, 17, LARGE / 4 - 1, LARGE / 4, LARGE / 2 + 5] {
            let mut floats = Floats::zeros(len);
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
