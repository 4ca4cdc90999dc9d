//! Parses addresses of listeners, brokers and networks.

use std::net::{IpAddr, SocketAddr};

use attribution::rules::policy::IpRange;

use super::error::Problem;

/// Parses an IP address and a port to listen on.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, Problem> {
    text.parse()
        .map_err(|_| r#"expected an IP address and a port, such as "127.0.0.1:8080""#.into())
}

/// Parses a host name or an IP address, without a port, into the form in which it is compared.
pub(crate) fn parse_host(text: &str) -> Result<Box<str>, Problem> {
    const NAME_MAX: usize = 253;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(address.to_canonical().to_string().into());
    }
    let is_label = |label: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.bytes().all(is_known)
    };
    if text.len() <= NAME_MAX && text.split('.').all(is_label) {
        return Ok(text.to_ascii_lowercase().into());
    }
    Err(r#"expected a host name or an IP address without scheme, port or path, such as "adtrail.example.com""#.into())
}

/// Checks a comma-separated list of brokers in librdkafka's syntax: `host`, `host:port` or `protocol://host:port`.
pub(crate) fn parse_brokers(text: &str) -> Result<String, Problem> {
    if text.split(',').all(|broker| is_broker(broker.trim())) {
        Ok(text.into())
    } else {
        Err(r#"expected comma-separated brokers, such as "kafka-1:9092,kafka-2:9092""#.into())
    }
}

fn is_broker(broker: &str) -> bool {
    let address = broker.split_once("://").map_or(broker, |(_, address)| address);
    // Colons within brackets belong to an IPv6 address.
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (address, None),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    !host.is_empty() && !host.contains(char::is_whitespace) && port.is_none_or(is_port)
}

/// Parses a network such as `10.0.0.0/8`, or one address.
pub(crate) fn parse_range(text: &str) -> Result<IpRange, Problem> {
    range(text).ok_or(r#"expected an IP address or a CIDR range, such as "203.0.113.0/24""#.into())
}

fn range(text: &str) -> Option<IpRange> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let network: IpAddr = address.parse().ok()?;
    let bits_max = if network.is_ipv4() { 32 } else { 128 };
    let prefix_bits = match bits {
        Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().ok()?,
        Some(_) => return None,
        None => bits_max,
    };
    (prefix_bits <= bits_max).then(|| canonical(network, prefix_bits))
}

/// Normalises a network: IPv4-mapped IPv6 becomes IPv4, as for addresses of events, and host bits become zero.
fn canonical(network: IpAddr, prefix_bits: u8) -> IpRange {
    const MAPPED_BITS: u8 = 96;
    let (network, prefix_bits) = match network.to_canonical() {
        IpAddr::V4(v4) if network.is_ipv6() && prefix_bits >= MAPPED_BITS => {
            (IpAddr::V4(v4), prefix_bits - MAPPED_BITS)
        }
        _ => (network, prefix_bits),
    };
    let network = match network {
        IpAddr::V4(v4) => {
            let host_bits = 32 - u32::from(prefix_bits);
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let host_bits = 128 - u32::from(prefix_bits);
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    };
    IpRange { network, prefix_bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_range(text: &str, expected: Option<(&str, u8)>) {
        let expected = expected.map(|(network, prefix_bits)| IpRange {
            network: network.parse().unwrap(),
            prefix_bits,
        });
        assert_eq!(range(text), expected);
    }

    #[track_caller]
    fn check_brokers(text: &str, expected: bool) {
        assert_eq!(parse_brokers(text).is_ok(), expected, "{text}");
    }

    #[test]
    fn ranges_are_normalised_or_rejected() {
        check_range("10.0.0.0/8", Some(("10.0.0.0", 8)));
        check_range("203.0.113.7", Some(("203.0.113.7", 32)));
        check_range("203.0.113.77/24", Some(("203.0.113.0", 24)));
        check_range("203.0.113.77/0", Some(("0.0.0.0", 0)));
        check_range("::ffff:203.0.113.7", Some(("203.0.113.7", 32)));
        check_range("::ffff:203.0.113.77/120", Some(("203.0.113.0", 24)));
        check_range("2001:db8::1/32", Some(("2001:db8::", 32)));
        check_range("::1/0", Some(("::", 0)));
        check_range("0.0.0.0/0", Some(("0.0.0.0", 0)));
        check_range("2001:db8::/32", Some(("2001:db8::", 32)));
        check_range("::1", Some(("::1", 128)));
        check_range("10.0.0.0/33", None);
        check_range("::1/129", None);
        check_range("10.0.0.0/", None);
        check_range("10.0.0.0/+8", None);
        check_range("10.0.0.0/-8", None);
        check_range("10.0.0/8", None);
        check_range("10.0.0.256", None);
        check_range("example.com", None);
        check_range("", None);
    }

    #[track_caller]
    fn check_host(text: &str, expected: Option<&str>) {
        assert_eq!(parse_host(text).ok().as_deref(), expected, "{text}");
    }

    #[test]
    fn hosts_are_normalised_or_rejected() {
        check_host("adtrail", Some("adtrail"));
        check_host("AdTrail.Example.com", Some("adtrail.example.com"));
        check_host("my_host-1", Some("my_host-1"));
        check_host("192.0.2.1", Some("192.0.2.1"));
        check_host("2001:DB8:0::1", Some("2001:db8::1"));
        check_host("[2001:db8::1]", Some("2001:db8::1"));
        check_host("::ffff:192.0.2.1", Some("192.0.2.1"));
        check_host("", None);
        check_host("*", None);
        check_host("a..b", None);
        check_host("a.", None);
        check_host("a:80", None);
        check_host("[2001:db8::1]:80", None);
        check_host("http://a", None);
        check_host("a/b", None);
        check_host("a b", None);
        check_host("b\u{fc}ro", None);
        check_host(&"a".repeat(253), Some(&*"a".repeat(253)));
        check_host(&"a".repeat(254), None);
    }

    #[test]
    fn broker_lists_are_checked() {
        check_brokers("127.0.0.1:9092", true);
        check_brokers("a:1,b:2", true);
        check_brokers("a:1, b:2", true);
        check_brokers("kafka", true);
        check_brokers("SASL_SSL://kafka:9093", true);
        check_brokers("[::1]:9092,[::1]", true);
        check_brokers("", false);
        check_brokers(" ", false);
        check_brokers("a:1,", false);
        check_brokers("a:1 b:2", false);
        check_brokers("a:", false);
        check_brokers("a:0", false);
        check_brokers("a:70000", false);
        check_brokers(":9092", false);
    }
}
