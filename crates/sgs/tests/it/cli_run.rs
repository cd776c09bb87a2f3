//! `sgs run`: every method, Ctrl-C, checksums, configuration keys and their layers.

use crate::program;
use crate::program::{command, file, finish, project, sgs, small_model};
use crate::small_run::{embedded, journal_records, settings, wait_for};
use crate::snapshot::snapshot;
use rustix::process::{Pid, Signal, kill_process};
use sgs_run::config::system::{LEAN_SETS, METAMATH_SETS};
use sgs_rundir::RunView;
use sgs_selfplay::Method;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn every_method_runs_and_sampler_and_trainer_agree() {
    let folder = tempfile::tempdir().unwrap();
    let (model, mut compared) = (small_model(), 0);
    // In f32 the two differ only by the order of their sums; `cpu` may sample in bfloat16.
    let exact = Method::ALL.map(|method| (method.as_str(), "cpu-f32", 1e-4));
    for (method, device, largest_gap) in exact.into_iter().chain([("reinforce-half", "cpu", 1e-2)]) {
        let run = folder.path().join(format!("{method}-{device}"));
        let out = run.to_str().unwrap();
        let mut arguments = vec!["run", method, "--out", out, "--device", device];
        // Only one method checks the Guide before the first round.
        let least = format!("algorithm.guide.min_readable={}", if method == "sgs" { 0.8 } else { 0.0 });
        // A Guide that the run does not use need not exist.
        let guide = if method == "sampling-only" { "model.guide=absent" } else { "model.guide=base" };
        for setting in [
            &model,
            guide,
            "rounds=2",
            "minutes=0",
            &least,
            "algorithm.batch.size=4",
            "algorithm.rollouts_per_problem=4",
            "algorithm.optimizer.batch_size=8",
            "training.micro_batch_tokens=512",
            "sampling.batch=16",
            "sampling.conjecturer_tokens=64",
            "sampling.memory_mib=64",
            "evaluation.problems=1",
            "evaluation.samples=1",
        ] {
            arguments.extend(["--set", setting]);
        }
        sgs(&arguments).expect(0);
        let view = RunView::open(&run).unwrap();
        let rounds = view.rounds().unwrap();
        assert_eq!(rounds.len(), 2, "{method}");
        // If a method trains only on rollouts of the same round, trainer and sampler must agree on the log-probs.
        let own = !matches!(method, "expert-iteration" | "stp" | "sampling-only");
        for round in &rounds {
            round.check().unwrap();
            if let Some(gap) = round.metrics().unwrap().scalars.get("solver_log_prob_gap").filter(|_| own) {
                assert!(*gap < largest_gap, "{method} on {device}: {gap}");
                compared += 1;
            }
        }
        let trained = view.checkpoints().newest_valid(u32::MAX).unwrap().is_some();
        assert!(trained || method == "sampling-only", "{method} has no checkpoint");
        let evaluated: Vec<u32> = view.evaluations().unwrap().iter().map(|e| e.after).collect();
        let once = method == "sampling-only";
        assert_eq!(
            evaluated,
            if once { vec![0] } else { vec![0, 2] },
            "{method}: evaluates before the first round and, if it trains, at the end"
        );
    }
    // Whether a method trains in a round depends on its samples, and these depend on the processor's arithmetic.
    assert!(compared >= 5, "only {compared} rounds trained on their own rollouts");
}

#[test]
fn an_interrupted_run_resumes_to_the_same_results() {
    let folder = tempfile::tempdir().unwrap();
    let expected = snapshot(&embedded());
    let run = folder.path().join("interrupted");
    let arguments = [&settings()[..], &["--out".to_owned(), run.to_str().unwrap().to_owned()]].concat();
    let mut child = command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("a result", || journal_records(&run) > 0 || child.try_wait().unwrap().is_some());
    // The run may end before the signal arrives.
    let _ = kill_process(Pid::from_child(&child), Signal::INT);
    let code = child.wait().unwrap().code();
    assert!(code == Some(130) || code == Some(0), "{code:?}");
    sgs(&["resume", run.to_str().unwrap()]).expect(0);
    assert_eq!(snapshot(&run), expected);
}

#[test]
fn the_report_is_written_if_standard_output_is_closed_or_full() {
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str, out: Stdio| {
        let run = folder.path().join(name);
        let arguments = [&settings()[..], &["--out".to_owned(), run.to_str().unwrap().to_owned()]].concat();
        let mut child = command(&arguments).stdout(out).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(run.join("report/index.html").exists(), "{err}");
        assert!(!err.contains("no report"), "{err}");
        (output.status.code(), err)
    };
    let (code, err) = start("closed", Stdio::piped());
    assert_eq!(code, Some(0), "{err}");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (code, err) = start("full", full.into());
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("cannot write to standard output"), "{err}");
    // A summary does not need the report.
    let resumed = folder.path().join("full");
    std::fs::remove_dir_all(resumed.join("report")).unwrap();
    std::fs::write(resumed.join("report"), "in the way").unwrap();
    let more = sgs(&["resume", resumed.to_str().unwrap(), "--rounds", "9"]).expect(0);
    assert!(more.err.contains("no report") && more.out.contains("\nnext "), "{}{}", more.err, more.out);
    // The second run repeats the first.
    let same = folder.path().join("closed");
    assert!(err.contains(&format!("{} has the same configuration and seed", same.display())), "{err}");
}

#[test]
fn sha256sum_accepts_the_checksum_files() {
    let folder = tempfile::tempdir().unwrap();
    // Use a copy, because this test alters the run.
    let copied = Command::new("cp").arg("-r").arg(embedded()).arg(folder.path()).status().unwrap();
    assert!(copied.success(), "{copied}");
    let run = folder.path().join("run");
    let check = |dir: &Path| {
        let mut command = Command::new("sha256sum");
        command.args(["--check", "--strict", "--quiet", "SHA256SUMS"]).current_dir(dir);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    let checkpoint = RunView::open(&run).unwrap().checkpoints().newest_valid(u32::MAX).unwrap().unwrap();
    let round = run.join("rounds/0000");
    for dir in [&round, &checkpoint.directory] {
        assert!(check(dir), "{}", dir.display());
    }
    let table = round.join("rollouts.parquet");
    let mut bytes = std::fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    assert!(!check(&round));
}

/// Collects the dotted keys of a table.
fn keys(prefix: &str, value: &serde_json::Value, out: &mut Vec<String>) {
    match value.as_object() {
        Some(table) => {
            let name = |key: &String| if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            table.iter().for_each(|(key, value)| keys(&name(key), value, out));
        }
        None => out.push(prefix.to_owned()),
    }
}

#[test]
fn every_key_is_explained() {
    let explained = sgs(&["run", "--explain"]).expect(0).out;
    for size in ["metamath-quick", "lean-core"] {
        let config = sgs(&["run", "--size", size, "--dry-run", "--json"]).expect(0).json()["config"].clone();
        let mut all = Vec::new();
        keys("", &config, &mut all);
        assert!(all.len() > 60, "{all:?}");
        let missing: Vec<&String> =
            all.iter().filter(|key| !explained.lines().any(|line| line.trim() == key.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

/// The lists of allowed names come from the tables that the program uses.
#[test]
fn every_set_and_every_recipe_is_listed() {
    let explained = sgs(&["run", "--explain"]).expect(0).out;
    let of = |key: &str| {
        let line = explained.lines().skip_while(|line| *line != key).find(|line| line.contains("allowed: "));
        line.unwrap().to_owned()
    };
    let (base, set, help) = (of("model.base"), of("problems.set"), sgs(&["eval", "--help"]).expect(0).out);
    for made in sgs_run::config::MADE {
        assert!(base.contains(made), "{base}");
    }
    for name in METAMATH_SETS.iter().chain(&LEAN_SETS) {
        assert!(set.contains(&format!(" {name} (")) && help.contains(name), "{name}: {set}\n{help}");
    }
}

#[test]
fn the_source_of_each_value_is_shown() {
    let call = ["run", "cispo", "--size", "metamath", "--set", "seed=7"];
    let explained = sgs(&[&call[..], &["--explain"]].concat()).expect(0).out;
    for part in [
        "seed\n    Seed of all random numbers.\n    allowed: an integer from 0 to 9223372036854775807\n    default: 1; here: 7 (--set)\n",
        "default: \"reinforce-half\"; here: \"cispo\" (method cispo)\n",
        "; here: 200 (size metamath)\n",
        "model.device\n    Device that the model runs on. `cpu` samples in bfloat16 if the processor can multiply it, `cpu-f32` never.\n    allowed: cpu, cpu-f32, cuda\n    default: \"cpu\"\n",
    ] {
        assert!(explained.contains(part), "{part}\n{explained}");
    }
    let repeated = |line: &&str| {
        line.trim().split_once("; here: ").is_some_and(|(default, here)| {
            here.starts_with(&format!("{} (", default.trim_start_matches("default: ")))
        })
    };
    assert_eq!(explained.lines().find(repeated), None, "a default is not repeated");
    let dry = sgs(&[&call[..], &["--dry-run"]].concat()).expect(0).out;
    let line = |start: &str| dry.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    assert!(line("seed = 7 ").ends_with("# --set"), "{dry}");
    assert!(line("objective = ").ends_with("# method cispo"), "{dry}");
    assert!(line("rollouts_per_problem = ").ends_with("# default"), "{dry}");
    let json = sgs(&[&call[..], &["--dry-run", "--json"]].concat()).expect(0).json();
    assert_eq!(json["layers"]["size"], "--size");
    assert_eq!(json["layers"]["algorithm.solver.learning_rate"], "size metamath");
}

#[test]
fn a_dry_run_reports_held_out_problems_that_are_targets() {
    let dry = sgs(&["run", "--dry-run", "--set", "evaluation.held_out=quick"]).expect(0).out;
    let note = "# no held-out evaluation: all 100 problems of `quick` are among the targets";
    assert!(dry.contains(note), "{dry}");
}

/// A window into which no prompt fits is an error, one into which some fit a warning, in a dry run and in a run.
#[test]
fn prompts_that_do_not_fit_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run").display().to_string();
    let run = |window: &str, more: &[&str]| {
        let window = format!("model.context={window}");
        let limits = ["run", "reinforce-half", "--rounds", "1", "--out", &out, "--set", &window];
        let small =
            ["evaluation.held_out=none", "algorithm.rollouts_per_problem=1", "algorithm.batch.size=4"];
        let small = small.map(|setting| ["--set", setting]).concat();
        sgs(&[&limits[..], &small, more].concat())
    };
    for more in [&[][..], &["--dry-run"]] {
        let none = run("5", more).expect(2).err;
        assert!(none.contains("the context window is 5 tokens, and no prompt fits"), "{none}");
        assert!(!Path::new(&out).exists());
        let some = run("24", more).expect(0);
        let warning = "of 100 targets do not fit into the context window of 24 tokens";
        assert!(format!("{}{}", some.out, some.err).contains(warning), "{}{}", some.out, some.err);
        let _ = std::fs::remove_dir_all(&out);
    }
}

#[test]
fn a_plan_that_needs_far_more_memory_than_the_machine_has_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    for (key, settings) in [
        ("training.micro_batch_tokens", &["training.micro_batch_tokens=100000000"][..]),
        ("sampling.memory_mib", &["sampling.memory_mib=1000000000", "sampling.batch=1000000"]),
    ] {
        let mut call = vec!["run", "--out", out.to_str().unwrap()];
        settings.iter().for_each(|setting| call.extend(["--set", setting]));
        let refused = sgs(&call).expect(2).err;
        let remedy = format!("lower {key}, for which ");
        for part in ["this run may need ", "this machine or its control group has ", &remedy] {
            assert!(refused.contains(part), "{part} in {refused}");
        }
        assert!(!out.exists(), "{refused}");
    }
}

#[test]
fn a_setting_without_effect_is_reported() {
    let call = ["run", "cispo", "--dry-run", "--set", "algorithm.guide.kind=rubric"];
    let told =
        "warning: --set algorithm.guide.kind has no effect: algorithm.guide.on is false (method cispo)";
    let done = sgs(&call).expect(0);
    assert_eq!(done.err.trim(), told);
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path(), "run.toml", "method = \"cispo\"\n[algorithm.guide]\nkind = \"rubric\"\n");
    let told = sgs(&["run", &file, "--dry-run"]).expect(0).err;
    assert!(told.contains("run.toml algorithm.guide.kind has no effect"), "{told}");
}

/// A method, a setting that has no effect with it and further settings, and the reason.
const WITHOUT_EFFECT: [(&str, &[&str], &str); 18] = [
    (
        "sgs",
        &["sampling.guide_tokens=9", "algorithm.guide.kind=rubric"],
        "algorithm.guide.kind is \"rubric\"",
    ),
    ("sgs", &["model.guide=folder", "algorithm.guide.kind=rubric"], "algorithm.guide.kind is"),
    ("sgs", &["algorithm.guide.malformed=mean", "algorithm.guide.kind=rubric"], "algorithm.guide.kind is"),
    ("sgs", &["evaluation.samples=4", "evaluation.held_out=none"], "evaluation.held_out is \"none\""),
    ("sampling-only", &["evaluation.every=4"], "algorithm.solver.train is false"),
    ("sampling-only", &["checkpoints.last=4"], "algorithm.solver.train is false"),
    ("sampling-only", &["algorithm.solver.selection=hard"], "algorithm.solver.train is false"),
    ("sampling-only", &["algorithm.penalties.length_of_unproved=true"], "algorithm.solver.train is false"),
    ("cispo", &["algorithm.penalties.length_of_unproved=true"], "objective is \"cispo\""),
    (
        "expert-iteration",
        &["algorithm.penalties.length_of_unproved=true"],
        "objective is \"expert-iteration\"",
    ),
    ("sgs", &["algorithm.penalties.forbidden_tactics=false"], "problems.system is \"metamath\""),
    ("sgs", &["algorithm.batch.order=reference"], "algorithm.batch.size is \"all\""),
    ("reinforce-half", &["algorithm.tied_weights=true"], "algorithm.conjecturer.on is false"),
    ("composer", &["algorithm.tied_weights=true"], "algorithm.conjecturer.form is \"composed\""),
    ("sgs", &["sampling.endpoint.folder=f", GUIDE_SERVED[0], GUIDE_SERVED[1]], "refresh is \"never\""),
    ("sgs", &["sampling.endpoint.solver_urls=[\"http://a\"]", GUIDE_SERVED[0], GUIDE_SERVED[1]], "roles is"),
    (
        "sgs",
        &["sampling.endpoint.key_env=K", "sampling.endpoint.key_file=f", GUIDE_SERVED[0], GUIDE_SERVED[1]],
        "key_file is \"f\"",
    ),
    ("sgs", &["lean.recycling.uses=7"], "problems.system is"),
];

/// Settings with which a server plays the Guide.
const GUIDE_SERVED: [&str; 2] =
    ["sampling.endpoint.roles=[\"guide\"]", "sampling.endpoint.url=http://127.0.0.1:1/v1"];

#[test]
fn each_setting_without_effect_is_reported_with_its_reason() {
    use sgs_run::config::{Layers, resolve};
    let told = |method: &str, size: Option<&str>, set: &[&str]| {
        let set = set.iter().map(|setting| (*setting).to_owned()).collect();
        let (method, size) = (Some(method.to_owned()), size.map(str::to_owned));
        let layers = Layers { method, size, set, ..Layers::default() };
        resolve(&layers, std::iter::empty()).unwrap().without_effect()
    };
    for (method, set, reason) in WITHOUT_EFFECT {
        let told = told(method, None, set);
        let key = set[0].split_once('=').unwrap().0;
        assert_eq!(told.len(), 1, "{method}: {set:?}: {told:?}");
        assert!(told[0].starts_with(&format!("--set {key} has no effect: ")), "{told:?}");
        assert!(told[0].contains(reason), "{told:?}");
    }
    for (set, key) in [
        (["lean.recycling.uses=7", "lean.backing=repl"], None),
        (["lean.recycling.uses=7", "lean.backing=file"], Some("lean.backing is")),
        (["lean.reading=strict", "lean.form=non-cot"], None),
        (["lean.reading=strict", "lean.form=compact"], Some("lean.form is")),
        (["lean.require_sandbox=true", "lean.sandbox=true"], None),
        (["lean.require_sandbox=true", "lean.sandbox=false"], Some("lean.sandbox is")),
        (["algorithm.penalties.forbidden_tactics=false", "seed=2"], None),
    ] {
        let told = told("sgs", Some("lean-d3k"), &set);
        assert_eq!(told.is_empty(), key.is_none(), "{set:?}: {told:?}");
        assert!(told.first().is_none_or(|told| told.contains(key.unwrap())), "{told:?}");
    }
}

#[test]
fn a_batch_larger_than_the_number_of_targets_is_reported() {
    let warning = |size: &str, more: &[&str]| {
        let size = format!("algorithm.batch.size={size}");
        sgs(&[&["run", "--dry-run", "--set", &size], more].concat()).expect(0).err
    };
    let told = "warning: --set algorithm.batch.size is 101, but there are only 100 targets: each round uses all of them\n";
    assert_eq!(warning("101", &[]), told);
    assert_eq!(warning("100", &[]), "");
    // A tenth of the problems is held out.
    let split = ["--set", "evaluation.held_out=split"];
    assert!(
        warning("91", &split).contains("is 91, but there are only 90 targets"),
        "{}",
        warning("91", &split)
    );
    assert_eq!(warning("90", &split), "");
}

#[test]
fn completions_longer_than_the_context_window_are_reported() {
    let warnings = |settings: &[&str]| {
        let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        sgs(&[&["run", "--dry-run"], &settings[..]].concat()).expect(0).err
    };
    let told = "warning: --set sampling.solver_tokens is 513, but the context window has only 512 tokens\n";
    assert_eq!(warnings(&["sampling.solver_tokens=513"]), told);
    assert_eq!(warnings(&["sampling.solver_tokens=512", "sampling.guide_tokens=512"]), "");
    // The preset's value is not reported.
    let told = "warning: --set sampling.guide_tokens is 120, but the context window has only 100 tokens\n";
    assert_eq!(warnings(&["sampling.guide_tokens=120", "model.context=100"]), told);
    let excess = sgs(&["run", "--dry-run", "--set", "sampling.batch=1000000"]).expect(2).err;
    assert!(excess.contains("raise sampling.memory_mib"), "{excess}");
}

#[test]
fn a_dry_run_says_that_the_base_model_is_made_first() {
    let cache = tempfile::tempdir().unwrap();
    let dry = |size: &str, more: &[&str]| {
        let mut command = command(&[&["run", "--size", size, "--device", "cpu", "--dry-run"], more].concat());
        command.env("XDG_CACHE_HOME", cache.path());
        finish(command).expect(0)
    };
    let json = dry("metamath-13m", &["--json"]).json();
    let folder = json["base_to_make"].as_str().unwrap().to_owned();
    let told = format!(
        "# The base model made:13m is missing: the run first makes it, in {folder}. The times below do not include that \
         (on one H200: 150 s of training).\n"
    );
    let shown = dry("metamath-13m", &[]).out;
    assert!(shown.contains(&told), "{shown}");
    // The time was not measured.
    let deep = dry("metamath-deep", &[]).out;
    assert!(deep.contains("made:deep is missing") && deep.contains("do not include that.\n"), "{deep}");
    std::fs::create_dir_all(&folder).unwrap();
    for entry in std::fs::read_dir(project("crates/run/tests/data/small-model")).unwrap() {
        let from = entry.unwrap().path();
        std::fs::copy(&from, Path::new(&folder).join(from.file_name().unwrap())).unwrap();
    }
    assert!(!dry("metamath-13m", &[]).out.contains("is missing"));
    assert!(dry("metamath-13m", &["--json"]).json()["base_to_make"].is_null());
    assert!(!dry("metamath-quick", &[]).out.contains("is missing"));
}

/// Settings, and the methods in which they have an effect.
const EFFECTIVE: [(&str, &[&str]); 8] = [
    ("algorithm.guide.kind=model", &["sgs", "sgs-cispo"]),
    ("algorithm.guide.samples=1", &["sgs", "sgs-cispo"]),
    (
        "algorithm.conjecturer.learning_rate=1e-4",
        &["sgs", "sgs-no-guide", "sgs-no-conditioning", "sgs-cispo", "sgs-proofs", "stp"],
    ),
    ("algorithm.conjecturer.composed_min_steps=3", &["composer", "oracle"]),
    ("algorithm.conjecturer.stp.max_weight=4", &["stp"]),
    ("algorithm.solver.clip_high=3", &["cispo", "sgs-cispo"]),
    ("algorithm.solver.window=3", &["expert-iteration", "stp"]),
    ("lean.slots=4", &[]),
];

#[test]
fn settings_are_reported_in_the_methods_that_do_not_use_them() {
    use sgs_run::config::{Layers, SIZES, resolve};
    let told = |method: &str, size: &str, set: &[&str]| {
        let set = set.iter().map(|setting| (*setting).to_owned()).collect();
        let (method, size) = (Some(method.to_owned()), Some(size.to_owned()));
        let layers = Layers { method, size, set, ..Layers::default() };
        resolve(&layers, std::iter::empty()).map(|resolved| resolved.without_effect())
    };
    for method in Method::ALL.map(Method::as_str) {
        for (setting, methods) in EFFECTIVE {
            let told = told(method, "metamath-quick", &[setting]).unwrap();
            // The other kinds of Guide are set by their methods.
            let expected =
                methods.contains(&method) || setting.contains("guide.kind") && method == "sgs-proofs";
            assert_eq!(told.is_empty(), expected, "{method}: {setting}: {told:?}");
        }
        // Values of presets are not reported. Some methods need Metamath.
        for (size, _) in SIZES {
            let own = ["external.command=[\"program\"]", "model.base=folder"];
            let set = if size == "external" { &own[..] } else { &[] };
            assert!(told(method, size, set).map_or(!size.starts_with("metamath"), |told| told.is_empty()));
        }
    }
}

#[test]
fn method_and_size_cannot_be_set_as_keys() {
    for (call, right) in [
        (["run", "--set", "method=cispo"].as_slice(), "`sgs run cispo --size metamath-quick`"),
        (&["run", "stp", "--set", "size=metamath"], "`sgs run stp --size metamath`"),
    ] {
        let done = sgs(&[call, &["--dry-run"]].concat()).expect(2);
        assert!(done.err.contains(right), "{}", done.err);
    }
    for (variable, value, told) in [
        ("SGS_SET_METHOD", "cispo", "SGS_SET_METHOD"),
        ("SGS_SET_ALGORITHM_TEMPERATURE", "0.5", "two underscores for each dot"),
    ] {
        let mut command = command(&["run", "--dry-run"]);
        command.env(variable, value);
        let done = program::finish(command).expect(2);
        assert!(done.err.contains(told), "{}", done.err);
    }
}

#[test]
fn each_configuration_layer_overrides_the_previous_one() {
    let folder = tempfile::tempdir().unwrap();
    let text = "method = \"sgs\"\nseed = 11\nminutes = 3.0\n[algorithm.solver]\nclip_high = 4\n";
    let method = file(folder.path(), "mine.toml", text);
    let of_file = format!("file {method}");
    for (arguments, variable, key, value, layer) in [
        ([].as_slice(), None, "seed", 11, of_file.as_str()),
        (&[], Some("12"), "seed", 12, "environment SGS_SET_SEED"),
        (&["--set", "seed=13"], Some("12"), "seed", 13, "--set"),
        (&["--set", "rounds=8"], None, "rounds", 8, "--set"),
        (&["--set", "rounds=8", "--rounds", "9"], None, "rounds", 9, "--rounds"),
    ] {
        let mut command = command(&[&["run", &method, "--dry-run", "--json"], arguments].concat());
        command.envs(variable.map(|value| ("SGS_SET_SEED", value)));
        let dry = program::finish(command).expect(0).json();
        assert_eq!((&dry["config"][key], &dry["layers"][key]), (&value.into(), &layer.into()));
        assert_eq!(dry["config"]["algorithm"]["solver"]["clip_high"], 4.0);
        assert_eq!(dry["layers"]["algorithm.solver.clip_high"], of_file.as_str());
    }
}
