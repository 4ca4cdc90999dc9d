//! A browser's session: its token in a cookie that no script reads and no other site sends. Nothing
//! is kept of it here, so it ends with the browser, with the token, or by signing out.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

const COOKIE: &str = "adtrail_token";
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Cookies of one name that are looked at.
const COOKIES_MAX: usize = 16;

/// The one that the cookie has, the first where there are several.
pub(crate) fn token(headers: &HeaderMap) -> Option<&str> {
    tokens(headers).next()
}

/// Those of all cookies of the name: a browser sends one for each path and domain that it has been
/// told for, and an old one may come first.
pub(crate) fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';'));
    let tokens = pairs.filter_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='));
    tokens.take(COOKIES_MAX)
}

/// A cookie with the token, until the browser is closed. The token is one that was found right, so
/// it is of letters, digits and underscores.
pub(crate) fn begin(token: &str, headers: &HeaderMap) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("{COOKIE}={token}; {}", attributes(headers))).ok()
}

/// Takes the cookie away.
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

/// By which the client came to the proxy, if there is one: this service speaks plain HTTP.
pub(crate) fn scheme(headers: &HeaderMap) -> &'static str {
    let forwarded = text(headers, FORWARDED_PROTO).unwrap_or_default();
    let first = forwarded.split(',').next().unwrap_or_default();
    if first.trim().eq_ignore_ascii_case("https") { "https" } else { "http" }
}

/// Whether a page of this service sent the request. Browsers say so; where they are told apart only
/// by `Origin`, it has to name the host that is asked.
pub(crate) fn is_same_origin(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get(SEC_FETCH_SITE) {
        return site == "same-origin";
    }
    let origin = text(headers, header::ORIGIN).and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(_, host)| text(headers, header::HOST) == Some(host))
}

/// The address, from its path on, of the page of this service that the request was made from.
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
    fn by_https_it_stays_on_https() {
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
    fn only_a_page_of_ours_is_come_back_to() {
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
    fn only_a_page_of_ours_is_of_our_origin() {
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
