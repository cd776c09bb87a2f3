//! `sgs serve-model`: serves a model over the OpenAI completions protocol.

use crate::args::ServeModelArgs;
use crate::exit::{Outcome, usage};
use crate::model_source::{ModelSource, SamplingMemory};
use crate::output;
use crate::signals;
use anyhow::Result;
use sgs_lm::Device as _;
use sgs_lm_sampler::SamplerOptions;
use sgs_run::config::device;
use sgs_run::with_device;
use sgs_selfplay::Role;
use sgs_serve::{ApiKey, ModelEngine, ModelServer, ModelServerConfig, ModelServerError};
use std::time::Duration;

/// Interval between checks of the interrupt flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Serves until a signal arrives.
pub fn run(args: &ServeModelArgs) -> Result<Outcome> {
    // Check the address and key before loading the model.
    let key = args.key_file.as_deref().map(ApiKey::read).transpose().map_err(usage)?;
    let players = ModelSource::choose(&args.play)?;
    let folder = players.of(args.role)?.display().to_string();
    let (tokenizer, weights) = players.load(args.role)?;
    let options = SamplerOptions {
        max_batch: args.batch,
        memory_budget_bytes: args.play.memory_mib.saturating_mul(1 << 20),
        ..SamplerOptions::default()
    };
    let positions = args.context.unwrap_or(usize::MAX).min(players.positions(&weights.config));
    let name = players.weights_name(args.role);
    let (interrupt, _guard) = signals::guard()?;
    let (engine, sampler) = with_device!(args.play.device, device::threads(), device => {
        let memory = SamplingMemory {
            footprint: device.footprint(),
            config: &weights.config,
            context: weights.config.positions(positions)?,
            longest: 1,
        };
        memory.check(&options, "--batch")?;
        ModelEngine::start(device, weights, positions, &options, &folder, &name)?
    });
    let config = ModelServerConfig {
        listen: args.listen,
        key,
        name: args.name.clone(),
        updates: args.updates.clone(),
    };
    let window = engine.served().window;
    let service = ModelServer::start(engine, tokenizer, config).map_err(|error| match error {
        // The address is free at another time, so the arguments are not wrong.
        ModelServerError::Listen(..) => error.into(),
        error => usage(error),
    })?;
    let whose = match args.play.run {
        Some(_) => format!("the run's {}", args.role.as_str()),
        None => "the model of all roles".to_owned(),
    };
    eprintln!("serving {whose} as `{}`: {folder} ({name}, context {window} tokens)", args.name);
    if args.play.run.is_some() && args.role != Role::Guide {
        eprintln!("note: this is the {}; to serve the Guide, add `--role guide`", args.role.as_str());
    }
    output::line(format!("http://{}/v1", service.address()))?;
    while !interrupt.is_set() && !sampler.is_finished() {
        std::thread::sleep(POLL_INTERVAL);
    }
    anyhow::ensure!(interrupt.is_set(), "the sampler has stopped");
    Ok(Outcome::Done)
}
