//! Completions of a real llama.cpp server with the shipped model.

use crate::server;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use server::{Gateway, Options, Server, free_port};
use sgs_endpoint::{
    ApiKey, CompletionRequest, Endpoint, EndpointError, EndpointSettings, PromptEncoding, PromptMode,
    RemoteCompletion, ServerKind, StopReason,
};

/// The prompt `<solver> |- ( ph -> ph ) <proof>` as tokens of the model.
const PROMPT: [u32; 8] = [3, 126, 121, 129, 123, 129, 122, 6];
/// The model's end-of-sequence token and vocabulary size.
const END: u32 = 2;
const VOCABULARY: usize = 9362;

fn settings(url: &str) -> EndpointSettings {
    EndpointSettings {
        server: ServerKind::Any,
        url: url.to_owned(),
        model: None,
        key: None,
        trusted: None,
        prompt: PromptMode::Auto,
        tries: 50,
        timeout: Duration::from_secs(120),
        patience: Duration::from_secs(120),
        connections: 8,
    }
}

fn ask(seed: u64) -> CompletionRequest {
    CompletionRequest {
        tokens: PROMPT.to_vec(),
        text: "<solver> |- ( ph -> ph )<proof>".to_owned(),
        seed,
        max_tokens: 24,
        temperature: 1.0,
        stop_tokens: vec![END],
        stop_texts: Vec::new(),
    }
}

fn connect(settings: EndpointSettings) -> Result<(Endpoint, RemoteCompletion), EndpointError> {
    Endpoint::connect(settings, &ask(0), 512, VOCABULARY)
}

fn sample(endpoint: &Endpoint, ask: &CompletionRequest) -> RemoteCompletion {
    endpoint.sample(ask, || false).unwrap()
}

#[test]
fn samples_are_reproducible_and_have_tokens_and_log_probs() {
    let Some(server) = Server::start(&Options::default()) else { return };
    let (endpoint, _) = connect(settings(&server.url)).unwrap();
    let capabilities = endpoint.capabilities();
    assert_eq!(endpoint.model(), "sgs-base");
    assert_eq!((capabilities.prompt, capabilities.context), (PromptEncoding::Tokens, Some(512)));
    assert!(capabilities.extensions && capabilities.token_ids && capabilities.log_probs, "{capabilities:?}");
    let samples: Vec<RemoteCompletion> = (0..24).map(|seed| sample(&endpoint, &ask(seed))).collect();
    for s in &samples {
        let tokens = s.tokens.as_ref().unwrap();
        assert_eq!(tokens.len(), s.log_probs.as_ref().unwrap().len());
        assert!(tokens.len() <= 24 && tokens.iter().all(|t| (*t as usize) < VOCABULARY));
        assert_eq!(s.end == StopReason::Stop, tokens.last() == Some(&END), "{s:?}");
    }
    let ends = samples.iter().filter(|s| s.end == StopReason::Stop).count();
    assert!(ends > 0, "none of 24 proofs of at most 24 tokens ended");
    let different: std::collections::BTreeSet<_> = samples.iter().map(|s| s.tokens.clone()).collect();
    assert!(different.len() > 12, "seeds have an effect: {}", different.len());
    // The tokens depend on the seed only; log-probs vary with the order of summation in a batch.
    assert_eq!(sample(&endpoint, &ask(7)).tokens, samples[7].tokens);
    // The same prompt as text has the same greedy completion.
    let likeliest = CompletionRequest { temperature: 0.0, ..ask(1) };
    let by_tokens = sample(&endpoint, &likeliest);
    let (as_text, _) =
        connect(EndpointSettings { prompt: PromptMode::Text, ..settings(&server.url) }).unwrap();
    assert_eq!(as_text.capabilities().prompt, PromptEncoding::Text);
    assert_eq!(sample(&as_text, &likeliest).tokens, by_tokens.tokens);
    // Use a stop text.
    let word = by_tokens.text.split_whitespace().nth(1).unwrap().to_owned();
    let cut = sample(&endpoint, &CompletionRequest { stop_texts: vec![word.clone()], ..likeliest });
    assert_eq!(cut.end, StopReason::Stop);
    assert!(by_tokens.text.starts_with(&cut.text) && !cut.text.contains(&word), "{:?}", cut.text);
}

/// Checks that the distribution is not truncated: over many draws of one token, the frequencies match the probabilities
/// that the server returns.
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
                let s = sample(&endpoint, &CompletionRequest { max_tokens: 1, ..ask(seed as u64) });
                drawn.push((s.tokens.unwrap()[0], s.log_probs.unwrap()[0]));
            }
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    // With the server's defaults (top-p 0.95, min-p 0.05), no token below 5% of the most likely one would be drawn.
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
        // The tolerance is six standard deviations, and the seeds are fixed.
        assert!(
            (count as f64 - expected).abs() < 6.0 * deviation,
            "token {token}: {count} drawn, {expected:.1} expected"
        );
    }
}

#[test]
fn a_wrong_configuration_fails_at_once() {
    let Some(server) = Server::start(&Options { context: 256, key: Some("a-secret"), ..Options::default() })
    else {
        return;
    };
    let key = || Some(ApiKey::new("a-secret", "the test").unwrap());
    let error = |settings: EndpointSettings, needed, vocabulary| {
        let begun = Instant::now();
        let error = Endpoint::connect(settings, &ask(0), needed, vocabulary).unwrap_err();
        assert!(error.is_final(), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60), "no retries of a permanent error: {error}");
        error.to_string()
    };
    let none = error(settings(&server.url), 100, VOCABULARY);
    assert!(none.contains("401") && none.contains("it wants a key"), "{none}");
    let wrong =
        EndpointSettings { key: Some(ApiKey::new("another", "the test").unwrap()), ..settings(&server.url) };
    let wrong = error(wrong, 100, VOCABULARY);
    assert!(wrong.contains("the key is not the right one") && !wrong.contains("another"), "{wrong}");
    let right = EndpointSettings { key: key(), ..settings(&server.url) };
    let model = error(EndpointSettings { model: Some("llama-70b".into()), ..right.clone() }, 100, VOCABULARY);
    assert!(model.contains("does not serve the model \"llama-70b\"; it serves \"sgs-base\""), "{model}");
    let context = error(right.clone(), 512, VOCABULARY);
    assert!(
        context.contains("a context of 256 tokens, and the run needs 512") && context.contains("-c"),
        "{context}"
    );
    let vocabulary = error(right.clone(), 100, 32_000);
    assert!(vocabulary.contains("it has 9362 tokens and the run's tokenizer 32000"), "{vocabulary}");
    let (endpoint, _) = Endpoint::connect(right, &ask(0), 256, VOCABULARY).unwrap();
    let long = CompletionRequest { tokens: PROMPT.repeat(40), ..ask(1) };
    let refused = endpoint.sample(&long, || false).unwrap_err();
    assert!(!refused.is_final() && refused.to_string().contains("context"), "{refused}");
    // Try a server of another kind, and no server.
    let port = free_port();
    let away = EndpointSettings {
        patience: Duration::from_secs(1),
        ..settings(&format!("http://127.0.0.1:{port}"))
    };
    let away = error(away, 100, VOCABULARY);
    // The random pause before the second try decides which of the two limits is reached first.
    assert!(away.contains("has not answered for") || away.contains("nothing listens at"), "{away}");
}

#[test]
fn a_restarted_server_loses_no_request() {
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
        assert!(before < 120, "the server was killed too late");
        std::thread::sleep(Duration::from_millis(500));
        let _back = Server::start(&options).unwrap();
        while done.load(Ordering::Relaxed) < 120 && begun.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 120);
}

#[test]
fn a_gateway_that_asks_for_a_delay_is_obeyed() {
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
    // The gateway accepts one request per half second, so seven requests were delayed.
    assert!(begun.elapsed() >= Duration::from_secs(3), "no request was delayed: {:?}", begun.elapsed());
    // Without retries, the error names the reason, and the endpoint stays usable.
    std::thread::sleep(Duration::from_millis(1000));
    let (hasty, _) = connect(EndpointSettings { tries: 1, ..settings(&gateway.url) }).unwrap();
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
