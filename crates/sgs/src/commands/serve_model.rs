//! `sgs serve-model`: a model behind the protocol of OpenAI's completions.

use crate::args::ServeModelArgs;
use crate::exit::Outcome;
use crate::output;
use crate::players::Players;
use crate::signals;
use anyhow::Result;
use sgs_lm::sampler::SamplerOptions;
use sgs_run::{device, with_device};
use sgs_serve::{Engine, Key, Service, ServiceConfig};
use std::time::Duration;

/// How often it is looked whether to end.
const LOOK: Duration = Duration::from_millis(100);

/// Serves until a signal comes.
pub fn run(args: &ServeModelArgs) -> Result<Outcome> {
    // Told before anything is loaded.
    let key = args.key_file.as_deref().map(Key::read).transpose()?;
    let players = Players::choose(&args.play)?;
    let folder = players.of(args.role.into())?.display().to_string();
    let (tokenizer, weights) = players.load(args.role.into())?;
    let options = SamplerOptions {
        max_batch: args.batch,
        memory_budget_bytes: args.play.memory_mib.saturating_mul(1 << 20),
        ..SamplerOptions::default()
    };
    let positions = args.context.unwrap_or(usize::MAX).min(players.positions());
    let name = players.round().map_or_else(|| "base".to_owned(), |round| format!("round-{round}"));
    let (interrupt, _attending) = signals::attend()?;
    let (engine, sampler) = with_device!(args.play.device, device::threads(), device => {
        Engine::start(device, weights, positions, &options, &folder, &name)?
    });
    let config =
        ServiceConfig { listen: args.listen, key, name: args.name.clone(), updates: args.updates.clone() };
    let window = engine.served().window;
    let service = Service::start(engine, tokenizer, config)?;
    eprintln!("{folder} ({name}, context {window} tokens) as `{}`", args.name);
    output::line(format!("http://{}/v1", service.address()))?;
    while !interrupt.is_set() && !sampler.is_finished() {
        std::thread::sleep(LOOK);
    }
    anyhow::ensure!(interrupt.is_set(), "the sampler has stopped");
    Ok(Outcome::Done)
}
