//! Length penalties on a rollout's reward.

use crate::config::{LengthScope, PenaltyConfig};
use crate::data::SampleFacts;

/// Returns the length penalty of a completion that uses `used` of `window` tokens: 0 up to `start · window`, then falling
/// linearly to -1 at the full window (paper, §4.1, after the Soft Overlong Punishment of DAPO, Yu et al. 2025).
///
/// The paper's start is 0.8. A window of 0 disables the penalty.
pub fn length_reward(used: u32, window: u32, start: f64) -> f64 {
    let window = f64::from(window);
    let free = start * window;
    let used = f64::from(used);
    if window == 0.0 || used <= free {
        return 0.0;
    }
    let span = window - free;
    if span <= 0.0 { -1.0 } else { (-(used - free) / span).max(-1.0) }
}

/// Returns the number of tokens that count towards the context window.
pub fn used_tokens(facts: &SampleFacts, scope: LengthScope) -> u32 {
    match scope {
        LengthScope::ContextWindow => facts.prompt_tokens.saturating_add(facts.generated_tokens),
        LengthScope::GeneratedTokens => facts.generated_tokens,
    }
}

/// Returns the length penalty of a completion under a configuration; 0 if the penalty is off.
pub fn length_penalty(facts: &SampleFacts, config: &PenaltyConfig, window: u32) -> f64 {
    if !config.length {
        return 0.0;
    }
    length_reward(used_tokens(facts, config.length_scope), window, config.length_start)
}

/// Returns STP's weight of a valid proof, `exp(-rate · characters)` with rate 0.001 (Dong and Ma 2025; the paper's code).
/// Characters are Unicode code points.
pub fn short_proof_weight(characters: u32, rate: f64) -> f64 {
    (-rate * f64::from(characters)).exp()
}
