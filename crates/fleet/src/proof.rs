//! Proof of the token between both ends, for connections without TLS: neither says it, each shows that it has it.
//!
//! Whoever answers at the coordinator's address would learn a bearer token with the first request. So a client without
//! TLS signs what it asks (HMAC-SHA256 under the token, over the service's challenge, a nonce of its own, the call and the
//! body's SHA-256), and acts on no answer that is not signed over the same nonce. Who sits on the way can read and hold
//! back; it can neither ask nor answer, nor ask again what it has recorded: see [`crate::fresh`].
//!
//! An answer's head is signed with the length and the SHA-256 of its body, so that nothing is read of one by somebody
//! else, and of the service's no more than it has said.

use ring::{digest, hmac};

use crate::token::{Token, TokenError};

/// The header that carries an answer's signature: length of the body, SHA-256 of it, and the signature.
pub(crate) const ANSWER: &str = "sgs-proof";
/// The header of an answer with what the next requests are to be signed over.
pub(crate) const CHALLENGE: &str = "sgs-challenge";
/// Begins the `authorization` header of a signed request: challenge, nonce, SHA-256 of the body and signature follow, in hex.
const SCHEME: &str = "SGS-HMAC-SHA256 ";

const NONCE: usize = 16;
const SHA256: usize = 32;

/// What only one request is signed over, or what the service gives for its requests to be signed over.
pub(crate) type Nonce = [u8; NONCE];

/// What of a request is signed beside its body; absent headers are empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) range: &'a str,
    pub(crate) content_type: &'a str,
    pub(crate) content_encoding: &'a str,
}

/// What of an answer's head is signed beside what it says of the body; absent headers are empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply<'a> {
    pub(crate) status: u16,
    pub(crate) challenge: &'a str,
    pub(crate) content_type: &'a str,
    pub(crate) content_encoding: &'a str,
    pub(crate) content_range: &'a str,
}

/// The body of a proved answer, as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyProof {
    pub(crate) length: u64,
    sum: [u8; SHA256],
}

impl BodyProof {
    fn of(body: &[u8]) -> Self {
        Self { length: body.len() as u64, sum: sha256(body) }
    }

    /// Whether this is the body that was signed.
    pub(crate) fn is_of(&self, body: &[u8]) -> bool {
        *self == Self::of(body)
    }
}

/// A signed request: what its answer has to be signed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signed {
    /// What the service had given.
    pub(crate) challenge: Nonce,
    /// The client's own.
    pub(crate) nonce: Nonce,
    body: [u8; SHA256],
}

impl Signed {
    /// Signs a request; gives the `authorization` header with it.
    pub(crate) fn sign(
        token: &Token,
        challenge: Nonce,
        call: Call<'_>,
        body: &[u8],
    ) -> Result<(Self, String), TokenError> {
        let signed = Self { challenge, nonce: random()?, body: sha256(body) };
        let mac = hmac::sign(&key(token), &signed.request(call));
        let words = [&challenge[..], &signed.nonce, &signed.body, mac.as_ref()].map(hex);
        Ok((signed, format!("{SCHEME}{}", words.join(" "))))
    }

    /// The request of that `authorization` header, if whoever signed it has the token. Its body is still to be
    /// [compared](Self::has_body).
    pub(crate) fn admit(token: &Token, authorization: &[u8], call: Call<'_>) -> Option<Self> {
        let words = std::str::from_utf8(authorization).ok()?.strip_prefix(SCHEME)?;
        let mut words = words.split(' ');
        let (challenge, nonce) = (unhex(words.next()?)?, unhex(words.next()?)?);
        let signed = Self { challenge, nonce, body: unhex(words.next()?)? };
        let mac: [u8; SHA256] = unhex(words.next()?)?;
        let is_whole = words.next().is_none();
        let is_signed = hmac::verify(&key(token), &signed.request(call), &mac).is_ok();
        (is_whole && is_signed).then_some(signed)
    }

    /// Whether this is the body that was signed.
    pub(crate) fn has_body(&self, body: &[u8]) -> bool {
        self.body == sha256(body)
    }

    /// The signature of an answer to this request, for the header [`ANSWER`].
    pub(crate) fn sign_answer(&self, token: &Token, reply: Reply<'_>, body: &[u8]) -> String {
        let body = BodyProof::of(body);
        let mac = hmac::sign(&key(token), &self.answer(reply, body));
        format!("{} {} {}", body.length, hex(&body.sum), hex(mac.as_ref()))
    }

    /// What the body of this answer to this request must be, if whoever signed it has the token.
    pub(crate) fn answered_by(&self, token: &Token, reply: Reply<'_>, shown: &[u8]) -> Option<BodyProof> {
        let mut words = std::str::from_utf8(shown).ok()?.split(' ');
        let body = BodyProof { length: words.next()?.parse().ok()?, sum: unhex(words.next()?)? };
        let mac: [u8; SHA256] = unhex(words.next()?)?;
        let is_whole = words.next().is_none();
        let is_signed = hmac::verify(&key(token), &self.answer(reply, body), &mac).is_ok();
        (is_whole && is_signed).then_some(body)
    }

    fn request(&self, call: Call<'_>) -> Vec<u8> {
        let Call { method, path, range, content_type, content_encoding } = call;
        let words = [method, path, range, content_type, content_encoding].map(str::as_bytes);
        joined(&[&[&b"request"[..], &self.challenge, &self.nonce, &self.body], &words[..]].concat())
    }

    fn answer(&self, reply: Reply<'_>, body: BodyProof) -> Vec<u8> {
        let Reply { status, challenge, content_type, content_encoding, content_range } = reply;
        let (status, length) = (status.to_be_bytes(), body.length.to_be_bytes());
        let head = [challenge, content_type, content_encoding, content_range].map(str::as_bytes);
        joined(&[&[&b"answer"[..], &self.nonce, &status], &head[..], &[&length[..], &body.sum]].concat())
    }
}

/// Bytes that nobody can guess.
pub(crate) fn random() -> Result<Nonce, TokenError> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).map_err(|e| TokenError::NoRandomness(e.to_string()))?;
    Ok(nonce)
}

/// Parts behind their lengths: no two lists of parts are the same bytes.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut all = Vec::new();
    for part in parts {
        all.extend((part.len() as u64).to_be_bytes());
        all.extend_from_slice(part);
    }
    all
}

fn key(token: &Token) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, token.secret())
}

fn sha256(bytes: &[u8]) -> [u8; SHA256] {
    let mut sum = [0; SHA256];
    sum.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    sum
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let nibble = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(16 * nibble(pair[0])? + nibble(pair[1])?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text, "test").expect("fit")
    }

    const CALL: Call<'_> = Call {
        method: "POST",
        path: "/v1/lease",
        range: "",
        content_type: "application/json",
        content_encoding: "",
    };
    const REPLY: Reply<'_> = Reply {
        status: 200,
        challenge: "00",
        content_type: "application/json",
        content_encoding: "",
        content_range: "",
    };
    const CHALLENGE: Nonce = [7; NONCE];

    #[test]
    fn both_ends_are_known_by_the_token_and_nobody_says_it() {
        let (ours, other) = (token("0123456789abcdef"), token("0123456789abcdeF"));
        let (signed, header) = Signed::sign(&ours, CHALLENGE, CALL, b"body").expect("random");
        assert!(!header.contains("0123456789abcdef"));
        assert_eq!(Signed::admit(&ours, header.as_bytes(), CALL), Some(signed.clone()));
        assert_eq!(Signed::admit(&other, header.as_bytes(), CALL), None);
        assert!(signed.has_body(b"body") && !signed.has_body(b"bodY"));
        let proof = signed.sign_answer(&ours, REPLY, b"{}");
        let body = signed.answered_by(&ours, REPLY, proof.as_bytes()).expect("signed");
        assert!(body.length == 2 && body.is_of(b"{}") && !body.is_of(b"[]") && !body.is_of(b"{}{}"));
        let forged = signed.sign_answer(&other, REPLY, b"{}");
        assert_eq!(signed.answered_by(&ours, REPLY, forged.as_bytes()), None);
        // An answer to another request, however like this one.
        let (again, second) = Signed::sign(&ours, CHALLENGE, CALL, b"body").expect("random");
        assert_ne!(header, second);
        assert_eq!(again.answered_by(&ours, REPLY, proof.as_bytes()), None);
        // A request's own signature is none of its answer.
        let mac = header.rsplit(' ').next().unwrap_or_default();
        let echoed = format!("2 {} {mac}", hex(&sha256(b"{}")));
        assert_eq!(signed.answered_by(&ours, REPLY, echoed.as_bytes()), None);
    }

    #[test]
    fn nothing_that_is_signed_can_be_changed() {
        let token = token("0123456789abcdef");
        let (signed, header) = Signed::sign(&token, CHALLENGE, CALL, b"body").expect("random");
        let calls = [
            Call { method: "GET", ..CALL },
            Call { path: "/v1/results", ..CALL },
            Call { range: "bytes=0-1", ..CALL },
            Call { content_type: "", ..CALL },
            Call { content_encoding: "zstd", ..CALL },
        ];
        for call in calls {
            assert_eq!(Signed::admit(&token, header.as_bytes(), call), None, "{call:?}");
        }
        let changed = |text: &str, at: usize| {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            bytes
        };
        for at in SCHEME.len()..header.len() {
            assert_eq!(Signed::admit(&token, &changed(&header, at), CALL), None, "{at}");
        }
        for odd in ["", "SGS-HMAC-SHA256 ", "SGS-HMAC-SHA256 é é é é", &format!("{header} 00")] {
            assert_eq!(Signed::admit(&token, odd.as_bytes(), CALL), None, "{odd}");
        }
        let proof = signed.sign_answer(&token, REPLY, b"{}");
        let replies = [
            Reply { status: 404, ..REPLY },
            Reply { challenge: "01", ..REPLY },
            Reply { content_type: "", ..REPLY },
            Reply { content_encoding: "zstd", ..REPLY },
            Reply { content_range: "bytes 0-1/2", ..REPLY },
        ];
        for reply in replies {
            assert_eq!(signed.answered_by(&token, reply, proof.as_bytes()), None, "{reply:?}");
        }
        for at in 0..proof.len() {
            assert_eq!(signed.answered_by(&token, REPLY, &changed(&proof, at)), None, "{at}");
        }
        assert_eq!(signed.answered_by(&token, REPLY, b""), None);
    }
}
