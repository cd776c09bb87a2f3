//! Completions of a real server: llama.cpp's, over the model that ships with the program.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod server;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use server::{Gateway, Options, Server, free_port};
use sgs_endpoint::{Ask, End, Endpoint, EndpointError, Engine, Key, Prompt, PromptForm, Sample, Settings};

/// `<solver> |- ( ph -> ph ) <proof>` in tokens of the model.
const PROMPT: [u32; 8] = [3, 126, 121, 129, 123, 129, 122, 6];
/// Its end token and the size of its vocabulary.
const END: u32 = 2;
const VOCABULARY: usize = 9362;

fn settings(url: &str) -> Settings {
    Settings {
        engine: Engine::Any,
        url: url.to_owned(),
        model: None,
        key: None,
        trusted: None,
        prompt: Prompt::Auto,
        tries: 50,
        timeout: Duration::from_secs(120),
        patience: Duration::from_secs(120),
        connections: 8,
    }
}

fn ask(seed: u64) -> Ask {
    Ask {
        tokens: PROMPT.to_vec(),
        text: "<solver> |- ( ph -> ph )<proof>".to_owned(),
        seed,
        max_tokens: 24,
        temperature: 1.0,
        stop_tokens: vec![END],
        stop_texts: Vec::new(),
    }
}

fn connect(settings: Settings) -> Result<(Endpoint, Sample), EndpointError> {
    Endpoint::connect(settings, &ask(0), 512, VOCABULARY)
}

fn sample(endpoint: &Endpoint, ask: &Ask) -> Sample {
    endpoint.sample(ask, || false).unwrap()
}

#[test]
fn samples_follow_from_their_seeds_and_come_with_tokens_and_log_probs() {
    let Some(server) = Server::start(&Options::default()) else { return };
    let (endpoint, _) = connect(settings(&server.url)).unwrap();
    let abilities = endpoint.abilities();
    assert_eq!(endpoint.model(), "sgs-base");
    assert_eq!((abilities.prompt, abilities.context), (PromptForm::Tokens, Some(512)));
    assert!(abilities.beyond && abilities.token_ids && abilities.log_probs, "{abilities:?}");
    let samples: Vec<Sample> = (0..24).map(|seed| sample(&endpoint, &ask(seed))).collect();
    for s in &samples {
        let tokens = s.tokens.as_ref().unwrap();
        assert_eq!(tokens.len(), s.log_probs.as_ref().unwrap().len());
        assert!(tokens.len() <= 24 && tokens.iter().all(|t| (*t as usize) < VOCABULARY));
        assert_eq!(s.end == End::Stop, tokens.last() == Some(&END), "{s:?}");
    }
    let ends = samples.iter().filter(|s| s.end == End::Stop).count();
    assert!(ends > 0, "not one of 24 proofs of 24 tokens ended");
    let different: std::collections::BTreeSet<_> = samples.iter().map(|s| s.tokens.clone()).collect();
    assert!(different.len() > 12, "seeds make a difference: {}", different.len());
    // A sequence's own tokens follow from its seed; log-probs differ by the order of sums in a batch.
    assert_eq!(sample(&endpoint, &ask(7)).tokens, samples[7].tokens);
    // As text: the same prompt, the same likeliest completion.
    let likeliest = Ask { temperature: 0.0, ..ask(1) };
    let by_tokens = sample(&endpoint, &likeliest);
    let (as_text, _) = connect(Settings { prompt: Prompt::Text, ..settings(&server.url) }).unwrap();
    assert_eq!(as_text.abilities().prompt, PromptForm::Text);
    assert_eq!(sample(&as_text, &likeliest).tokens, by_tokens.tokens);
    // A text that ends the completion.
    let word = by_tokens.text.split_whitespace().nth(1).unwrap().to_owned();
    let cut = sample(&endpoint, &Ask { stop_texts: vec![word.clone()], ..likeliest });
    assert_eq!(cut.end, End::Stop);
    assert!(by_tokens.text.starts_with(&cut.text) && !cut.text.contains(&word), "{:?}", cut.text);
}

/// The distribution is not truncated: over many draws of one token the frequencies are the probabilities that the
/// server itself tells.
#[test]
fn the_whole_distribution_is_sampled() {
    let Some(server) = Server::start(&Options::default()) else { return };
    let (endpoint, _) = connect(settings(&server.url)).unwrap();
    let next = AtomicUsize::new(0);
    let draws: Vec<(u32, f32)> = std::thread::scope(|scope| {
        let work = || {
            let mut drawn = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= 800 {
                    return drawn;
                }
                let s = sample(&endpoint, &Ask { max_tokens: 1, ..ask(seed as u64) });
                drawn.push((s.tokens.unwrap()[0], s.log_probs.unwrap()[0]));
            }
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    // With top-p 0.95 or min-p 0.05, the server's defaults, no token below a twentieth of the likeliest would come.
    let likeliest = draws.iter().map(|d| d.1).fold(f32::MIN, f32::max);
    let rare = draws.iter().filter(|d| d.1 < likeliest - 20f32.ln()).count();
    assert!(rare > 50, "{rare} of {} draws are of rare tokens", draws.len());
    let mut told: std::collections::BTreeMap<u32, (f64, usize)> = std::collections::BTreeMap::new();
    for (token, log_prob) in &draws {
        told.entry(*token).or_insert((f64::from(*log_prob).exp(), 0)).1 += 1;
    }
    for (token, (probability, count)) in told {
        let expected = probability * draws.len() as f64;
        let deviation = (expected * (1.0 - probability)).sqrt().max(1.0);
        // Six deviations: one chance in a billion, and the seeds are fixed.
        assert!(
            (count as f64 - expected).abs() < 6.0 * deviation,
            "token {token}: {count} drawn, {expected:.1} expected"
        );
    }
}

#[test]
fn what_does_not_fit_is_said_at_once() {
    let Some(server) = Server::start(&Options { context: 256, key: Some("a-secret"), ..Options::default() })
    else {
        return;
    };
    let key = || Some(Key::new("a-secret", "the test").unwrap());
    let error = |settings: Settings, needed, vocabulary| {
        let begun = Instant::now();
        let error = Endpoint::connect(settings, &ask(0), needed, vocabulary).unwrap_err();
        assert!(error.is_final(), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60), "no waiting for what does not pass: {error}");
        error.to_string()
    };
    let none = error(settings(&server.url), 100, VOCABULARY);
    assert!(none.contains("401") && none.contains("it wants a key"), "{none}");
    let wrong = Settings { key: Some(Key::new("another", "the test").unwrap()), ..settings(&server.url) };
    let wrong = error(wrong, 100, VOCABULARY);
    assert!(wrong.contains("the key is not the right one") && !wrong.contains("another"), "{wrong}");
    let right = Settings { key: key(), ..settings(&server.url) };
    let model = error(Settings { model: Some("llama-70b".into()), ..right.clone() }, 100, VOCABULARY);
    assert!(model.contains("does not serve the model \"llama-70b\"; it serves \"sgs-base\""), "{model}");
    let context = error(right.clone(), 512, VOCABULARY);
    assert!(
        context.contains("a context of 256 tokens, and the run needs 512") && context.contains("-c"),
        "{context}"
    );
    let vocabulary = error(right.clone(), 100, 32_000);
    assert!(vocabulary.contains("it has 9362 tokens and the run's tokenizer 32000"), "{vocabulary}");
    let (endpoint, _) = Endpoint::connect(right, &ask(0), 256, VOCABULARY).unwrap();
    let long = Ask { tokens: PROMPT.repeat(40), ..ask(1) };
    let refused = endpoint.sample(&long, || false).unwrap_err();
    assert!(!refused.is_final() && refused.to_string().contains("context"), "{refused}");
    // Another kind of server altogether, and nobody.
    let port = free_port();
    let away = Settings { patience: Duration::from_secs(1), ..settings(&format!("http://127.0.0.1:{port}")) };
    let away = error(away, 100, VOCABULARY);
    assert!(away.contains("has not answered for"), "{away}");
}

#[test]
fn a_server_that_dies_and_comes_back_loses_nothing() {
    let port = free_port();
    let options = Options { port, ..Options::default() };
    let Some(server) = Server::start(&options) else { return };
    let (endpoint, _) = connect(settings(&server.url)).unwrap();
    let expected: Vec<_> = (0..4).map(|seed| sample(&endpoint, &ask(seed)).tokens).collect();
    let (begun, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (endpoint, begun, done, expected) = (&endpoint, &begun, &done, &expected);
            scope.spawn(move || {
                for turn in 0..30 {
                    begun.fetch_add(1, Ordering::Relaxed);
                    let seed = (thread + turn) % 4;
                    assert_eq!(sample(endpoint, &ask(seed as u64)).tokens, expected[seed]);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while done.load(Ordering::Relaxed) < 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.kill();
        let before = done.load(Ordering::Relaxed);
        assert!(before < 120, "the server died too late to matter");
        std::thread::sleep(Duration::from_millis(500));
        let _back = Server::start(&options).unwrap();
        while done.load(Ordering::Relaxed) < 120 && begun.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 120);
}

#[test]
fn a_gateway_that_says_later_is_heard() {
    let Some(server) = Server::start(&Options::default()) else { return };
    let Some(gateway) = Gateway::start(&server, free_port(), Some(120)) else { return };
    let (endpoint, _) = connect(settings(&gateway.url)).unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let endpoint = &endpoint;
            scope.spawn(move || assert!(sample(endpoint, &ask(seed)).tokens.is_some()));
        }
    });
    // The gateway lets one through every half second, so seven of them were told to come later.
    assert!(begun.elapsed() >= Duration::from_secs(3), "nobody waited: {:?}", begun.elapsed());
    // Who does not try again hears why, and that is no reason to give up on the endpoint.
    std::thread::sleep(Duration::from_millis(1000));
    let (hasty, _) = connect(Settings { tries: 1, ..settings(&gateway.url) }).unwrap();
    let failed: Vec<EndpointError> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|seed| {
                scope.spawn({
                    let hasty = &hasty;
                    move || hasty.sample(&ask(seed), || false)
                })
            })
            .collect();
        threads.into_iter().filter_map(|t| t.join().unwrap().err()).collect()
    });
    assert!(!failed.is_empty());
    for error in failed {
        assert!(!error.is_final() && error.to_string().contains("429"), "{error}");
    }
}
