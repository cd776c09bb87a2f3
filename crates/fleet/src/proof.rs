//! Proof of the token between both ends, for connections without TLS: neither says it, each shows that it has it.
//!
//! Whoever answers at the coordinator's address would learn a bearer token with the first request. So a client without
//! TLS signs what it asks (HMAC-SHA256 under the token, over a nonce of its own, the call and the body's SHA-256), and
//! acts on no answer that is not signed over the same nonce. Who sits on the way can read, hold back and repeat; it can
//! neither ask nor answer. Calls may be repeated without harm.

use ring::{digest, hmac};

use crate::token::{Token, TokenError};

/// The header that carries an answer's signature.
pub(crate) const ANSWER: &str = "sgs-proof";
/// Begins the `authorization` header of a signed request: nonce, SHA-256 of the body and signature follow, in hex.
const SCHEME: &str = "SGS-HMAC-SHA256 ";

const NONCE: usize = 16;
const SHA256: usize = 32;

/// What of a request is signed beside its body; absent headers are empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) range: &'a str,
    pub(crate) content_type: &'a str,
    pub(crate) content_encoding: &'a str,
}

/// What of an answer is signed beside its body, which is signed as it is sent; absent headers are empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply<'a> {
    pub(crate) status: u16,
    pub(crate) content_type: &'a str,
    pub(crate) content_encoding: &'a str,
    pub(crate) content_range: &'a str,
    pub(crate) body: &'a [u8],
}

/// A signed request: what its answer has to be signed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signed {
    nonce: [u8; NONCE],
    body: [u8; SHA256],
}

impl Signed {
    /// Signs a request; gives the `authorization` header with it.
    pub(crate) fn sign(token: &Token, call: Call<'_>, body: &[u8]) -> Result<(Self, String), TokenError> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|e| TokenError::NoRandomness(e.to_string()))?;
        let signed = Self { nonce, body: sha256(body) };
        let mac = hmac::sign(&key(token), &signed.request(call));
        let header = format!("{SCHEME}{} {} {}", hex(&signed.nonce), hex(&signed.body), hex(mac.as_ref()));
        Ok((signed, header))
    }

    /// The request of that `authorization` header, if whoever signed it has the token. Its body is still to be
    /// [compared](Self::has_body).
    pub(crate) fn admit(token: &Token, authorization: &[u8], call: Call<'_>) -> Option<Self> {
        let words = std::str::from_utf8(authorization).ok()?.strip_prefix(SCHEME)?;
        let mut words = words.split(' ');
        let signed = Self { nonce: unhex(words.next()?)?, body: unhex(words.next()?)? };
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
    pub(crate) fn sign_answer(&self, token: &Token, reply: Reply<'_>) -> String {
        hex(hmac::sign(&key(token), &self.answer(reply)).as_ref())
    }

    /// Whether whoever signed this answer to this request has the token.
    pub(crate) fn is_answered_by(&self, token: &Token, reply: Reply<'_>, shown: &[u8]) -> bool {
        let shown = std::str::from_utf8(shown).ok().and_then(unhex::<SHA256>);
        shown.is_some_and(|mac| hmac::verify(&key(token), &self.answer(reply), &mac).is_ok())
    }

    fn request(&self, call: Call<'_>) -> Vec<u8> {
        let Call { method, path, range, content_type, content_encoding } = call;
        let words = [method, path, range, content_type, content_encoding].map(str::as_bytes);
        joined(&[&[&b"request"[..], &self.nonce, &self.body], &words[..]].concat())
    }

    fn answer(&self, reply: Reply<'_>) -> Vec<u8> {
        let Reply { status, content_type, content_encoding, content_range, body } = reply;
        let status = status.to_be_bytes();
        let head = [content_type, content_encoding, content_range].map(str::as_bytes);
        joined(&[&[&b"answer"[..], &self.nonce, &status], &head[..], &[&sha256(body)[..]]].concat())
    }
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
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
        content_type: "application/json",
        content_encoding: "",
        content_range: "",
        body: b"{}",
    };

    #[test]
    fn both_ends_are_known_by_the_token_and_nobody_says_it() {
        let (ours, other) = (token("0123456789abcdef"), token("0123456789abcdeF"));
        let (signed, header) = Signed::sign(&ours, CALL, b"body").expect("random");
        assert!(!header.contains("0123456789abcdef"));
        assert_eq!(Signed::admit(&ours, header.as_bytes(), CALL), Some(signed.clone()));
        assert_eq!(Signed::admit(&other, header.as_bytes(), CALL), None);
        assert!(signed.has_body(b"body") && !signed.has_body(b"bodY"));
        let proof = signed.sign_answer(&ours, REPLY);
        assert!(signed.is_answered_by(&ours, REPLY, proof.as_bytes()));
        let forged = signed.sign_answer(&other, REPLY);
        assert!(!signed.is_answered_by(&ours, REPLY, forged.as_bytes()));
        // An answer to another request, however like this one.
        let (again, second) = Signed::sign(&ours, CALL, b"body").expect("random");
        assert_ne!(header, second);
        assert!(!again.is_answered_by(&ours, REPLY, proof.as_bytes()));
        // A request's own signature is none of its answer.
        let mac = header.rsplit(' ').next().unwrap_or_default();
        assert!(!signed.is_answered_by(&ours, REPLY, mac.as_bytes()));
    }

    #[test]
    fn nothing_that_is_signed_can_be_changed() {
        let token = token("0123456789abcdef");
        let (signed, header) = Signed::sign(&token, CALL, b"body").expect("random");
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
        for at in SCHEME.len()..header.len() {
            let mut bytes = header.clone().into_bytes();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(Signed::admit(&token, &bytes, CALL), None, "{at}");
        }
        for odd in ["", "SGS-HMAC-SHA256 ", "SGS-HMAC-SHA256 é é é", &format!("{header} 00")] {
            assert_eq!(Signed::admit(&token, odd.as_bytes(), CALL), None, "{odd}");
        }
        let proof = signed.sign_answer(&token, REPLY);
        let replies = [
            Reply { status: 404, ..REPLY },
            Reply { content_type: "", ..REPLY },
            Reply { content_encoding: "zstd", ..REPLY },
            Reply { content_range: "bytes 0-1/2", ..REPLY },
            Reply { body: b"[]", ..REPLY },
        ];
        for reply in replies {
            assert!(!signed.is_answered_by(&token, reply, proof.as_bytes()), "{reply:?}");
        }
        assert!(!signed.is_answered_by(&token, REPLY, b""));
    }
}
