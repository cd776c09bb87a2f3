//! The files in `examples/` work.

use crate::program::{project, sgs, sgs_with_input};
use crate::small_run::embedded;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

fn example(name: &str) -> String {
    project("examples").join(name).to_str().unwrap().to_owned()
}

#[test]
fn the_example_files_are_accepted() {
    let dry = sgs(&["run", &example("run.toml"), "--dry-run", "--json"]).expect(0).json();
    assert_eq!((&dry["config"]["seed"], &dry["config"]["rounds"]), (&7.into(), &10.into()));
    let sweep = sgs(&["sweep", &example("sweep.toml"), "--dry-run"]).expect(0).out;
    assert_eq!(sweep.lines().filter(|line| line.starts_with("sgs run ")).count(), 8, "{sweep}");
    let rates = sgs(&["sweep", &example("learning-rates.toml"), "--dry-run"]).expect(0).out;
    assert_eq!(rates.lines().filter(|line| line.starts_with("sgs run ")).count(), 12, "{rates}");
    let fit = sgs(&["fit", &example("curve.csv"), "--json"]).expect(0);
    assert!(fit.out.contains("\"points\": 89"), "{}", fit.out);
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("d3k");
    let filter = sgs(&["data", "filter", &example("filter.toml"), "--out", out.to_str().unwrap()]).expect(2);
    assert!(filter.err.contains("goedel-pset.jsonl") && !out.exists(), "{}", filter.err);
    let statements = std::fs::read_to_string(example("statements.txt")).unwrap();
    let proved = sgs_with_input(&["prove", "-n", "2", "--max-new-tokens", "4", "--json"], &statements);
    assert_eq!(proved.out.lines().count(), statements.lines().count());
    assert!(proved.lines().iter().all(|line| line["error"].is_null()), "{}", proved.err);
}

#[test]
fn the_notebook_reads_the_tables_of_a_run() {
    let python = std::env::var("SGS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_polars = Command::new(&python).args(["-c", "import polars, matplotlib"]).output();
    if !has_polars.is_ok_and(|output| output.status.success()) {
        let required = std::env::var("SGS_REQUIRE").unwrap_or_default();
        assert!(
            !required.contains("polars"),
            "SGS_REQUIRE names polars, but {python} lacks it or matplotlib"
        );
        println!("skipped: {python} lacks polars or matplotlib (SGS_PYTHON names another Python)");
        return;
    }
    let run = embedded();
    let tables = notebook_output(&python, &run);
    // Cells end with a table that has the columns which the text mentions.
    for columns in ["verdict", "pass_at_1", "status", "times", "steps"] {
        assert!(tables.contains(columns), "{columns}\n{tables}");
    }
}

/// Executes the cells of the notebook and returns their output.
fn notebook_output(python: &str, run: &Path) -> String {
    let notebook = std::fs::read_to_string(example("tables.ipynb")).unwrap();
    let notebook: serde_json::Value = serde_json::from_str(&notebook).unwrap();
    let code = notebook["cells"].as_array().unwrap().iter().filter(|cell| cell["cell_type"] == "code");
    let source = |cell: &serde_json::Value| {
        cell["source"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect::<String>()
    };
    let cells = serde_json::to_string(&code.map(source).collect::<Vec<_>>()).unwrap();
    // Like a notebook, print the value of a cell's last expression.
    let program = "import ast, json, os\nscope = {}\nfor cell in json.loads(os.environ['CELLS']):\n    tree = ast.parse(cell)\n    \
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None\n    \
        exec(compile(tree, 'cell', 'exec'), scope)\n    \
        if last: print(eval(compile(ast.Expression(last.value), 'cell', 'eval'), scope))\n";
    let output =
        Command::new(python).args(["-c", program]).env("RUN", run).env("CELLS", cells).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Writes a program that tries to leave the sandbox before it serves the example. Returns it, and the paths that it may
/// read, beginning with Python.
fn sandbox_probe(dir: &Path) -> (String, Vec<String>) {
    let print = "import sys; print(sys.executable, sys.prefix, sys.base_prefix)";
    let python = Command::new("python3").args(["-c", print]).output().unwrap();
    let python = String::from_utf8(python.stdout).unwrap();
    let served = example("external");
    let text = format!(
        "import os, runpy, socket, sys\nsys.path.insert(0, {served:?})\n\
         def escapes(attempt):\n    \
             try: attempt()\n    \
             except OSError: return False\n    \
             return True\n\
         ways = [lambda: open({dir:?} + '/escaped', 'w'), lambda: os.listdir({dir:?}), socket.socket,\n        \
             lambda: os.kill(os.getppid(), 0)]\n\
         assert not any([escapes(way) for way in ways])\n\
         runpy.run_path({served:?} + '/sequences.py', run_name='__main__')\n",
        dir = dir.to_str().unwrap()
    );
    let probe = crate::program::file(dir, "probe.py", &text);
    let read = python.split_whitespace().map(str::to_owned).chain([served, probe.clone()]).collect();
    (probe, read)
}

#[test]
fn the_external_example_runs_from_its_data_to_its_evaluation() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (data, base, run) = (path("data"), path("base"), path("run"));
    let make = Command::new("python3")
        .arg(example("external/make_data.py"))
        .args([data.as_str(), "400"])
        .output()
        .unwrap();
    assert!(make.status.success(), "{}", String::from_utf8_lossy(&make.stderr));
    let recipe = std::fs::read_to_string(example("external/base.toml")).unwrap();
    std::fs::write(path("base.toml"), recipe.replace("sequences-data", &data)).unwrap();
    sgs(&["pretrain", &path("base.toml"), "--out", &base]).expect(0);
    let (probe, read) = sandbox_probe(dir.path());
    let held_out = format!("{data}/held-out.jsonl");
    let set = [
        format!("problems.set={data}/targets.jsonl"),
        format!("evaluation.held_out={held_out}"),
        format!("external.command=[\"{}\", \"{probe}\"]", read[0]),
        "external.sandbox=true".to_owned(),
        format!("external.read={read:?}"),
        format!("model.base={base}/model"),
        "algorithm.batch.size=20".to_owned(),
        "evaluation.problems=10".to_owned(),
        // This model has hardly been trained.
        "algorithm.guide.min_readable=0".to_owned(),
    ];
    let config = example("external/run.toml");
    let mut args = vec!["run", &config, "--rounds", "1", "--out", &run];
    args.extend(set.iter().flat_map(|set| ["--set", set.as_str()]));
    let absent = ["--set", "external.sandbox=false", "--set", "external.command=[\"/absent/program\"]"];
    let refused = sgs(&[&args[..], &absent].concat()).expect(2).err;
    assert!(
        refused.contains("cannot start /absent/program") && !dir.path().join("run").exists(),
        "{refused}"
    );
    let blind = std::fs::read_to_string(example("external/sequences.py")).unwrap();
    let blind = blind.replace("<solver> {statement} <program>", "<solver> <program>");
    let imports = format!("import sys\nsys.path.insert(0, {:?})\n", example("external"));
    std::fs::write(path("blind.py"), imports + &blind).unwrap();
    let blind = format!("external.command=[\"{}\", \"{}\"]", read[0], path("blind.py"));
    let blind = ["--set", "external.sandbox=false", "--set", blind.as_str()];
    let refused = sgs(&[&args[..], &blind].concat()).expect(2).err;
    assert!(
        refused.contains("the Solver cannot see its problem") && !dir.path().join("run").exists(),
        "{refused}"
    );
    let dry = sgs(&[&args[..], &absent, &["--dry-run", "--json"]].concat()).json();
    assert!(dry["lacks"].to_string().contains("cannot start the external system"), "{}", dry["lacks"]);

    // The base model is evaluated before the run.
    let mine = std::fs::read_to_string(&config).unwrap().replace("sequences-data", &data);
    let mine = mine
        .replace("sequences-base", &base)
        .replace("examples/external/sequences.py", &example("external/sequences.py"));
    std::fs::write(path("mine.toml"), mine).unwrap();
    let before =
        ["eval", "--run", &path("mine.toml"), "--problems", &held_out, "--limit", "5", "-k", "2", "--json"];
    assert_eq!(sgs(&before).expect(0).json()["problems"], 5);

    let proofs = path("proofs.jsonl");
    let proof = |proof: &str| json!({"id": "square", "statement": "0 1 4 9 16 25 36 49", "proof": proof});
    let check = |proof: Value| {
        std::fs::write(&proofs, proof.to_string()).unwrap();
        let set = format!("problems.set={data}/targets.jsonl");
        let command = format!("external.command=[\"{}\", \"{}\"]", read[0], example("external/sequences.py"));
        sgs(&["external", "check", &config, "--set", &set, "--set", &command, "--proofs", &proofs])
    };
    let checked = check(proof("n dup *")).expect(0).out;
    assert!(checked.starts_with("external: sequences 1\n") && !checked.contains("FAILED"), "{checked}");
    assert!(check(proof("n")).expect(1).out.contains("FAILED   known proofs"));
    assert!(check(json!({"id": 1})).expect(2).err.contains("proofs.jsonl: line 1"));

    let done = sgs(&args);
    if done.err.contains("the sandbox is required") {
        println!("skipped: this machine has no sandbox\n{}", done.err);
        return;
    }
    done.expect(0);
    let checked = std::fs::read_to_string(path("run/checker.txt")).unwrap();
    assert_eq!(checked.trim(), "external: sequences 1");
    sgs(&["external", "check", &run]).expect(0);
    let refused = sgs(&["external", "check", &run, "--set", "external.batch=1"]).expect(2).err;
    assert!(refused.contains("--set cannot change the configuration"), "{refused}");
    let refused = sgs(&["verify", &run]).expect(2).err;
    assert!(refused.contains(&format!("`sgs external check {run} --proofs FILE`")), "{refused}");
    let evaluated =
        sgs(&["eval", "--run", &run, "--problems", &held_out, "--limit", "5", "-k", "2", "--json"]);
    assert_eq!(evaluated.expect(0).json()["problems"], 5);
}
