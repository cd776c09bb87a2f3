//! Help, usage errors and exit codes of all commands.

use crate::program::{command, file, finish, path, project, sgs};
use sgs_run::config::SIZES;
use sgs_run::workers::forecast::Assumptions;
use std::io::Write;
use std::process::Stdio;

/// Calls `check` for the program and each of its commands, with the names that lead to it and its help.
fn for_each_command(check: &mut dyn FnMut(&[&str], &clap::Command, &str)) {
    fn walk(path: &[&str], command: &clap::Command, check: &mut dyn FnMut(&[&str], &clap::Command, &str)) {
        let help = command.clone().term_width(100).render_long_help().to_string();
        check(path, command, &help);
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            walk(&[path, &[inner.get_name()]].concat(), inner, check);
        }
    }
    let mut root = sgs::command();
    root.build();
    walk(&[], &root, check);
}

#[test]
fn the_help_of_a_run_names_every_assumption() {
    for_each_command(&mut |path, _, help| {
        if path == ["run"] {
            let missing = Assumptions::NAMES.into_iter().find(|name| !help.contains(name));
            assert_eq!(missing, None, "{help}");
        }
    });
}

#[test]
fn every_command_has_help_that_fits_a_terminal() {
    let mut commands = 0;
    for_each_command(&mut |path, _, help| {
        commands += 1;
        assert!(help.contains("Usage: sgs"), "{help}");
        let first = help.lines().next().unwrap_or_default();
        assert!(first.len() > 15, "{path:?} has no description: {first}");
        assert!(!help.contains("\\\""), "{path:?}: an escaped quote\n{help}");
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{path:?}: {line}");
        }
        // Wrapped descriptions, which may begin with an option's name, are indented further.
        let is_option = |l: &&str| l.trim_start().starts_with("--") && !l.starts_with("          ");
        for option in help.lines().filter(is_option) {
            let described = option.trim().split("  ").skip(1).any(|d| d.trim().len() > 3);
            let below =
                help.lines().skip_while(|l| l != &option).nth(1).is_some_and(|l| l.starts_with("          "));
            assert!(described || below, "{path:?}: no description of `{}`", option.trim());
        }
    });
    assert!(commands > 35, "{commands}");
}

#[test]
fn a_mistake_is_answered_with_its_cause_and_a_command_that_can_work() {
    let dir = tempfile::tempdir().unwrap();
    let empty = file(dir.path(), "empty.toml", "# nothing\n");
    let done = sgs(&["sweep", &empty]).expect(2);
    assert!(done.err.contains("empty.toml: it has no keys"), "{}", done.err);
    let csv = format!("a={}", file(dir.path(), "rates.csv", "a,b\n1,2\n"));
    let done = sgs(&["report", &path(dir.path(), ""), "--yardstick", &csv]).expect(2);
    assert!(done.err.contains("rates.csv: expected value at line 1"), "{}", done.err);
    let dry = sgs(&["run", "--set", "problems.set=hled-out", "--dry-run"]).expect(0).out;
    assert!(dry.contains("did you mean `held-out`?"), "{dry}");
    assert!(dry.contains("problems.set=hled-out   (after correcting the settings above)"), "{dry}");
}

#[test]
fn commands_are_listed_once_in_groups() {
    let help = sgs(&["--help"]).expect(0).out;
    assert_eq!(help, sgs(&["help"]).expect(0).out);
    for heading in ["Runs:", "Results:", "Using models:", "Making models:", "Shell and editor:", "Options:"] {
        assert_eq!(help.lines().filter(|line| *line == heading).count(), 1, "{heading}\n{help}");
    }
    let listed = |name: &str| help.lines().filter(|line| line.starts_with(&format!("  {name} "))).count();
    for command in sgs::command().get_subcommands() {
        assert_eq!(listed(command.get_name()), 1, "{}\n{help}", command.get_name());
    }
    assert_eq!(listed("help"), 1);
    let (steps, codes) = (help.find("\nFirst steps:\n").unwrap(), help.find("\nExit codes:\n").unwrap());
    assert!(steps < codes, "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 80 || line.starts_with("Self-Guided")), "{help}");
    assert!(sgs(&["help", "data", "build"]).expect(0).out.contains("Usage: sgs data build"));
}

/// Checks that a heading applies only to the options of its group.
#[test]
fn options_stand_under_their_own_heading() {
    for_each_command(&mut |path, command, help| {
        for option in command.get_arguments().filter(|option| !option.is_positional()) {
            let id = option.get_id().as_str();
            let expected = match id {
                "workers" | "listen" | "host"
                    if path.last().is_some_and(|c| ["run", "serve", "resume"].contains(c)) =>
                {
                    Some("Workers")
                }
                "ranks" | "rank" | "rendezvous" | "rank_patience" => Some("Ranks"),
                "serve" | "token" => Some("Live page"),
                _ if id.starts_with("lean") && path != ["doctor"] => Some("Lean"),
                "require_sandbox" | "skip_canaries" => Some("Lean"),
                _ if id.starts_with("endpoint") => Some("Served model"),
                "json" | "verbose" | "help" | "version" | "out" | "dry_run" | "verify" | "set" | "rounds" => {
                    None
                }
                _ => continue,
            };
            assert_eq!(option.get_help_heading(), expected, "{path:?} --{id}");
        }
        // `-v` comes last, among the options that every command has.
        let last =
            help.lines().filter(|line| line.trim_start().starts_with('-') && !line.starts_with("          "));
        let own: Vec<&str> = last.map(str::trim_start).collect();
        let at = |flag: &str| own.iter().position(|line| line.starts_with(flag));
        let (verbose, help_at) = (at("-v, --verbose").unwrap(), at("-h, --help").unwrap());
        assert!(verbose > help_at, "{path:?}\n{help}");
    });
}

#[test]
fn the_help_of_a_run_has_examples_and_its_limits() {
    let help = sgs(&["run", "--help"]).expect(0).out;
    for part in
        ["Examples:", "--rounds <N>", "--minutes <M>", "--generations <N>", "--seed <N>", "--device <DEVICE>"]
    {
        assert!(help.contains(part), "{part}\n{help}");
    }
    // The names that only help completion are not listed.
    assert!(!help.contains("algorithm.solver.objective="), "{help}");
}

#[test]
fn every_method_is_documented() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/configuration.md")).unwrap();
    for preset in std::fs::read_dir(root.join("presets/method")).unwrap() {
        let preset = preset.unwrap().path();
        let row = format!("\n| `{}` | ", preset.file_stem().unwrap().to_str().unwrap());
        assert_eq!(page.matches(&row).count(), 1, "docs/configuration.md: {row}");
    }
}

/// Checks that every flag that takes an integer names its type and bounds.
#[test]
fn numbers_have_bounds() {
    let mut tried = 0;
    for_each_command(&mut |path, command, _| {
        for option in command.get_arguments().filter(|option| option.get_action().takes_values()) {
            let Some(long) = option.get_long() else { continue };
            let flag = format!("--{long}");
            // Test two ways of writing a number that is far too large.
            for value in ["99999999999999999999", "1e300"] {
                let error = command.clone().no_binary_name(true).try_get_matches_from([&flag, value]).err();
                let Some(told) = error.map(|error| error.to_string()) else { continue };
                if told.contains("expected an integer from") || told.contains("expected a number") {
                    tried += 1;
                    break;
                }
                let is_number = option
                    .get_default_values()
                    .first()
                    .is_some_and(|v| v.to_str().is_some_and(|v| v.parse::<f64>().is_ok()));
                assert!(!is_number, "{path:?} {flag}: {told}");
            }
        }
    });
    assert!(tried > 70, "{tried}");
}

/// Checks that every seed has the range of the key of a run.
#[test]
fn seeds_have_one_range() {
    let mut tried = 0;
    for_each_command(&mut |path, command, _| {
        if command.get_arguments().any(|option| option.get_long() == Some("seed")) {
            tried += 1;
            let seed = ["--seed", "9223372036854775808"];
            let told =
                command.clone().no_binary_name(true).try_get_matches_from(seed).unwrap_err().to_string();
            assert!(told.contains("expected an integer from 0 to 9223372036854775807"), "{path:?}: {told}");
        }
    });
    assert!(tried >= 9, "{tried}");
}

#[test]
fn too_little_memory_is_a_usage_error_that_names_the_options() {
    let statement = "|- ( ph -> ph )";
    for (args, lower) in [
        (&["eval", "--limit", "1", "--batch", "65536"][..], "--batch"),
        (&["eval", "--limit", "1", "--memory-mib", "16", "--json"], "--batch"),
        (&["prove", "--memory-mib", "16", "-n", "256", statement], "--samples"),
        (&["conjecture", "--memory-mib", "16", "-n", "256", statement], "--samples"),
        (&["serve-model", "--memory-mib", "16"], "--batch"),
    ] {
        let done = sgs(args).expect(2);
        let raise = done.err.split("raise --memory-mib to ").nth(1);
        let (mib, rest) = raise.unwrap_or_else(|| panic!("{args:?}: {}", done.err)).split_once(' ').unwrap();
        assert_eq!(rest.trim_end(), format!("or lower {lower}"), "{args:?}");
        assert!(mib.parse::<u64>().unwrap() > 16, "{args:?}: {mib}");
        assert_eq!(done.out, "", "{args:?}");
        // Nothing is announced that cannot start.
        assert!(done.err.starts_with("error: "), "{args:?}: {}", done.err);
    }
    // With the memory that the message names, the command works.
    let prove = |mib: &str| sgs(&["prove", "-n", "256", "--memory-mib", mib, statement]);
    let told = prove("16").expect(2).err;
    let enough = told.split("raise --memory-mib to ").nth(1).unwrap().split(' ').next().unwrap();
    prove(enough).expect(0);
}

#[test]
fn usage_errors_exit_with_code_2_and_say_what_to_do() {
    let cases: &[(&[&str], &str)] = &[
        (&["no-such-command"], "unrecognized subcommand"),
        (&["verify"], "<FILE>"),
        (&["verify", "/tmp"], "/tmp is a folder, not a file of proofs"),
        (&["verify", "-", "--system", "coq"], "possible values: metamath, lean"),
        (&["conjecture"], "give the target: a statement, or --problem"),
        (&["review", "|- ph"], "give the target: --target with a statement, or --problem"),
        (&["compare", "."], "at least two runs"),
        (&["export", ".", "--mm", "a", "--jsonl", "b"], "cannot be used with"),
        (&["eval", "-k", "0"], "expected an integer from 1 to 10000"),
        (&["eval", "-k", "99999999"], "expected an integer from 1 to 10000"),
        (&["eval", "--problems", "heldout"], "did you mean `held-out`?"),
        (&["eval", "--problems", "/tmp"], "/tmp is a folder, not a file of problems"),
        (&["data", "build", "--out", "/dev/null/x"], "--out /dev/null/x: cannot write there"),
        (&["serve-model", "--listen", "0.0.0.0:0"], "refusing to listen on 0.0.0.0:0 without a key"),
        (&["worker", "verify", "--connect", "foo"], "--connect foo: the coordinator's URL begins with"),
        (&["eval", "--problems", "core"], "`core` is a Lean set (add `--system lean`"),
        (&["prove", "-n", "1000000000", "|- ph"], "expected an integer from 1 to 1000000"),
        (&["prove", "theorem a (p : Prop) (h : p) : p"], "add `--system lean`"),
        (&["run", "--rounds", "0"], "expected an integer from 1 to 1000000"),
        (&["run", "--seed", "x"], "expected an integer from 0"),
        (&["run", "--seed", "-1"], "expected an integer from 0"),
        (&["run", "--minutes", "nan"], "expected a number from 0"),
        (&["run", "--device", "tpu"], "possible values: cpu, cpu-f32, cuda"),
        (&["run", "--set", "learning_rate=1"], "did you mean `algorithm.solver.learning_rate`?"),
        (
            &["run", "--set", "sampling.endpoint.roles=[\"judge\"]"],
            "`sampling.endpoint.roles` is [\"judge\"]; expected a list of solver, conjecturer, guide\n",
        ),
        (&["run", "--out", "/proc/x"], "--out /proc/x: cannot write there"),
        (&["run", "--out", "Cargo.toml"], "Cargo.toml is a file; --out needs a folder"),
        (&["sweep", "Cargo.toml", "--out", "Cargo.toml"], "Cargo.toml is a file; --out needs a folder"),
        (&["eval", "--endpoint", "foo"], "an endpoint's URL begins with http://"),
        (&["eval", "--reviews", "Cargo.toml"], "the name must end in .parquet or .jsonl"),
        (&["fit", "Cargo.toml"], "Cargo.toml"),
        (&["data", "import", "Cargo.toml", "--out", "-"], "Cargo.toml"),
        (&["data", "build", "--source", "Cargo.toml", "--out", "none"], "Cargo.toml:1:"),
        (&["export", ".", "--jsonl", "/proc/x.jsonl"], "--jsonl /proc/x.jsonl: cannot write there"),
        (&["export", ".", "--mm", "tests"], "tests is a folder; --mm needs a file"),
        (&["export", ".", "--jsonl", "nope/x.jsonl"], "--jsonl nope/x.jsonl: there is no folder nope"),
        (&["run", "sgss"], "did you mean `sgs`?"),
        (&["run", "CISPO"], "did you mean `cispo`?"),
        (&["run", "metamath"], "`metamath` is a size: `sgs run --size metamath`"),
        (&["run", "/tmp"], "/tmp is not a configuration file, whose name ends in .toml"),
        (&["run", "none.toml"], "none.toml: there is no such file or folder"),
        (&["man", "rum"], "did you mean `run`?"),
        (&["prove", "--problem", "id", "|- ph"], "cannot be used with"),
        (&["prove", "--samples", "0", "|- ph"], "expected an integer from 1 to 1000000"),
        (&["prove", "--temperature", "-1", "|- ph"], "--temperature"),
        (&["prove", "|- ( ph"], "a statement looks like"),
        (&["prove", "( ph -> A. x ph )  ( x ph)"], "in single quotes"),
        (&["prove", "|- ph", "--context", "nix"], "nix"),
        (&["prove", "--problem", "sylx"], "did you mean `syl"),
        (&["fit", ".", "--level", "2"], "expected a number above 0, below 1"),
        (&["fit", ".", "--max-rate", "0"], "expected a number above 0, at most 1"),
        (&["fit", ".", "--cut=-1"], "expected a number from 0"),
        (&["bench", "sample", "--batch", "0"], "expected an integer from 1 to 65536"),
        (&["bench", "train", "--model", "nonsense"], "expected `small` or a folder with a config.json"),
        (&["bench", "verify", "--repeats", "0"], "expected an integer from 1 to"),
        (&["status", ".", "--token", "abcdefgh"], "--serve"),
        (&["bench", "train", "--length", "5000"], "context window of 2048"),
        (&["run", "--listen", "foo"], "write ADDRESS:PORT, such as 127.0.0.1:8000"),
        (&["run", "--workers", "local:0"], "--workers local:0: generate.count is 0: give at least 1"),
        (
            &["run", "--workers", "local:100000"],
            "generate.count is 100000, but this machine has processors for ",
        ),
        (
            &["run", "--workers", "slurm:generate=99999999999"],
            "generate.count is 99999999999: give at most 100000",
        ),
        (&["lean", "setup", "--version", "foo", "--dry-run"], "expected a version of Lean, such as v4.15.0"),
        (&["run", "--workers", "none.toml"], "--workers none.toml: there is no such file or folder"),
        (
            &["run", "sgs-proofs", "--size", "lean-core"],
            "needs problems.system=metamath (method `sgs-proofs`, size",
        ),
        (&["prove", "--problem", "no such label"], "a label is a name such as `syl`"),
        (
            &["eval", "--problems", "d3k"],
            "`d3k` is a Lean set (add `--system lean`; for a run, `--size lean-d3k`)",
        ),
        (&["run", "--set", "sampling.batchsize=3"], "did you mean `sampling.batch`?"),
        (
            &["run", "--learning-rate", "3"],
            "set it with `--set algorithm.solver.learning_rate=VALUE` (or algorithm.conjecturer.learning_rate)",
        ),
        (
            &["run", "--lr", "3"],
            "set it with `--set algorithm.solver.learning_rate=VALUE` (or algorithm.conjecturer.learning_rate)",
        ),
        (&["run", "--problems", "a.jsonl"], "set it with `--set problems.set=VALUE`\n"),
        (&["run", "--model", "a"], "set it with `--set model.base=VALUE`\n"),
        (&["serve", "--guide", "rubric"], "set it with `--set algorithm.guide.kind=VALUE`\n"),
        (&["run", "--output", "a"], "did you mean `--out`?\n"),
        (&["run", "--memory-mib", "3"], "`--set sampling.memory_mib=VALUE` (or external.memory_mib)\n"),
        (&["run", "--set", "memory_mib=3"], "did you mean `sampling.memory_mib`?"),
        (&["run", "--set", "batch=3"], "did you mean `sampling.batch`?"),
        (&["serve", "--batch-size=3"], "set it with `--set algorithm.optimizer.batch_size=VALUE`\n"),
        (&["run", "--algorithm.batch.size", "3"], "set it with `--set algorithm.batch.size=VALUE`\n"),
        (&["run", "--method", "sgs"], "give the method without an option: `sgs run METHOD`\n"),
        (&["run", "--methods", "sgs"], "give the method without an option: `sgs run METHOD`\n"),
        (&["run", "--nonsense"], "'--nonsense' found\n\nUsage: sgs run"),
        (&["prove", "-x y"], "to pass '-x' as a value, use '-- -x'"),
        (&["run", "--round", "3"], "a similar argument exists: '--rounds'"),
        (&["eval", "runs/a"], "did you mean `--run runs/a`?"),
        (&["-v", "eval", "tests", "-k", "2"], "did you mean `--run tests`?"),
        (&["serve-model", "../../data/metamath/base"], "did you mean `--model ../../data/metamath/base`?"),
        (
            &["review", "|- ( ph", "--target", "|- ( ph -> ph )"],
            "error: the conjecture: not a valid statement",
        ),
        (&["review", "|- ( ph -> ph )", "--target", "|- ( ph"], "error: --target: not a valid statement"),
        (&["review", "|- ( ph -> ph )", "--problem", "sylx"], "error: --problem: `sylx` is not"),
        (
            &["prove", "--system", "lean", "--lean-root", "none", "theorem a (p : Prop) (h : p) : p"],
            "or give its folder: `--lean-root DIR`, for a run `--set lean.root=DIR`",
        ),
    ];
    for (args, message) in cases {
        let done = sgs(args).expect(2);
        assert!(done.err.contains(message), "{args:?}: {}", done.err);
        assert_eq!(done.out, "", "{args:?}: standard output must be empty");
    }
}

#[test]
fn files_of_another_command_are_recognised() {
    let folder = tempfile::tempdir().unwrap();
    for (command, text, message) in [
        ("run", "seeds = [1]\n", "f.toml:1: `seeds` is a key of a sweep: `sgs sweep "),
        ("run", "seed = 1\n[frozen]\n", "f.toml:2: [frozen] is part of an existing run"),
        ("sweep", "size = \"metamath\"\nrounds = 3\n", "f.toml:2: `rounds` is a key of a run (`sgs run "),
    ] {
        let done = sgs(&[command, &file(folder.path(), "f.toml", text), "--dry-run"]).expect(2);
        assert!(done.err.contains(message), "{}", done.err);
    }
}

/// An unknown name in a file is reported with its line.
#[test]
fn an_unknown_method_or_size_in_a_file_is_reported_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    for (key, value, hint) in
        [("method", "sgss", "did you mean `sgs`?"), ("size", "quick", "known: metamath-quick")]
    {
        let run = file(folder.path(), "run.toml", &format!("rounds = 3\n{key} = \"{value}\"\n"));
        let done = sgs(&["run", &run]).expect(2);
        let place = format!("{run}:2: there is no {key} `{value}`");
        assert!(done.err.contains(&place) && done.err.contains(hint), "{}", done.err);
    }
}

#[test]
fn a_folder_without_a_model_is_a_usage_error() {
    let folder = tempfile::tempdir().unwrap();
    let empty = path(folder.path(), "");
    for args in [
        &["prove", "--model", &empty, "|- ( ph -> ph )"][..],
        &["eval", "--model", &empty, "--limit", "1"],
        &["serve-model", "--model", &empty],
    ] {
        let done = sgs(args).expect(2);
        assert!(done.err.contains("is not a model folder: config.json not found"), "{args:?}: {}", done.err);
    }
    let prove = ["prove", "--model", &empty, "|- ( ph -> ph )"];
    let copy = |name: &str| {
        std::fs::copy(project("data/metamath/base").join(name), folder.path().join(name)).unwrap();
    };
    copy("config.json");
    let done = sgs(&prove).expect(2);
    assert!(done.err.contains("is not a model folder: tokenizer.json not found"), "{}", done.err);
    copy("tokenizer.json");
    file(folder.path(), "model.safetensors", "damaged");
    let done = sgs(&prove).expect(2);
    assert!(done.err.contains("not a readable safetensors file"), "{}", done.err);
}

#[test]
fn a_folder_that_is_not_a_run_is_a_usage_error() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, out, text) = (path(folder.path(), ""), path(folder.path(), "out"), "|- ( ph -> ph )");
    for args in [
        &["resume", &empty][..],
        &["resume", &empty, "--verify"],
        &["status", &empty],
        &["status", &empty, "--serve", "127.0.0.1:0"],
        &["report", &empty],
        &["compare", &empty, &empty],
        &["export", &empty],
        &["fit", &empty],
        &["prove", "--run", &empty, text],
        &["conjecture", "--run", &empty, text],
        &["eval", "--run", &empty],
        &["serve-model", "--run", &empty],
        &["doctor", &empty],
        &["data", "reviews", &empty, "--out", &out, "--endpoint", "http://127.0.0.1:1"],
    ] {
        let error = sgs(args).expect(2).err;
        let expected = "is not a run: it has no config.toml; give a folder that `sgs run` created";
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

#[test]
fn a_missing_file_is_a_usage_error() {
    let cases: &[&[&str]] = &[
        &["verify", "/no/such/file"],
        &["verify", "/dev/null", "--database", "/no/such/file"],
        &["prove", "--model", "/no/such/file", "|- ( ph -> ph )"],
        &["run", "--token-file", "/no/such/file"],
        &["worker", "verify", "--connect", "https://127.0.0.1:9", "--token-file", "/no/such/file"],
        &["serve-model", "--key-file", "/no/such/file"],
        &["eval", "--problems", "/no/such/file"],
        &["run", "/no/such/file.toml"],
        &["run", "--set", "problems.set=/no/such/file"],
        &["run", "--set", "model.base=/no/such/file"],
        &["sweep", "/no/such/file"],
        &["status", "/no/such/file"],
        &["resume", "/no/such/file"],
        &["fit", "/no/such/file"],
        &["data", "import", "/no/such/file", "--out", "-"],
        &["pretrain", "/no/such/file", "--out", "x"],
    ];
    for args in cases {
        let done = sgs(args).expect(2);
        assert!(done.err.contains("error: ") && done.err.contains("/no/such/file"), "{args:?}: {}", done.err);
        let causes: Vec<&str> = done.err.lines().filter(|l| l.contains("os error 2")).collect();
        assert!(causes.len() <= 1, "{args:?} repeats the cause: {}", done.err);
    }
}

#[test]
fn pretraining_names_the_step_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = std::fs::read_to_string(project("presets/pretrain-metamath.toml")).unwrap();
    let config = file(folder.path(), "train.toml", &config);
    let mut pretrain = command(&["pretrain", &config, "--out", "base"]);
    pretrain.current_dir(folder.path());
    let done = finish(pretrain).expect(2);
    assert!(done.err.contains("make it with `sgs data build --out metamath-data`"), "{}", done.err);
}

/// Returns the completions of a command line, as Bash calls for them: it splits words at `=`.
fn completions(script: &str, line: &str) -> Vec<String> {
    let spaced = line.replace('=', " = ");
    let words: Vec<&str> = spaced.split(' ').filter(|word| !word.is_empty()).collect();
    let mut quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let mut part = words[words.len() - 1];
    if line.ends_with(' ') {
        part = "";
        quoted.push("''".to_owned());
    }
    let last = quoted.len() - 1;
    let call = format!(
        "source {script}; COMP_LINE='{line}'; COMP_WORDS=({}); COMP_CWORD={last}; _sgs_joined sgs '{part}' {}; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        quoted[last - 1]
    );
    let output = std::process::Command::new("bash").args(["-c", &call]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn errors_in_a_sweep_name_its_line() {
    let folder = tempfile::tempdir().unwrap();
    for (lines, line, message) in [
        ("[set]\n\"algorithm.solver.learning_rte\" = 1", 2, "did you mean `algorithm.solver.learning_rate`?"),
        ("[set.algorithm.solver]\nlearning_rate = 7", 2, "expected a number above 0, below 1"),
        ("[vary]\n\"algorithm.temperature\" = [1.0]\nrounds = [0]", 3, "expected an integer from 1"),
        ("[set]\nsize = \"metamath\"", 2, "`size` is set by `size` at the top"),
        ("seeds = [1, \"a\"]", 1, "`seeds` is [1, \"a\"]; expected a list of integers such as [1, 2]"),
        (
            "[vary]\n\"algorithm.temperature\" = 1.0",
            2,
            "`vary.algorithm.temperature` is 1.0; expected a list such as [1e-5]",
        ),
        ("[vary]\nmethod = [\"sgs\"]", 2, "`method` is set by `methods` at the top"),
        ("method = \"sgs\"", 1, "did you mean `methods`?"),
        (
            "methods = [\"sgs\"]\nsize = \"metamat\"",
            2,
            "there is no size `metamat`; did you mean `metamath`?",
        ),
        ("\nseeds = [1, 2, 1]", 2, "seed 1 occurs twice"),
        ("\njobs = 0", 2, "`jobs` is 0; expected an integer from 1 to 1024"),
        ("jobs = -1", 1, "`jobs` is -1; expected an integer from 1 to 1024"),
        ("jobs = 1_000_000", 1, "`jobs` is 1000000; expected an integer from 1 to 1024"),
        ("jobs = 99999999999999999999", 1, "; expected an integer from 1 to 1024"),
    ] {
        let sweep = file(folder.path(), "s.toml", lines);
        let error = sgs(&["sweep", &sweep, "--dry-run"]).expect(2).err;
        assert!(error.contains(&format!("s.toml:{line}: ")) && error.contains(message), "{lines}: {error}");
    }
}

#[test]
fn shells_complete_methods_sizes_and_keys() {
    for shell in ["bash", "zsh", "fish"] {
        let script = sgs(&["completions", shell]).expect(0).out;
        for part in
            ["verify", "sgs-no-guide", "metamath-13m", "algorithm.solver.learning_rate=", "model.device=cuda"]
        {
            assert!(script.contains(part), "{shell}: {part}");
        }
    }
    let fish = sgs(&["completions", "fish"]).expect(0).out;
    for part in ["using_subcommand serve\" -f -a \"sgs ", "using_subcommand schema\" -f -a \"run sweep"] {
        assert!(fish.contains(part), "{part}");
    }
    let without = sgs(&["run", "--set"]).expect(2).err;
    assert!(without.contains("KEY=VALUE") && !without.contains("model.device="), "{without}");
    let folder = tempfile::tempdir().unwrap();
    let script = file(folder.path(), "sgs.bash", &sgs(&["completions", "bash"]).expect(0).out);
    for (line, expected) in [
        ("sgs run cis", &["cispo"][..]),
        ("sgs run --size lean", &["lean-d3k", "lean-core"]),
        ("sgs run --size=lean-", &["lean-d3k", "lean-core"]),
        ("sgs run --size=", &SIZES.map(|(name, _)| name)),
        ("sgs run --set rou", &["rounds="]),
        ("sgs run --set rounds=", &[""]),
        ("sgs run --set=rou", &["rounds="]),
        ("sgs run --set algorithm.guide.kind=ru", &["rubric"]),
        ("sgs run --set=algorithm.guide.kind=ru", &["rubric"]),
        ("sgs run --set seed=2 --device ", &["cpu", "cpu-f32", "cuda"]),
        ("sgs resume --set sampling.endpoint.key_f", &["sampling.endpoint.key_file="]),
        ("sgs run --device c", &["cpu", "cpu-f32", "cuda"]),
        ("sgs eval --problems hel", &["held-out"]),
        ("sgs comp", &["compare", "completions"]),
    ] {
        let mut found = completions(&script, line);
        found.sort();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected, "{line}");
    }
    // Other commands share this variable.
    let breaks = format!("COMP_WORDBREAKS='=:'; source {script}; printf %s \"$COMP_WORDBREAKS\"");
    let breaks = std::process::Command::new("bash").args(["-c", &breaks]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&breaks.stdout), "=:");
}

#[test]
fn commands_have_manual_pages() {
    for path in [&[][..], &["run"], &["data", "build"]] {
        let page = sgs(&[&["man"], path].concat()).expect(0).out;
        assert!(page.contains(".TH") && page.contains(".SH NAME") && page.contains(".SH OPTIONS"), "{page}");
        assert!(page.contains("Examples:") || path != ["run"], "{page}");
    }
}

#[test]
fn a_closed_standard_error_does_not_panic() {
    let mut child = command(&["run", "--set", "no.such.key=1"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    // The message is lost, but the exit code is that of a usage error, not that of a panic.
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn verify_fails_if_its_output_is_closed() {
    let mut child = command(&["verify", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let line = "{\"id\":\"a\",\"conclusion\":\"|- ( ph -> ph )\",\"proof\":[\"id\"]}\n";
    let writer = std::thread::spawn(move || {
        // Writing fails when the program stops reading.
        let _ = stdin.write_all(line.repeat(20_000).as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    // The exit code 0 would say that every proof got a verdict.
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("the remaining proofs are not verified") && !err.contains("panicked"), "{err}");
}

#[test]
fn a_closed_standard_output_is_not_a_failure() {
    let mut child = command(&["man", "run"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}
