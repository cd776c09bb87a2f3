//! The loss curve of a training, as a CSV file.

use sgs_lm::trainer::StepReport;
use sgs_run::error::{Context, Result};
use std::fs;
use std::io::Write;
use std::path::Path;

/// Writes the loss of every step as CSV, in blocks.
pub(super) struct LossCurve {
    file: fs::File,
    waiting: String,
    recent: Vec<f64>,
}

impl LossCurve {
    /// Opens the file to continue at a step. Rows of later steps, which a crash left behind, are removed.
    pub(super) fn open(path: &Path, step: u64) -> Result<Self> {
        let old = sgs_rundir::files::read_if_exists(path)?;
        let kept = old.lines().skip(1).filter(|line| {
            line.split(',').next().and_then(|s| s.parse::<u64>().ok()).is_some_and(|s| s < step)
        });
        let header = "step,loss,learning_rate,gradient_norm,tokens,seconds";
        let text: String = [header].into_iter().chain(kept).flat_map(|line| [line, "\n"]).collect();
        sgs_rundir::files::write_file(path, text.as_bytes())?;
        let file = fs::OpenOptions::new()
            .append(true)
            .open(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { file, waiting: String::new(), recent: Vec::new() })
    }

    pub(super) fn add(&mut self, r: &StepReport) -> Result<()> {
        self.waiting.push_str(&format!(
            "{},{:.6},{:.3e},{:.4},{},{:.4}\n",
            r.step, r.stats.loss, r.learning_rate, r.gradient_norm, r.tokens, r.seconds
        ));
        if self.recent.len() == 100 {
            self.recent.remove(0);
        }
        self.recent.push(r.stats.loss);
        if self.waiting.len() > 16_384 { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        self.file.write_all(self.waiting.as_bytes()).context("cannot write loss.csv")?;
        self.waiting.clear();
        Ok(())
    }

    /// Returns the mean loss of the last hundred steps.
    pub(super) fn mean(&self) -> f64 {
        self.recent.iter().sum::<f64>() / self.recent.len().max(1) as f64
    }
}
