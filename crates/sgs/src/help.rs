//! The definition of the command line as users see it: subcommands in groups.

use crate::args::{Cli, GROUPS};
use clap::CommandFactory;
use std::fmt::Write as _;

const FIRST_STEPS: &str = "\
First steps:
  sgs doctor                          check this machine
  sgs run                             train on 100 theorems (about 6 minutes)
  sgs report runs/sgs-metamath-quick  write the report of that run
  sgs run --explain                   print every configuration key";

/// Returns the end of `sgs --help`: the first commands, and the exit codes.
pub fn after_help() -> String {
    format!("{FIRST_STEPS}\n\n{}", crate::exit::help())
}

pub fn command() -> clap::Command {
    let command = negative_numbers_are_values(Cli::command());
    let template = template(&command);
    command.help_template(template)
}

/// Lets `--seed -1` be an error about the value instead of about an unknown argument.
fn negative_numbers_are_values(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() && !arg.is_positional() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    command.mut_subcommands(negative_numbers_are_values)
}

/// Returns the layout of `sgs --help`. clap lists all subcommands under one heading.
fn template(command: &clap::Command) -> String {
    let about = |name: &str| match command.find_subcommand(name).and_then(clap::Command::get_about) {
        Some(about) => about.to_string(),
        None => "Print the help of a command".to_owned(),
    };
    let mut text = "{about}\n\n{usage-heading} {usage}\n".to_owned();
    for (heading, names) in GROUPS {
        let _ = writeln!(text, "\n{heading}:");
        for name in names {
            let _ = writeln!(text, "  {name:<12} {}", about(name));
        }
    }
    text + "\nOptions:\n{options}{after-help}\n"
}
