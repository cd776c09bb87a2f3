//! HMAC signatures of requests and replies, for connections without TLS.
//!
//! Both ends show that they know the token without sending it: an impostor at the coordinator's address would learn a
//! bearer token with the first request. The client signs each request with HMAC-SHA256 under the token, over the service's
//! challenge, a nonce, the head of the request and the SHA-256 of its body. It accepts only replies that are signed over
//! the same nonce. An attacker on the network can read and block messages, but cannot forge or replay them (see
//! [`crate::replay_guard`]).
//!
//! The signed head of a reply includes the length and the SHA-256 of the body. The client checks the head first, and never
//! reads more bytes than announced.

use ring::{digest, hmac};

use crate::token::{AuthToken, TokenError};

/// Reply header with the signature: length of the body, its SHA-256, and the HMAC.
pub(crate) const SIGNATURE: &str = "sgs-proof";
/// Reply header with the challenge for the next requests.
pub(crate) const CHALLENGE: &str = "sgs-challenge";
/// Scheme of the `authorization` header. Challenge, nonce, SHA-256 of the body and HMAC follow in hexadecimal.
const SCHEME: &str = "SGS-HMAC-SHA256 ";

const NONCE: usize = 16;
const SHA256: usize = 32;

/// A nonce of the client or a challenge of the service.
pub(crate) type Nonce = [u8; NONCE];

/// The signed parts of a request, except its body. Absent headers are empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) range: &'a str,
    pub(crate) content_type: &'a str,
    pub(crate) content_encoding: &'a str,
}

/// The signed parts of a reply, except its body. Absent headers are empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyHead<'a> {
    pub(crate) status: u16,
    pub(crate) challenge: &'a str,
    pub(crate) content_type: &'a str,
    pub(crate) content_encoding: &'a str,
    pub(crate) content_range: &'a str,
}

/// Length and SHA-256 of the body of an authenticated reply, as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyDigest {
    pub(crate) length: u64,
    sum: [u8; SHA256],
}

impl BodyDigest {
    fn of(body: &[u8]) -> Self {
        Self { length: body.len() as u64, sum: sha256(body) }
    }

    /// Returns true if this is the signed body.
    pub(crate) fn matches(&self, body: &[u8]) -> bool {
        *self == Self::of(body)
    }
}

/// A signed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignedRequest {
    /// The challenge of the service.
    pub(crate) challenge: Nonce,
    /// The nonce of the client.
    pub(crate) nonce: Nonce,
    body: [u8; SHA256],
}

impl SignedRequest {
    /// Signs a request. Also returns the value of the `authorization` header.
    ///
    /// # Errors
    /// Returns an error if the system has no random bytes.
    pub(crate) fn sign(
        token: &AuthToken,
        challenge: Nonce,
        call: RequestHead<'_>,
        body: &[u8],
    ) -> Result<(Self, String), TokenError> {
        let signed = Self { challenge, nonce: random()?, body: sha256(body) };
        let mac = hmac::sign(&key(token), &signed.request_bytes(call));
        let words = [&challenge[..], &signed.nonce, &signed.body, mac.as_ref()].map(hex);
        Ok((signed, format!("{SCHEME}{}", words.join(" "))))
    }

    /// Verifies an `authorization` header. Returns `None` if the signer does not have the token. The caller must check the
    /// body with [`Self::has_body`].
    pub(crate) fn verify(token: &AuthToken, authorization: &[u8], call: RequestHead<'_>) -> Option<Self> {
        let words = std::str::from_utf8(authorization).ok()?.strip_prefix(SCHEME)?;
        let mut words = words.split(' ');
        let (challenge, nonce) = (unhex(words.next()?)?, unhex(words.next()?)?);
        let signed = Self { challenge, nonce, body: unhex(words.next()?)? };
        let mac: [u8; SHA256] = unhex(words.next()?)?;
        let is_whole = words.next().is_none();
        let is_signed = hmac::verify(&key(token), &signed.request_bytes(call), &mac).is_ok();
        (is_whole && is_signed).then_some(signed)
    }

    /// Returns true if this is the signed body.
    pub(crate) fn has_body(&self, body: &[u8]) -> bool {
        self.body == sha256(body)
    }

    /// Signs a reply to this request. Returns the value of the header [`SIGNATURE`].
    pub(crate) fn sign_reply(&self, token: &AuthToken, reply: ReplyHead<'_>, body: &[u8]) -> String {
        let body = BodyDigest::of(body);
        let mac = hmac::sign(&key(token), &self.reply_bytes(reply, body));
        format!("{} {} {}", body.length, hex(&body.sum), hex(mac.as_ref()))
    }

    /// Verifies the signature of a reply to this request. Returns the digest that its body must match, or `None` if the
    /// signer does not have the token.
    pub(crate) fn verify_reply(
        &self,
        token: &AuthToken,
        reply: ReplyHead<'_>,
        shown: &[u8],
    ) -> Option<BodyDigest> {
        let mut words = std::str::from_utf8(shown).ok()?.split(' ');
        let body = BodyDigest { length: words.next()?.parse().ok()?, sum: unhex(words.next()?)? };
        let mac: [u8; SHA256] = unhex(words.next()?)?;
        let is_whole = words.next().is_none();
        let is_signed = hmac::verify(&key(token), &self.reply_bytes(reply, body), &mac).is_ok();
        (is_whole && is_signed).then_some(body)
    }

    fn request_bytes(&self, call: RequestHead<'_>) -> Vec<u8> {
        let RequestHead { method, path, range, content_type, content_encoding } = call;
        let words = [method, path, range, content_type, content_encoding].map(str::as_bytes);
        joined(&[&[&b"request"[..], &self.challenge, &self.nonce, &self.body], &words[..]].concat())
    }

    fn reply_bytes(&self, reply: ReplyHead<'_>, body: BodyDigest) -> Vec<u8> {
        let ReplyHead { status, challenge, content_type, content_encoding, content_range } = reply;
        let (status, length) = (status.to_be_bytes(), body.length.to_be_bytes());
        let head = [challenge, content_type, content_encoding, content_range].map(str::as_bytes);
        joined(&[&[&b"answer"[..], &self.nonce, &status], &head[..], &[&length[..], &body.sum]].concat())
    }
}

/// Returns unpredictable bytes.
pub(crate) fn random() -> Result<Nonce, TokenError> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).map_err(|e| TokenError::NoRandomness(e.to_string()))?;
    Ok(nonce)
}

/// Concatenates parts, each after its length, so that different lists of parts never give the same bytes.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut all = Vec::new();
    for part in parts {
        all.extend((part.len() as u64).to_be_bytes());
        all.extend_from_slice(part);
    }
    all
}

fn key(token: &AuthToken) -> hmac::Key {
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

    fn token(text: &str) -> AuthToken {
        AuthToken::new(text, "test").expect("fit")
    }

    const CALL: RequestHead<'_> = RequestHead {
        method: "POST",
        path: "/v1/lease",
        range: "",
        content_type: "application/json",
        content_encoding: "",
    };
    const REPLY: ReplyHead<'_> = ReplyHead {
        status: 200,
        challenge: "00",
        content_type: "application/json",
        content_encoding: "",
        content_range: "",
    };
    const CHALLENGE: Nonce = [7; NONCE];

    #[test]
    fn both_ends_authenticate_without_sending_the_token() {
        let (ours, other) = (token("0123456789abcdef"), token("0123456789abcdeF"));
        let (signed, header) = SignedRequest::sign(&ours, CHALLENGE, CALL, b"body").expect("random");
        assert!(!header.contains("0123456789abcdef"));
        assert_eq!(SignedRequest::verify(&ours, header.as_bytes(), CALL), Some(signed.clone()));
        assert_eq!(SignedRequest::verify(&other, header.as_bytes(), CALL), None);
        assert!(signed.has_body(b"body") && !signed.has_body(b"bodY"));
        let signature = signed.sign_reply(&ours, REPLY, b"{}");
        let body = signed.verify_reply(&ours, REPLY, signature.as_bytes()).expect("signed");
        assert!(body.length == 2 && body.matches(b"{}") && !body.matches(b"[]") && !body.matches(b"{}{}"));
        let forged = signed.sign_reply(&other, REPLY, b"{}");
        assert_eq!(signed.verify_reply(&ours, REPLY, forged.as_bytes()), None);
        // A reply to another request with the same content.
        let (again, second) = SignedRequest::sign(&ours, CHALLENGE, CALL, b"body").expect("random");
        assert_ne!(header, second);
        assert_eq!(again.verify_reply(&ours, REPLY, signature.as_bytes()), None);
        // The signature of the request, echoed as that of the reply.
        let mac = header.rsplit(' ').next().unwrap_or_default();
        let echoed = format!("2 {} {mac}", hex(&sha256(b"{}")));
        assert_eq!(signed.verify_reply(&ours, REPLY, echoed.as_bytes()), None);
    }

    #[test]
    fn any_change_of_a_signed_part_is_detected() {
        let token = token("0123456789abcdef");
        let (signed, header) = SignedRequest::sign(&token, CHALLENGE, CALL, b"body").expect("random");
        let calls = [
            RequestHead { method: "GET", ..CALL },
            RequestHead { path: "/v1/results", ..CALL },
            RequestHead { range: "bytes=0-1", ..CALL },
            RequestHead { content_type: "", ..CALL },
            RequestHead { content_encoding: "zstd", ..CALL },
        ];
        for call in calls {
            assert_eq!(SignedRequest::verify(&token, header.as_bytes(), call), None, "{call:?}");
        }
        let changed = |text: &str, at: usize| {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            bytes
        };
        for at in SCHEME.len()..header.len() {
            assert_eq!(SignedRequest::verify(&token, &changed(&header, at), CALL), None, "{at}");
        }
        for odd in ["", "SGS-HMAC-SHA256 ", "SGS-HMAC-SHA256 é é é é", &format!("{header} 00")] {
            assert_eq!(SignedRequest::verify(&token, odd.as_bytes(), CALL), None, "{odd}");
        }
        let signature = signed.sign_reply(&token, REPLY, b"{}");
        let replies = [
            ReplyHead { status: 404, ..REPLY },
            ReplyHead { challenge: "01", ..REPLY },
            ReplyHead { content_type: "", ..REPLY },
            ReplyHead { content_encoding: "zstd", ..REPLY },
            ReplyHead { content_range: "bytes 0-1/2", ..REPLY },
        ];
        for reply in replies {
            assert_eq!(signed.verify_reply(&token, reply, signature.as_bytes()), None, "{reply:?}");
        }
        for at in 0..signature.len() {
            assert_eq!(signed.verify_reply(&token, REPLY, &changed(&signature, at)), None, "{at}");
        }
        assert_eq!(signed.verify_reply(&token, REPLY, b""), None);
    }
}
