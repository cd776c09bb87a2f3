//! The report: one HTML file that needs nothing else, and the figures as SVG, PNG and CSV beside it.

mod examples;
mod html;
mod inventions;
mod page;
mod tables;

pub use html::Table;
pub(crate) use page::navigation;
pub use page::{Fragment, Part, fragment, page};

use crate::figures::FigureOptions;
use crate::plot::{Figure, standalone_svg, write_csv};
use crate::run::RunData;
use sgs_rundir::files::write_file;
use std::path::{Path, PathBuf};

/// What a report shows besides the runs.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    pub figures: FigureOptions,
    /// Commands that make the runs again, one a line; made from the runs' configuration if absent.
    pub reproduce: Option<String>,
    /// Pixels per unit of PNG files; no PNG if absent. The default is 2: 1,880 pixels for a full-width figure.
    pub png_scale: Option<f32>,
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self { figures: FigureOptions::default(), reproduce: None, png_scale: Some(2.0) }
    }
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub index: PathBuf,
    /// All files, the page among them.
    pub files: Vec<PathBuf>,
}

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// There is nothing to report on.
    #[error("no run was given; name at least one run's directory")]
    NoRuns,
    /// The file system refuses.
    #[error("{path} cannot be written: {error}")]
    Io {
        /// What could not be written.
        path: PathBuf,
        error: std::io::Error,
    },
    /// The file system refuses to publish a file.
    #[error(transparent)]
    File(#[from] sgs_rundir::Error),
    /// A figure could not be drawn.
    #[cfg(feature = "png")]
    #[error(transparent)]
    Png(#[from] crate::plot::PngError),
}

/// Writes `index.html`, `figures/*.svg` (and `.png`) and `tables/*.csv` for one run or a comparison of several.
/// Each file appears whole or not at all.
///
/// # Errors
/// No run is given, or the file system refuses.
pub fn write(runs: &[RunData], out_dir: &Path, options: &ReportOptions) -> Result<Written, ReportError> {
    if runs.is_empty() {
        return Err(ReportError::NoRuns);
    }
    let (figures_dir, tables_dir) = (out_dir.join("figures"), out_dir.join("tables"));
    for dir in [&figures_dir, &tables_dir] {
        std::fs::create_dir_all(dir).map_err(|error| ReportError::Io { path: dir.clone(), error })?;
    }
    let fragment = fragment(runs, options);
    let mut files = Vec::new();
    let mut publish = |path: PathBuf, bytes: &[u8]| -> Result<(), ReportError> {
        write_file(&path, bytes)?;
        files.push(path);
        Ok(())
    };
    for figure in &fragment.figures {
        publish(figures_dir.join(format!("{}.svg", figure.id)), standalone_svg(figure).as_bytes())?;
        publish(tables_dir.join(format!("{}.csv", figure.id)), &csv_of(figure, &tables_dir)?)?;
        #[cfg(feature = "png")]
        if let Some(scale) = options.png_scale {
            publish(figures_dir.join(format!("{}.png", figure.id)), &crate::plot::write_png(figure, scale)?)?;
        }
    }
    for (name, table) in &fragment.tables {
        publish(tables_dir.join(format!("{name}.csv")), table.csv().as_bytes())?;
    }
    let index = out_dir.join("index.html");
    publish(index.clone(), page(&fragment, None).as_bytes())?;
    Ok(Written { index, files })
}

fn csv_of(figure: &Figure, dir: &Path) -> Result<Vec<u8>, ReportError> {
    let mut bytes = Vec::new();
    write_csv(figure, &mut bytes).map_err(|error| ReportError::Io { path: dir.join(&figure.id), error })?;
    Ok(bytes)
}
