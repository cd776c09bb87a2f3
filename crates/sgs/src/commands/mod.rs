//! The commands. Each is a thin layer over the libraries.

mod bench;
mod bench_verify;
mod compare;
mod conjecture;
mod data_build;
mod data_classify;
mod data_compose;
mod data_filter;
mod data_import;
mod data_reviews;
pub mod doctor;
mod dry_run;
pub mod eval;
mod explain;
mod export;
mod external_check;
mod fit;
mod lean_prompts;
mod lean_setup;
mod made;
mod man;
mod missing;
pub mod pretrain;
mod prove;
pub mod report;
mod review;
pub mod run;
mod schema;
mod serve;
mod serve_model;
pub mod status;
mod sweep;
mod verify;
mod verify_lean;
mod worker;

use crate::args::{Cli, Command, DataCommand, ExternalCommand, LeanCommand};
use crate::exit::Outcome;
use crate::signals;
use anyhow::Result;
use signal_hook::consts::SIGHUP;

pub fn dispatch(cli: Cli) -> Result<Outcome> {
    start_logging(cli.verbose);
    let outcome = run_command(cli);
    signals::wait_if_ending();
    outcome
}

fn run_command(cli: Cli) -> Result<Outcome> {
    match cli.command {
        // Ranks of a run have their own handlers, so a run registers them when it knows its rank.
        Command::Run(_) | Command::Resume(_) | Command::Serve(_) => {}
        // After the first SIGINT or SIGTERM, a worker finishes its leases.
        Command::Worker(_) => signals::end_cleanly_on(&[SIGHUP])?,
        _ => signals::end_cleanly()?,
    }
    match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Resume(args) => run::resume(&args),
        Command::Serve(args) => serve::run(&args),
        Command::ServeModel(args) => serve_model::run(&args),
        Command::Worker(command) => worker::run(&command),
        Command::Report(args) => report::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Data(DataCommand::Build(args)) => data_build::run(&args),
        Command::Pretrain(args) => pretrain::pretrain(&args),
        Command::Sft(args) => pretrain::sft(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Data(DataCommand::Compose(args)) => data_compose::run(&args),
        Command::Data(DataCommand::Import(args)) => data_import::import(&args),
        Command::Data(DataCommand::Filter(args)) => data_filter::run(&args),
        Command::Data(DataCommand::Reviews(args)) => data_reviews::run(&args),
        Command::Data(DataCommand::Classify(args)) => data_classify::run(&args),
        Command::Prove(args) => prove::run(&args),
        Command::Conjecture(args) => conjecture::run(&args),
        Command::Review(args) => review::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Fit(args) => fit::run(&args),
        Command::Lean(LeanCommand::Setup(args)) => lean_setup::run(&args),
        Command::Lean(LeanCommand::Prompts { out }) => lean_prompts::run(&out),
        Command::External(ExternalCommand::Check(args)) => external_check::run(&args),
        Command::Bench(command) => bench::run(&command),
        Command::Doctor(args) => doctor::run(&args),
        Command::Schema { file } => schema::run(&file),
        Command::Man { command } => man::run(&command),
        Command::Completions { shell } => {
            // Generate it in memory, because the generator panics if standard output is closed.
            let mut script = Vec::new();
            let mut root = with_settings(crate::command());
            clap_complete::generate(shell, &mut root, "sgs", &mut script);
            match shell {
                clap_complete::Shell::Fish => script.extend(fish_positionals(&root).bytes()),
                clap_complete::Shell::Bash => script.extend(BASH_JOINED.bytes()),
                _ => {}
            }
            crate::output::text(&String::from_utf8_lossy(&script))?;
            Ok(Outcome::Done)
        }
    }
}

/// Completes words with `=`, which Bash splits, without changing `COMP_WORDBREAKS`, which all commands share.
const BASH_JOINED: &str = r#"
_sgs_joined() {
    local rest=$COMP_LINE last=-1 word words=()
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        # No blank precedes a part of the word before.
        if [[ $last -ge 0 && $rest != [[:blank:]]* ]]; then
            words[last]+=$word
        else
            words[++last]=$word
        fi
        rest=${rest#"${rest%%[![:blank:]]*}"}
        rest=${rest#"$word"}
    done
    # Bash replaces only the part that it regards as the current word.
    local part=$2
    [[ $part == [=:]* ]] && part=${part:1}
    local kept=${words[last]%"$part"} option=
    if [[ ${words[last]} == --*=* ]]; then
        option=${words[last]%%=*}=
        words[last+1]=${words[last]#"$option"}
        words[last]=${option%=}
        ((++last))
        # Bash does not replace what precedes an open quote.
        [[ ${words[last]} == [\"\']* ]] && option=
    fi
    local COMP_WORDS=("${words[@]}") COMP_CWORD=$last
    _sgs "$1" "${words[last]}" "${words[last-1]}"
    COMPREPLY=("${COMPREPLY[@]/#/$option}")
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
    if [[ ${#COMPREPLY[@]} == 1 ]]; then
        case ${COMPREPLY[0]} in
        '') COMPREPLY=() ;; # a key whose values are unknown
        *=) compopt -o nospace 2>/dev/null ;;
        esac
    fi
}
complete -o nosort -o bashdefault -o default -F _sgs_joined sgs 2>/dev/null ||
    complete -o bashdefault -o default -F _sgs_joined sgs
"#;

/// Starts logging to standard error; `RUST_LOG` overrides the flag.
fn start_logging(verbose: u8) {
    let level = ["warn", "info", "debug", "trace"][usize::from(verbose.min(3))];
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| crate::terminal::LogWriter)
        .with_target(false)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    // This fails if an earlier command of this process has set a subscriber, which then stays.
    let _ = subscriber.try_init();
}

/// Adds the keys of a run as values of `--set`. Parse errors would list all of them.
fn with_settings(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_id() == "set" {
        true => arg.value_parser(crate::arg_values::setting()),
        false => arg,
    });
    command.mut_subcommands(with_settings)
}

/// Returns completions for the values of positional arguments, which the generator for fish leaves out.
fn fish_positionals(root: &clap::Command) -> String {
    let mut script = String::new();
    for command in root.get_subcommands() {
        let values: Vec<String> = command
            .get_positionals()
            .flat_map(|arg| arg.get_possible_values())
            .map(|value| value.get_name().to_owned())
            .collect();
        if !values.is_empty() {
            let (name, values) = (command.get_name(), values.join(" "));
            let condition = format!("__fish_sgs_using_subcommand {name}");
            script.push_str(&format!("complete -c sgs -n \"{condition}\" -f -a \"{values}\"\n"));
        }
    }
    script
}
