//! The address of a person behind proxies.

use std::net::{IpAddr, SocketAddr};

use axum::http::HeaderMap;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Returns the last address that is not that of a trusted proxy. Each proxy appends the address that it sees, so that
/// everything before that one may be forged.
pub(crate) fn client_address(
    peer: IpAddr,
    headers: &HeaderMap,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> IpAddr {
    let mut client = peer;
    for value in headers.get_all(FORWARDED_FOR).iter().rev() {
        // Before what the proxies append, a client may send bytes that are not ASCII.
        for part in value.as_bytes().rsplit(|byte| *byte == b',') {
            if !is_trusted(client) {
                return client;
            }
            let text = std::str::from_utf8(part).ok();
            let Some(address) = text.and_then(|text| parse(text.trim())) else { return client };
            client = address;
        }
    }
    client
}

/// Parses an address with or without a port.
fn parse(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    /// Checks the client of a request by 10.0.0.1; all addresses of 10.0.0.0/8 are proxies.
    #[track_caller]
    fn check(peer: &str, forwarded: &[&str], expected: &str) {
        let name = HeaderName::from_static(FORWARDED_FOR);
        let header = |value: &&str| (name.clone(), HeaderValue::try_from(*value).unwrap());
        let headers: HeaderMap = forwarded.iter().map(header).collect();
        let is_trusted = |address: IpAddr| address.to_string().starts_with("10.");
        let client = client_address(peer.parse().unwrap(), &headers, is_trusted);
        assert_eq!(client.to_string(), expected, "{peer} {forwarded:?}");
    }

    #[test]
    fn only_trusted_proxies_name_a_client() {
        check("203.0.113.1", &["198.51.100.1"], "203.0.113.1");
        check("10.0.0.1", &[], "10.0.0.1");
        check("10.0.0.1", &["198.51.100.1"], "198.51.100.1");
        check("10.0.0.1", &["192.0.2.1, 198.51.100.1"], "198.51.100.1");
        check("10.0.0.1", &["198.51.100.1, 10.0.0.2"], "198.51.100.1");
        check("10.0.0.1", &["192.0.2.1", "198.51.100.1"], "198.51.100.1");
        check("10.0.0.1", &["198.51.100.1:443"], "198.51.100.1");
        check("10.0.0.1", &["[2001:db8::1]:443"], "2001:db8::1");
        check("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1");
        check("10.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1");
        check("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1");
        check("10.0.0.1", &["\u{e9}, 198.51.100.1"], "198.51.100.1");
        check("10.0.0.1", &["198.51.100.1, \u{e9}"], "10.0.0.1");
        check("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3");
    }
}
