//! Which pages of the key/value cache are free, and how many readers each used one has.

/// Number of a page in the cache.
pub type Page = u32;

/// Allocator of the cache's pages; a page is free again when its last holder lets go.
#[derive(Debug)]
pub struct PagePool {
    free: Vec<Page>,
    holders: Vec<u32>,
}

impl PagePool {
    /// A pool of `pages` free pages.
    pub fn new(pages: usize) -> Self {
        // Reversed, so that pages are first handed out in address order.
        Self { free: (0..pages as Page).rev().collect(), holders: vec![0; pages] }
    }

    /// Number of pages in all.
    pub fn total(&self) -> usize {
        self.holders.len()
    }

    /// Number of free pages.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a page with one holder, or `None` if all are used.
    pub fn take(&mut self) -> Option<Page> {
        let page = self.free.pop()?;
        self.holders[page as usize] = 1;
        Some(page)
    }

    /// Adds a holder to a used page.
    pub fn hold(&mut self, page: Page) {
        debug_assert!(self.holders[page as usize] > 0, "page {page} is free");
        self.holders[page as usize] += 1;
    }

    /// Removes a holder; the last one frees the page.
    pub fn release(&mut self, page: Page) {
        let holders = &mut self.holders[page as usize];
        debug_assert!(*holders > 0, "page {page} is released twice");
        *holders = holders.saturating_sub(1);
        if *holders == 0 {
            self.free.push(page);
        }
    }

    /// How many hold a page; 0 when it is free.
    #[cfg(test)]
    pub fn holders(&self, page: Page) -> u32 {
        self.holders[page as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_return_with_their_last_holder() {
        let mut pool = PagePool::new(2);
        let (a, b) = (pool.take().unwrap(), pool.take().unwrap());
        assert_ne!(a, b);
        assert_eq!(pool.take(), None);
        pool.hold(a);
        pool.release(a);
        assert_eq!((pool.free(), pool.holders(a)), (0, 1));
        pool.release(a);
        pool.release(b);
        assert_eq!(pool.free(), pool.total());
    }
}
