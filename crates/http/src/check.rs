//! Rejects requests that web pages of other sites cause a browser to send.

use hyper::body::Body;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use hyper::{Method, Request, StatusCode};
use std::net::IpAddr;

/// Checks that a request does not come from a web page of another site. Every server of this workspace calls it first.
///
/// - The host must be a loopback name unless requests carry a secret. Otherwise a page could make its own name point to
///   127.0.0.1 (DNS rebinding).
/// - The origin, which browsers send with every foreign request that can change state, must be the host.
/// - A body must have a content type that browsers do not send to other origins without permission.
///
/// # Errors
/// Returns the status and the reason of a rejection.
pub fn check_request<B: Body>(
    request: &Request<B>,
    has_secret: bool,
) -> Result<(), (StatusCode, &'static str)> {
    // A value that is not text is present, but equals nothing.
    let header = |name: HeaderName| request.headers().get(name).map(|v| v.to_str().unwrap_or_default());
    if [HOST, ORIGIN, CONTENT_TYPE].iter().any(|name| request.headers().get_all(name).iter().count() > 1) {
        return Err((StatusCode::BAD_REQUEST, "the host, the origin or the content type is given twice"));
    }
    let host = header(HOST).unwrap_or_default();
    if !has_secret && !is_loopback(host) {
        let why = "wrong host: this server answers only to localhost and loopback addresses";
        return Err((StatusCode::FORBIDDEN, why));
    }
    let is_own = |origin: &str| origin.split_once("://").is_some_and(|(_, at)| at.eq_ignore_ascii_case(host));
    if !header(ORIGIN).is_none_or(is_own) {
        return Err((StatusCode::FORBIDDEN, "wrong origin: requests of other web sites are rejected"));
    }
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let is_typed = header(CONTENT_TYPE).map_or_else(|| request.body().is_end_stream(), is_api_type);
    if !is_read && !is_typed {
        let why = "wrong content type: send application/json, or the type of this server's protocol";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    Ok(())
}

/// Returns whether a host, with or without a port, is a name of this machine that no other machine can have.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns whether browsers ask for permission before they send this content type to another origin.
fn is_api_type(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind.starts_with("application/") && kind != "application/x-www-form-urlencoded"
}
