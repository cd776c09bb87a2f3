//! Reference-counted allocation of the pages of the key/value cache.

use sgs_lm::decode::PageId;

/// Allocates the cache's pages. A page is free again when its last reference is released.
#[derive(Debug)]
pub struct PagePool {
    free: Vec<PageId>,
    /// Number of references to each page; 0 if it is free.
    references: Vec<u32>,
}

impl PagePool {
    /// Creates a pool of `pages` free pages.
    pub fn new(pages: usize) -> Self {
        // The list is reversed, so that pages are first allocated in the order of their addresses.
        Self { free: (0..pages as PageId).rev().collect(), references: vec![0; pages] }
    }

    /// Returns the total number of pages.
    pub fn total(&self) -> usize {
        self.references.len()
    }

    /// Returns the number of free pages.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Allocates a page with one reference.
    ///
    /// # Panics
    /// Panics if no page is free. The scheduler compares [`PagePool::free`] with its needs before it allocates.
    #[allow(clippy::expect_used, reason = "a request with too few pages would write to pages of others")]
    pub fn allocate(&mut self) -> PageId {
        let page = self.free.pop().expect("invariant: the scheduler allocates only pages that are free");
        self.references[page as usize] = 1;
        page
    }

    /// Adds a reference to an allocated page.
    pub fn share(&mut self, page: PageId) {
        let references = &mut self.references[page as usize];
        assert!(*references > 0, "invariant: page {page} is allocated when it is shared");
        *references += 1;
    }

    /// Removes a reference; removing the last one frees the page.
    pub fn release(&mut self, page: PageId) {
        let references = &mut self.references[page as usize];
        assert!(*references > 0, "invariant: page {page} is allocated when it is released");
        *references -= 1;
        if *references == 0 {
            self.free.push(page);
        }
    }

    /// Returns the number of references to a page.
    #[cfg(test)]
    pub fn references(&self, page: PageId) -> u32 {
        self.references[page as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_free_after_its_last_reference_is_released() {
        let mut pool = PagePool::new(2);
        let (a, b) = (pool.allocate(), pool.allocate());
        assert_ne!(a, b);
        assert_eq!(pool.free(), 0);
        pool.share(a);
        pool.release(a);
        assert_eq!((pool.free(), pool.references(a)), (0, 1));
        pool.release(a);
        pool.release(b);
        assert_eq!(pool.free(), pool.total());
    }

    #[test]
    #[should_panic(expected = "invariant")]
    fn a_page_cannot_be_released_twice() {
        let mut pool = PagePool::new(1);
        let page = pool.allocate();
        pool.release(page);
        pool.release(page);
    }
}
