//! Seeded draws that are the same on every machine.

/// A stream of random numbers.
pub type Draw = sgs_base::random::SeededRng;

/// Returns a random item of a non-empty list.
pub fn pick<'a, T>(draw: &mut Draw, some: &'a [T]) -> &'a T {
    &some[draw.below(some.len() as u64) as usize]
}

/// Returns a number from `low` to `high`, both included.
pub fn between(draw: &mut Draw, low: u64, high: u64) -> u64 {
    low + draw.below(high - low + 1)
}

/// Returns true with a probability of `of_hundred` percent.
pub fn happens(draw: &mut Draw, of_hundred: u64) -> bool {
    draw.below(100) < of_hundred
}
