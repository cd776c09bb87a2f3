//! `sgs man`: manual pages.

use crate::exit::{Outcome, Usage};
use crate::output;
use anyhow::{Context, Result};
use clap_mangen::Man;

/// Writes the manual page of a command, given by the names of its subcommands.
pub fn run(path: &[String]) -> Result<Outcome> {
    let mut root = crate::command();
    root.build();
    let mut command = &root;
    for name in path {
        let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        command = command.find_subcommand(name).ok_or_else(|| {
            let near = sgs_keys::did_you_mean(name, names.iter().copied());
            Usage(format!("`{}` has no command `{name}`{near}", command.get_bin_name().unwrap_or("sgs")))
        })?;
    }
    let mut page = Vec::new();
    let source = format!("sgs {}", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).source(source).render(&mut page).context("cannot format the manual page")?;
    output::text(&String::from_utf8_lossy(&page))?;
    Ok(Outcome::Done)
}
