#![allow(clippy::unwrap_used, clippy::panic)] // a failing test panics

use super::*;
use sgs_keys::RangeEnd;
use sgs_lean::check::Limits;
use sgs_selfplay::Method;
use sgs_selfplay::config::{
    ConjectureForm, LengthScope, Objective, RatePopulation, Selection, UnrewardedHandling,
};

fn set(settings: &[String]) -> Result<Resolved> {
    resolve(&Layers { set: settings.to_vec(), ..Layers::default() }, std::iter::empty())
}

fn message(settings: &[&str]) -> String {
    let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
    set(&settings).unwrap_err().to_string()
}

/// Returns the defaults of all keys, as every formal system has them.
fn all_defaults() -> Table {
    LayerStack::of_defaults().unwrap().table
}

fn names(prefix: &str, table: &Table, into: &mut Vec<String>) {
    for (name, value) in table {
        match value {
            Value::Table(inner) => names(&dotted(prefix, name), inner, into),
            _ => into.push(dotted(prefix, name)),
        }
    }
}

#[test]
fn every_key_has_a_meaning_a_range_and_a_default_in_the_range() {
    let keys = RunConfig::keys("");
    let defaults = all_defaults();
    for key in &keys {
        assert!(key.meaning.len() > 10 && key.meaning.ends_with('.'), "{key:?}");
        assert!(key.allowed.to_string().len() >= 4, "{key:?}");
        match value_of(&defaults, &key.key) {
            Some(value) => {
                assert_eq!(key.default.as_ref(), Some(value), "{}", key.key);
                key.fit(value.clone()).unwrap();
            }
            None => assert_eq!(key.key, "lean.scratch", "only this key has no default"),
        }
    }
    let mut written = Vec::new();
    names("", &defaults, &mut written);
    let mut declared: Vec<String> = keys.into_iter().map(|key| key.key).collect();
    declared.retain(|key| key != "lean.scratch");
    written.sort();
    declared.sort();
    assert_eq!(written, declared);
}

/// Returns the values at the ends of a range and those just outside, as text.
fn ends(allowed: Allowed) -> (Vec<String>, Vec<String>) {
    let whole = |low: u64, high: u64| {
        let above = u128::from(high) + 1;
        (vec![low.to_string(), high.to_string()], vec![(i128::from(low) - 1).to_string(), above.to_string()])
    };
    match allowed {
        Allowed::Whole { low, high } => whole(low, high),
        Allowed::NameOrWhole { name, low, high } => {
            let (mut inside, outside) = whole(low, high);
            inside.push(name.to_owned());
            (inside, outside)
        }
        Allowed::Real { low, high } => {
            let at = |end: RangeEnd, outwards: f64| match end.included {
                true => (end.at, outwards),
                false => (if end == low { end.at.next_up() } else { end.at.next_down() }, end.at),
            };
            let (low, high) = (at(low, low.at.next_down()), at(high, high.at.next_up()));
            let text = |x: f64| format!("{x:e}");
            let outside = vec![text(low.1), text(high.1), "nan".to_owned(), "inf".to_owned()];
            (vec![text(low.0), text(high.0)], outside)
        }
        Allowed::Switch => (vec!["true".into(), "false".into()], vec!["1".into(), "yes".into()]),
        Allowed::Names(names) => {
            (names.iter().map(|name| (*name).to_owned()).collect(), vec!["no-such-name".into(), "1".into()])
        }
        Allowed::ListOf(names) => {
            (names.iter().map(|name| format!("[\"{name}\"]")).collect(), vec!["[\"nonsense\"]".into()])
        }
        Allowed::Text(_) | Allowed::TextOrTable(_) => (Vec::new(), Vec::new()),
    }
}

/// One layer is enough, because all layers set keys in the same way. Constraints between keys are tested elsewhere.
#[test]
fn every_range_is_enforced_at_both_ends() {
    let mut tried = 0;
    for key in RunConfig::keys("") {
        let (inside, outside) = ends(key.allowed);
        for text in inside {
            let mut stack = LayerStack::of_defaults().unwrap();
            stack.assign(&key.key, &text, Layer::Argument("--set")).unwrap();
            let config: RunConfig =
                stack.table.try_into().unwrap_or_else(|e| panic!("{} {text}: {e}", key.key));
            config.check("").unwrap();
            tried += 1;
        }
        for text in outside {
            let told = message(&[&format!("{}={text}", key.key)]);
            let expected = format!("`{}` is ", key.key);
            assert!(told.starts_with(&expected) && told.ends_with(&key.allowed.to_string()), "{told}");
            tried += 1;
        }
    }
    assert!(tried > 300, "{tried}");
}

#[test]
fn unknown_keys_are_rejected_with_a_suggestion() {
    let told = message(&["algorithm.solver.learning_rat=1e-4"]);
    assert!(told.contains("did you mean `algorithm.solver.learning_rate`"), "{told}");
    assert!(message(&["learning_rate=1e-4"]).contains("did you mean `algorithm.solver.learning_rate`"));
    assert!(message(&["problems.database=no.mm"]).contains("problems.database: no.mm: cannot read"));
    assert!(message(&["problems.database=Cargo.toml"]).contains("problems.database: Cargo.toml:1:"));
    assert!(message(&["algorithm.solver=3"]).contains("is a table"));
    assert!(message(&["rounds"]).contains("expected KEY=VALUE"));
}

#[test]
fn an_external_system_requires_a_command_and_a_model() {
    let external = ["problems.system=external", "external.command=[\"cat\"]", "model.base=folder"];
    let told = [1, 2].map(|count| message(&external[..count]));
    assert!(
        told[0].contains("requires external.command") && told[1].contains("requires model.base"),
        "{told:?}"
    );
    let config = set(&external.map(str::to_owned)).unwrap().config;
    assert_eq!(config.external.unwrap().command, ["cat"]);
}

#[test]
fn a_size_overrides_the_size_and_the_method_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, "method = \"cispo\"\nsize = \"metamath\"\n").unwrap();
    let method = Some(path.display().to_string());
    let layers = Layers { method, size: Some("lean-d3k".to_owned()), ..Layers::default() };
    let resolved = resolve(&layers, std::iter::empty()).unwrap();
    assert_eq!(
        (resolved.config.size.as_str(), resolved.layer("size").to_string()),
        ("lean-d3k", "--size".to_owned())
    );
    let rate = "algorithm.solver.learning_rate";
    assert_eq!(resolved.layer(rate).to_string(), "method cispo at size lean-d3k");
    assert_eq!(resolved.config.algorithm.solver.learning_rate, 1e-6);
}

#[test]
fn an_invalid_line_of_a_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let file = path.display().to_string();
    let layers = Layers { method: Some(file.clone()), ..Layers::default() };
    for (text, wrong) in [
        ("rounds = 0\n", "1: `rounds` is 0; expected an integer from 1 to 1000000"),
        ("\nrounds = 9\nminutes = \"9\"\n", "3: `minutes` is \"9\"; expected a number from 0 to 10000000"),
        (
            "rounds = 9\n[algorithm]\nsolver.rate = 1\n",
            "3: there is no key `algorithm.solver.rate`; did you mean `algorithm.solver.learning_rate`? \
             (`sgs run --explain` lists all)",
        ),
        ("\n\n[algorthm.solver]\nlearning_rate = 1.0\n", "3: there is no key `algorthm`; did you mean"),
    ] {
        std::fs::write(&path, text).unwrap();
        let told = resolve(&layers, std::iter::empty()).unwrap_err().to_string();
        assert!(told.starts_with(&format!("{file}:{wrong}")), "{told}");
    }
}

/// Returns whether the formal system of a size supports the conjectures of a method.
fn fits(method: &str, size: &str) -> bool {
    let form = method.parse::<Method>().unwrap().config().conjecturer.form;
    form == ConjectureForm::Statement || size.starts_with("metamath")
}

/// Layers of a run with an external formal system.
fn external(more: &[&str]) -> Layers {
    let needed = ["external.command=[\"program\"]", "model.base=folder"];
    Layers {
        set: needed.iter().chain(more).map(|&setting| setting.to_owned()).collect(),
        ..Layers::default()
    }
}

/// An external system has its own default size, wherever the system is chosen.
#[test]
fn an_external_system_does_not_inherit_the_size_of_metamath() {
    let of = |layers: &Layers, variables: &[(&str, &str)]| {
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        resolve(layers, environment).unwrap()
    };
    let set = of(&external(&["problems.system=external"]), &[]);
    assert_eq!((set.config.size.as_str(), set.layer("size")), ("external", &Layer::Default));
    assert_eq!((set.config.minutes, set.config.algorithm.conjecturer.min_proof_steps), (0.0, 0));
    assert_eq!(of(&external(&[]), &[("SGS_SET_PROBLEMS__SYSTEM", "external")]).config, set.config);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    std::fs::write(&file, "[problems]\nsystem = \"external\"\n").unwrap();
    let method = Some(file.to_str().unwrap().to_owned());
    let of_file = of(&Layers { method: method.clone(), ..external(&[]) }, &[]).config;
    assert_eq!(RunConfig { label: String::new(), ..of_file }, set.config);
    // A later layer and a named size take precedence.
    let metamath = Layers { method: method.clone(), ..external(&["problems.system=metamath"]) };
    assert_eq!(of(&metamath, &[]).config.size, "metamath-quick");
    let named = Layers { method, size: Some("metamath".to_owned()), ..external(&[]) };
    assert_eq!(of(&named, &[]).config.size, "metamath");
}

/// `--as-published` applies `with_code_choices` after the presets and before the user's settings.
#[test]
fn as_published_selects_the_choices_of_the_papers_code() {
    for method in Method::ALL.map(Method::as_str) {
        let layers = |as_published, set: &[&str]| Layers {
            method: Some(method.into()),
            as_published,
            set: set.iter().map(|s| (*s).to_owned()).collect(),
            ..Layers::default()
        };
        let of = |layers: &Layers| resolve(layers, std::iter::empty()).unwrap();
        let text = of(&layers(false, &[])).config.algorithm;
        let code = of(&layers(true, &[]));
        assert_eq!(code.config.algorithm, text.clone().with_code_choices(), "{method}");
        assert_ne!(code.config.algorithm, text, "{method}");
        let said = "--as-published";
        assert_eq!(code.layer("algorithm.optimizer.clip_norm").to_string(), said);
        assert_ne!(
            code.layer("algorithm.rollouts_per_problem").to_string(),
            said,
            "the text and the code agree"
        );
        let set = of(&layers(true, &["algorithm.optimizer.clip_norm=0.5"]));
        assert_eq!(set.config.algorithm.optimizer.clip_norm, 0.5);
    }
    let size = Some("lean-d3k".to_owned());
    let lean =
        resolve(&Layers { size, as_published: true, ..Layers::default() }, std::iter::empty()).unwrap();
    assert_eq!(lean.config.lean, Some(LeanSettings::default().with_code_choices()));
    assert_eq!(lean.layer("lean.limits.proof_ms").to_string(), "--as-published");
}

/// Returns the alternatives to the paper that a document names: a key and a value.
fn alternatives(document: &str, section: &str) -> Vec<(String, Value)> {
    let code = document.split('`').skip(1).step_by(2);
    let settings = code.filter_map(|code| code.split_once(" = "));
    let value = |text: &str| format!("v = {text}").parse::<Table>().unwrap().remove("v").unwrap();
    settings
        .map(|(key, text)| (dotted(section, key.strip_prefix("lean.").unwrap_or(key)), value(text)))
        .collect()
}

/// The keys whose alternative in `docs/fidelity.md` is the paper's text.
const OF_THE_TEXT: [&str; 2] = ["algorithm.solver.selection", "algorithm.solver.advantage_epsilon"];

/// `--as-paper` leaves the library's method with the paper's text at every size, except for the learning rates, and none
/// of the alternatives that `docs/fidelity.md` lists, except those of the text.
#[test]
fn as_paper_follows_the_text_at_every_size() {
    let listed = alternatives(include_str!("../../../../../docs/fidelity.md"), "algorithm");
    let of_lean = alternatives(include_str!("../../../../../docs/fidelity-lean.md"), "lean");
    assert!(listed.len() > 35 && of_lean.len() > 5, "{listed:?} {of_lean:?}");
    for (size, _) in SIZES {
        let of = |method: &str, as_paper| {
            let (method, size) = (Some(method.to_owned()), Some(size.to_owned()));
            resolve(&Layers { method, size, as_paper, ..external(&[]) }, std::iter::empty()).unwrap()
        };
        for method in Method::ALL.map(Method::as_str) {
            if !fits(method, size) {
                continue;
            }
            let (preset, paper) = (of(method, false).config, of(method, true).config);
            let mut expected = method.parse::<Method>().unwrap().config().with_text_choices();
            expected.solver.learning_rate = preset.algorithm.solver.learning_rate;
            expected.conjecturer.learning_rate = preset.algorithm.conjecturer.learning_rate;
            assert_eq!(paper.algorithm, expected, "{method} at {size}");
            assert_eq!(
                RunConfig { algorithm: preset.algorithm.clone(), ..paper },
                preset,
                "{method} at {size}"
            );
            let paper = paper.algorithm;
            if paper.solver.objective == Objective::Cispo {
                assert_eq!(paper.solver.effective_selection(), Selection::All, "{method} at {size}");
                assert_eq!(paper.solver.advantage_epsilon, 0.0, "{method} at {size}");
            }
            // With all rates, the Conjecturer would not be trained.
            assert_eq!(paper.conjecturer.rate_population, RatePopulation::Interior, "{method} at {size}");
        }
        let paper = of("sgs-cispo", true);
        for (key, alternative) in listed.iter().chain(&of_lean) {
            let value = paper.value(key).unwrap_or_else(|| panic!("{key}"));
            let is_text = OF_THE_TEXT.contains(&key.as_str());
            assert_eq!(value == alternative, is_text, "{key} at {size}");
            assert!(!is_text || paper.layer(key).to_string() == "--as-paper", "{key} at {size}");
        }
    }
    for key in OF_THE_TEXT {
        assert!(listed.iter().any(|(listed, _)| listed == key), "{key}");
    }
    // Where the text and the code differ, the code has precedence.
    let both =
        Layers { method: Some("sgs-cispo".into()), as_paper: true, as_published: true, ..Layers::default() };
    let both = resolve(&both, std::iter::empty()).unwrap().config.algorithm;
    assert_eq!(both.solver.effective_selection(), Selection::Mixed);
    assert_eq!(both.solver.advantage_epsilon, 1e-6);
    let of = |as_paper| {
        let size = Some("lean-d3k".to_owned());
        resolve(&Layers { size, as_paper, ..Layers::default() }, std::iter::empty()).unwrap().config
    };
    let mut code = of(true);
    code.algorithm.conjecturer.unselected = UnrewardedHandling::Dropped;
    code.algorithm.conjecturer.malformed = UnrewardedHandling::Dropped;
    code.algorithm.penalties.length_of_unproved = false;
    code.algorithm.penalties.length_scope = LengthScope::GeneratedTokens;
    assert_eq!(code, of(false), "lean-d3k has the paper's values where the code gives no other signs");
}

/// `--as-paper` also follows the text if another layer than the method selects CISPO, but overrides no key that is given.
#[test]
fn as_paper_follows_the_text_for_an_objective_of_another_layer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.toml");
    let of = |text: &str, set: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let set = set.iter().map(|set| (*set).to_owned()).collect();
        let method = Some(file.display().to_string());
        let resolved =
            resolve(&Layers { method, set, as_paper: true, ..Layers::default() }, std::iter::empty());
        let solver = resolved.unwrap().config.algorithm.solver;
        (solver.selection, solver.advantage_epsilon)
    };
    let text = (Selection::All, 0.0);
    let cispo = "[algorithm.solver]\nobjective = \"cispo\"\n";
    assert_eq!(of("", &["algorithm.solver.objective=cispo"]), text);
    assert_eq!(of(cispo, &[]), text);
    assert_eq!(of("method = \"cispo\"", &[]), text);
    assert_eq!(of(&format!("{cispo}selection = \"auto\""), &[]), (Selection::Auto, 0.0));
    assert_eq!(of(cispo, &["algorithm.solver.advantage_epsilon=1e-6"]), (Selection::All, 1e-6));
    let code = (Selection::Auto, 1e-6);
    assert_eq!(of("", &[]), code);
    assert_eq!(of("method = \"sgs-cispo\"", &["algorithm.solver.objective=reinforce"]), code);
}

/// Asserts that a table has every key of an older one with the same value.
#[track_caller]
fn assert_holds(table: &Table, older: &Table) {
    for (key, value) in older {
        match (table.get(key), value) {
            (Some(Value::Table(inner)), Value::Table(older)) => assert_holds(inner, older),
            (found, value) => assert_eq!(found, Some(value), "{key}"),
        }
    }
}

/// `config.toml` files written by an older version can be read and keep their values when written again.
#[test]
fn configurations_of_old_runs_load_and_keep_their_values() {
    for text in [include_str!("frozen-metamath.toml"), include_str!("frozen-lean.toml")] {
        let config: RunConfig = toml::from_str(text).unwrap();
        config.check("").unwrap();
        // Keys added since then are also written.
        let written = toml::to_string(&config).unwrap().parse::<Table>().unwrap();
        assert_holds(&written, &text.parse::<Table>().unwrap());
    }
    let lean: RunConfig = toml::from_str(include_str!("frozen-lean.toml")).unwrap();
    // The defaults at that time.
    let options = [("autoImplicit", "false"), ("maxSynthPendingDepth", "3")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let limits = Limits { start_ms: 300_000, ..Limits::default() };
    assert_eq!(lean.lean, Some(LeanSettings { judge: false, options, limits, ..LeanSettings::default() }));
    assert_eq!(lean.algorithm, {
        let mut algorithm = Method::Cispo.config();
        algorithm.solver.learning_rate = 1e-6;
        algorithm.conjecturer.learning_rate = 1e-6;
        algorithm.batch.size = "64".parse::<toml::Value>().unwrap().try_into().unwrap();
        algorithm
    });
    // A missing key takes its default; an unknown key is an error.
    let text = include_str!("frozen-metamath.toml");
    let without = text.replace("recompute = false\n", "");
    assert!(without.len() < text.len());
    assert_eq!(toml::from_str::<RunConfig>(&without).unwrap(), toml::from_str(text).unwrap());
    let beyond = text.replace("recompute = false\n", "recomputes = false\n");
    assert!(toml::from_str::<RunConfig>(&beyond).unwrap_err().to_string().contains("recomputes"));
}

/// The curve of the base model that was measured for the default size fits every method that trains, also as in the paper.
#[test]
fn the_default_size_has_a_measured_baseline() {
    let has_baseline = |method: &str, size: &str, as_paper, set: &[&str]| {
        let layers = Layers {
            method: Some(method.into()),
            size: Some(size.into()),
            as_paper,
            set: set.iter().map(|s| (*s).to_owned()).collect(),
            ..Layers::default()
        };
        let config = resolve(&layers, std::iter::empty()).unwrap().config;
        let text = toml::to_string(&config).unwrap();
        sgs_analysis::baseline::Baseline::of(&text, method.parse().ok()).is_some()
    };
    for method in Method::ALL.map(Method::as_str) {
        for as_paper in [false, true] {
            assert_eq!(
                has_baseline(method, "metamath-quick", as_paper, &[]),
                method != "sampling-only",
                "{method}"
            );
        }
    }
    for size in
        ["metamath", "metamath-13m", "metamath-30m", "metamath-deep", "metamath-congruence", "lean-core"]
    {
        assert!(has_baseline("sgs", size, false, &[]), "{size}");
    }
    for set in ["problems.set=all", "problems.set=train"] {
        assert!(has_baseline("sgs", "metamath-quick", false, &[set]), "{set}");
    }
    for size in ["metamath-13m", "metamath-30m", "metamath-deep"] {
        assert!(has_baseline("sgs", size, true, &[]), "{size} without rehearsal");
    }
    // The document names what has no curve.
    let document = include_str!("../../../../../docs/analysis.md");
    assert!(
        document.contains("Not measured: `lean-d3k` and external systems, `congruence` without rehearsal")
    );
    assert!(!has_baseline("sgs", "lean-d3k", false, &[]));
    for other in [
        "problems.set=held-out",
        "sampling.solver_tokens=64",
        "algorithm.batch.retire_after=4",
        "model.base=mine",
    ] {
        assert!(!has_baseline("sgs", "metamath-quick", false, &[other]), "{other}");
    }
}

#[test]
fn the_name_of_a_file_labels_its_runs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let label = |method: &str, set: &[&str]| {
        let set = set.iter().map(|s| (*s).to_owned()).collect();
        let layers = Layers { method: Some(method.to_owned()), set, ..Layers::default() };
        resolve(&layers, std::iter::empty()).map(|resolved| resolved.config.label)
    };
    std::fs::write(&file, "method = \"sgs\"\n").unwrap();
    let path = file.to_str().unwrap();
    assert_eq!(label("sgs", &[]).unwrap(), "");
    assert_eq!(label(path, &[]).unwrap(), "mine");
    assert_eq!(label(path, &["label=other"]).unwrap(), "other");
    let long = format!("label={}", "x".repeat(61));
    assert!(label("sgs", &[&long]).unwrap_err().to_string().contains("more than 60 characters"));
    std::fs::write(&file, "method = \"sgs\"\nlabel = \"own\"\n").unwrap();
    assert_eq!(label(path, &[]).unwrap(), "own");
}

/// A configuration contains the texts of a folder of prompts, also as a file for another run.
#[test]
fn prompts_are_part_of_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, file) = (dir.path().join("prompts"), dir.path().join("copy.toml"));
    std::fs::create_dir(&folder).unwrap();
    let text = "'''\"\"\"\r\n[frozen]\n{code}\n";
    std::fs::write(folder.join("solver.txt"), text).unwrap();
    let prompts = format!("lean.prompts={}", folder.display());
    let of = |method: Option<String>, set: &[&str]| {
        let set = set.iter().map(|s| (*s).to_owned()).collect();
        let size = Some("lean-d3k".to_owned());
        resolve(&Layers { method, size, set, ..Layers::default() }, std::iter::empty())
    };
    let resolved = of(None, &[&prompts]).unwrap();
    assert_eq!(resolved.value("lean.prompts"), Some(&Value::String(folder.display().to_string())));
    let texts = sgs_lean::Prompts::Texts([("solver".to_owned(), text.to_owned())].into());
    assert_eq!(resolved.config.lean.as_ref().unwrap().prompts, texts);
    std::fs::write(folder.join("solver.txt"), "{cod}").unwrap();
    let (written, lean) = (toml::to_string_pretty(&resolved.config).unwrap(), resolved.config.lean);
    std::fs::write(&file, &written).unwrap();
    let copy = Some(file.display().to_string());
    assert_eq!(of(copy.clone(), &[]).unwrap().config.lean, lean);
    let json = serde_json::to_string(&lean).unwrap();
    assert_eq!(serde_json::from_str::<Option<LeanSettings>>(&json).unwrap(), lean);

    let told = |method, set: &[&str]| of(method, set).unwrap_err().to_string();
    let wrong = told(None, &[&prompts]);
    assert!(wrong.starts_with("lean.prompts: ") && wrong.contains("solver.txt:1: unknown"), "{wrong}");
    let compact = told(copy.clone(), &["lean.form=compact"]);
    assert!(compact.contains("with the form `compact`, prompts cannot"), "{compact}");
    std::fs::write(&file, "[lean.prompts]\nsolver = 3\n").unwrap();
    let number = told(copy, &[]);
    assert!(number.contains("copy.toml:1: `lean.prompts` is { solver = 3 }; expected a folder"), "{number}");
}
