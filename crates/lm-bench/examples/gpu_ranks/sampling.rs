//! Compares independent samplers, one per GPU, with a single one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::requests::mixed_requests;
use sgs_lm::{LmError, Result};
use sgs_lm_sampler::{Decode, Request, Sampler, SamplerError, SamplerOptions};

use super::{Job, LIMIT, Machine, Report, job, on_cpu, run, shape, verdict};

/// Number of requests of each sampler; all samplers get the same requests.
const REQUESTS: usize = 1000;

/// Samples the mixed requests on each of several GPUs at the same time. The speed counts from the moment that
/// all samplers are ready to the end of the last one.
pub fn scales(counts: &str) -> bool {
    let (mut good, mut alone) = (true, None);
    for ranks in counts.split(',').filter_map(|n| n.parse::<usize>().ok()) {
        let job = Job { shape: "7".to_owned(), ..job("sampling", ranks, &format!("sampling-{ranks}")) };
        if run(&job).is_none() {
            good = false;
            continue;
        }
        let reports: Vec<Report> = (0..ranks).filter_map(|rank| read(&file(&job, "done", rank))).collect();
        let seconds = reports.iter().flat_map(|r| r.seconds.iter().copied()).fold(0.0, f64::max);
        let tokens: usize = reports.iter().map(|r| r.tokens).sum();
        let speed = tokens as f64 / seconds;
        let each = *alone.get_or_insert(speed / ranks as f64);
        let share = speed / (ranks as f64 * each);
        println!(
            "sampling on {ranks}: {tokens} new tokens in {seconds:.2} s, {speed:.0} tokens/s, {:.1}% of linear {}",
            100.0 * share,
            verdict(share >= 0.97 && reports.len() == ranks)
        );
        good &= share >= 0.97 && reports.len() == ranks;
    }
    good
}

/// Runs one sampler.
pub fn work<D: Machine + Decode>(job: &Job) -> Result<Option<Report>> {
    let device = Arc::new(D::open(job.rank, &job.precision)?);
    let config = shape(&job.shape);
    let model = device.model(&config)?;
    let (count, budget) = if on_cpu() { (40, 64 << 20) } else { (REQUESTS, 80 << 30) };
    let options = SamplerOptions {
        memory_budget_bytes: budget,
        max_batch: 256,
        page_len: 16,
        prefill_tokens: Some(2048),
    };
    let mut sampler = Sampler::new(&model, &options).map_err(fail)?;
    let requests = mixed_requests(count, config.vocab_size);
    let warm = requests.iter().take(options.max_batch).cloned();
    sampler.run(&model, warm.map(|r| Request { max_new_tokens: 4, ..r }), |_, _| ()).map_err(fail)?;
    meet(job)?;
    let (started, mut tokens) = (Instant::now(), 0);
    sampler.run(&model, requests, |_, completion| tokens += completion.tokens.len()).map_err(fail)?;
    let report = Report { seconds: vec![started.elapsed().as_secs_f64()], tokens, ..Report::default() };
    let path = file(job, "done", job.rank);
    let text = serde_json::to_string(&report).map_err(|e| LmError::Input(e.to_string()))?;
    std::fs::write(&path, text).map_err(|error| LmError::Io { path, error })?;
    Ok((job.rank == 0).then_some(report))
}

fn file(job: &Job, name: &str, rank: usize) -> PathBuf {
    job.folder.join(format!("{name}-{rank}"))
}

fn read(path: &Path) -> Option<Report> {
    serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
}

/// Waits until all samplers are ready.
fn meet(job: &Job) -> Result<()> {
    let path = file(job, "ready", job.rank);
    std::fs::write(&path, "").map_err(|error| LmError::Io { path, error })?;
    let deadline = Instant::now() + LIMIT;
    while !(0..job.ranks).all(|rank| file(job, "ready", rank).exists()) {
        if Instant::now() > deadline {
            return Err(LmError::Input("another sampler is not ready".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn fail(error: SamplerError) -> LmError {
    LmError::Input(error.to_string())
}
