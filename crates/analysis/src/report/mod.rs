//! The report: a self-contained HTML file, and the figures as SVG and CSV.

mod examples;
mod html;
mod page;
mod tables;
mod verdict;

pub use html::{Cell, Format, ReportTable};
pub(crate) use page::navigation;
pub use page::{Fragment, PageSection, fragment, page};
pub use verdict::describe_held_out_change;

use crate::figures::FigureOptions;
use crate::plot::{Figure, standalone_svg, write_csv};
use crate::run::RunData;
use sgs_rundir::files::write_file;
use std::path::{Path, PathBuf};

/// Files of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The page.
    pub index: PathBuf,
    /// All files, including the page.
    pub files: Vec<PathBuf>,
}

/// An error of writing a report.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum ReportError {
    #[error("no run was given; specify the directory of at least one run")]
    NoRuns,
    /// A directory or file cannot be written.
    #[error("cannot write {path}: {error}")]
    Io { path: PathBuf, error: std::io::Error },
    /// A file cannot be published.
    #[error(transparent)]
    File(#[from] sgs_rundir::Error),
}

/// Writes `index.html`, `figures/*.svg` and `tables/*.csv` for a run or a comparison of several runs. Each file
/// is written atomically.
pub fn write(runs: &[RunData], out_dir: &Path, options: &FigureOptions) -> Result<Written, ReportError> {
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
