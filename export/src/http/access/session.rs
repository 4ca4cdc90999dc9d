//! A browser's session: its token in a cookie that scripts cannot read and other sites cannot send. The server keeps
//! no state of it; it ends with the browser session, with the token, or by signing out.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

const COOKIE: &str = "adtrail_token";
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// At most this many cookies named [`COOKIE`] are read.
const COOKIES_MAX: usize = 16;

/// Returns the token of the first cookie, which need not be valid.
pub(crate) fn token(headers: &HeaderMap) -> Option<&str> {
    tokens(headers).next()
}

/// Returns the tokens of all cookies named [`COOKIE`]. A browser sends one for each path and domain for which it has
/// one, and an old one may come first.
pub(crate) fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';'));
    let tokens = pairs.filter_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='));
    tokens.take(COOKIES_MAX)
}

/// Returns the `Set-Cookie` value that begins a session with the token. The token was validated, so it consists of
/// letters, digits and underscores.
pub(crate) fn begin(token: &str, headers: &HeaderMap) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("{COOKIE}={token}; {}", attributes(headers))).ok()
}

/// Returns the `Set-Cookie` value that ends the session.
pub(crate) fn end(headers: &HeaderMap) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("{COOKIE}=; Max-Age=0; {}", attributes(headers))).ok()
}

fn attributes(headers: &HeaderMap) -> &'static str {
    if scheme(headers) == "https" {
        "Path=/; HttpOnly; SameSite=Strict; Secure"
    } else {
        "Path=/; HttpOnly; SameSite=Strict"
    }
}

/// Returns the scheme with which the client reached the proxy, if there is a proxy; this service itself speaks plain
/// HTTP.
pub(crate) fn scheme(headers: &HeaderMap) -> &'static str {
    let forwarded = text(headers, FORWARDED_PROTO).unwrap_or_default();
    let first = forwarded.split(',').next().unwrap_or_default();
    if first.trim().eq_ignore_ascii_case("https") { "https" } else { "http" }
}

/// Checks whether a page of this service sent the request, by `Sec-Fetch-Site`. For browsers that only send `Origin`,
/// its host must equal `Host`.
pub(crate) fn is_same_origin(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get(SEC_FETCH_SITE) {
        return site == "same-origin";
    }
    let origin = text(headers, header::ORIGIN).and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(_, host)| text(headers, header::HOST) == Some(host))
}

/// Returns the referring page if it is one of this service: its address, starting with the path.
pub(crate) fn own_referer(headers: &HeaderMap) -> Option<&str> {
    let (_, rest) = text(headers, header::REFERER)?.split_once("://")?;
    rest.strip_prefix(text(headers, header::HOST)?).filter(|address| address.starts_with('/'))
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::try_from(*value).unwrap())
        };
        pairs.iter().map(header).collect()
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let check = |cookies: &[&str], expected: Option<&str>| {
            let pairs: Vec<_> = cookies.iter().map(|cookie| ("cookie", *cookie)).collect();
            assert_eq!(token(&headers(&pairs)), expected, "{cookies:?}");
        };
        check(&["adtrail_token=adt_a_b"], Some("adt_a_b"));
        check(&["a=b; adtrail_token=x;c=d"], Some("x"));
        check(&["a=b", "adtrail_token=x"], Some("x"));
        check(&["xadtrail_token=x", "adtrail_tokens=x", "adtrail_token"], None);
        check(&["a=adtrail_token=x"], None);
        check(&[], None);
    }

    #[test]
    fn the_cookie_is_secure_only_over_https() {
        let check = |proto: &str, expected: bool| {
            let headers = headers(&[("x-forwarded-proto", proto)]);
            for cookie in [begin("t", &headers), end(&headers)] {
                let cookie = cookie.unwrap();
                let cookie = cookie.to_str().unwrap();
                assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
                assert_eq!(cookie.ends_with("; Secure"), expected, "{proto}");
            }
        };
        check("https", true);
        check("HTTPS, http", true);
        check("http", false);
        check("http, https", false);
        check("", false);
    }

    #[test]
    fn only_our_own_pages_are_referers() {
        let check = |host: &str, referer: &str, expected: Option<&str>| {
            assert_eq!(own_referer(&headers(&[("host", host), ("referer", referer)])), expected);
        };
        check("a:80", "http://a:80/exports?app=x", Some("/exports?app=x"));
        check("a", "https://a/", Some("/"));
        check("a", "http://a", None);
        check("a", "http://a:80/", None);
        check("a", "http://a.example/", None);
        check("a", "http://evil.example/http://a/", None);
        check("a", "", None);
    }

    #[test]
    fn only_our_own_pages_have_the_same_origin() {
        let check = |pairs: &[(&'static str, &str)], expected: bool| {
            assert_eq!(is_same_origin(&headers(pairs)), expected, "{pairs:?}");
        };
        let host = ("host", "a.example:8080");
        check(&[host], false);
        check(&[host, ("origin", "http://a.example:8080")], true);
        check(&[host, ("origin", "https://a.example:8080")], true);
        check(&[host, ("origin", "http://b.example")], false);
        check(&[host, ("origin", "null")], false);
        check(&[host, ("sec-fetch-site", "same-origin")], true);
        for site in ["cross-site", "same-site", "none"] {
            check(&[host, ("sec-fetch-site", site), ("origin", "http://a.example:8080")], false);
        }
    }
}
