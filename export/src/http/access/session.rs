//! The cookie with the id of a browser's session, which scripts cannot read and other sites cannot send, and the
//! checks of where a browser's request comes from.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// The cookie over HTTPS. Browsers accept a name with this prefix only from this host over a secure connection, so no
/// other host of the domain and nobody on the network can plant one.
const SECURE_COOKIE: &str = "__Host-adtrail_session";
/// The cookie over plain HTTP, where browsers refuse the other one; some of them also on the local machine.
const PLAIN_COOKIE: &str = "adtrail_session";
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// At most this many cookies of the session are read.
const COOKIES_MAX: usize = 16;

/// Checks whether the request has a session's cookie, open or not.
pub(crate) fn has_cookie(headers: &HeaderMap) -> bool {
    ids(headers).next().is_some()
}

/// Returns the session ids of all cookies with our name. Over plain HTTP a browser sends one for each path and domain
/// for which it has one, and an old one may come first.
pub(crate) fn ids(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let (name, _) = cookie(headers);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';'));
    let ids = pairs.filter_map(move |pair| pair.trim().strip_prefix(name)?.strip_prefix('='));
    ids.take(COOKIES_MAX)
}

/// Returns the `Set-Cookie` value with the id of a session, until the browser is closed.
pub(crate) fn begin(id: &str, headers: &HeaderMap) -> Option<HeaderValue> {
    let (name, attributes) = cookie(headers);
    HeaderValue::try_from(format!("{name}={id}; {attributes}")).ok()
}

/// Returns the `Set-Cookie` value that ends the session.
pub(crate) fn end(headers: &HeaderMap) -> Option<HeaderValue> {
    let (name, attributes) = cookie(headers);
    HeaderValue::try_from(format!("{name}=; Max-Age=0; {attributes}")).ok()
}

/// Returns name and attributes of the cookie.
fn cookie(headers: &HeaderMap) -> (&'static str, &'static str) {
    if scheme(headers) == "https" {
        (SECURE_COOKIE, "Path=/; HttpOnly; SameSite=Strict; Secure")
    } else {
        (PLAIN_COOKIE, "Path=/; HttpOnly; SameSite=Strict")
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
/// its scheme must be the one with which the client reached this service, and its host must equal `Host`.
pub(crate) fn is_same_origin(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get(SEC_FETCH_SITE) {
        return site == "same-origin";
    }
    let origin = text(headers, header::ORIGIN).and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(origin_scheme, host)| {
        origin_scheme == scheme(headers) && text(headers, header::HOST) == Some(host)
    })
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
        let check = |proto: &str, cookies: &[&str], expected: Option<&str>| {
            let cookies = cookies.iter().map(|cookie| ("cookie", *cookie));
            let headers =
                headers(&cookies.chain([("x-forwarded-proto", proto)]).collect::<Vec<_>>());
            assert_eq!(ids(&headers).next(), expected, "{headers:?}");
            assert_eq!(has_cookie(&headers), expected.is_some());
        };
        check("http", &["adtrail_session=a-b_"], Some("a-b_"));
        check("http", &["a=b; adtrail_session=x;c=d"], Some("x"));
        check("http", &["a=b", "adtrail_session=x"], Some("x"));
        check("http", &["xadtrail_session=x", "adtrail_sessions=x", "adtrail_session"], None);
        check("http", &["a=adtrail_session=x"], None);
        check("http", &[], None);
        // Only the cookie that belongs to the scheme counts.
        let both = ["adtrail_session=x; __Host-adtrail_session=y"];
        check("http", &both, Some("x"));
        check("https", &both, Some("y"));
        check("https", &["adtrail_session=x"], None);
        check("http", &["__Host-adtrail_session=y"], None);
    }

    #[test]
    fn the_cookie_is_secure_only_over_https() {
        let check = |proto: &str, expected: bool| {
            let headers = headers(&[("x-forwarded-proto", proto)]);
            for cookie in [begin("t", &headers), end(&headers)] {
                let cookie = cookie.unwrap();
                let cookie = cookie.to_str().unwrap();
                assert!(cookie.contains("Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
                assert!(!cookie.contains("Domain"), "{cookie}");
                assert_eq!(cookie.starts_with("__Host-"), expected, "{proto}");
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
        check(&[host, ("origin", "https://a.example:8080")], false);
        let https = ("x-forwarded-proto", "https");
        check(&[host, https, ("origin", "https://a.example:8080")], true);
        check(&[host, https, ("origin", "http://a.example:8080")], false);
        check(&[host, ("origin", "http://b.example")], false);
        check(&[host, ("origin", "null")], false);
        check(&[host, ("sec-fetch-site", "same-origin")], true);
        for site in ["cross-site", "same-site", "none"] {
            check(&[host, ("sec-fetch-site", site), ("origin", "http://a.example:8080")], false);
        }
    }
}
