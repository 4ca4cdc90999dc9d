//! Checks the host name by which a client reaches a listener without authentication.
//!
//! DNS rebinding: a page of another site can make its own name resolve to this machine, and then read responses as if
//! they came from that site. The browser sends that name, so only expected names are answered.

use std::net::{IpAddr, Ipv4Addr};

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use tokio::net::TcpListener;

use super::audit::{AuditedRequest, NONE, Route};
use super::problem::Problem;
use super::refusal::Refusal;
use super::state::ExportState;

/// The names by which a listener may be reached.
#[derive(Debug, Clone)]
pub(crate) struct Hosts {
    /// `None` if every name is allowed.
    allowed: Option<Allowed>,
}

#[derive(Debug, Clone)]
struct Allowed {
    listener: IpAddr,
    names: Box<[Box<str>]>,
}

impl Hosts {
    /// Allows every name.
    pub fn any() -> Self {
        Self { allowed: None }
    }

    /// Allows loopback names, the address of the listener, and `names`.
    pub fn only(listener: IpAddr, names: &[Box<str>]) -> Self {
        Self { allowed: Some(Allowed { listener: listener.to_canonical(), names: names.into() }) }
    }

    /// Checks all names by which a request addresses this service: `:authority` or the host of the target, and `Host`.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(allowed) = &self.allowed else { return Ok(()) };
        let of_headers = headers.get_all(header::HOST).iter();
        let mut of_headers =
            of_headers.map(|value| Authority::try_from(value.as_bytes()).ok()).peekable();
        let of_uri = uri.authority();
        let is_named = of_uri.is_some() || of_headers.peek().is_some();
        let is_allowed =
            |authority: &Authority| is_host(authority) && allowed.has(authority.host());
        let is_allowed = of_uri.is_none_or(is_allowed)
            && of_headers.all(|host| host.is_some_and(|authority| is_allowed(&authority)));
        if is_named && is_allowed { Ok(()) } else { Err(Refusal::Host) }
    }
}

/// Returns the address that a listener is bound to.
pub(crate) fn address(listener: &TcpListener) -> IpAddr {
    listener.local_addr().map_or(Ipv4Addr::UNSPECIFIED.into(), |address| address.ip())
}

/// Checks that an authority is a host with or without a port, and has no user.
fn is_host(authority: &Authority) -> bool {
    let rest = authority.as_str().strip_prefix(authority.host());
    let is_port = |rest: &str| rest.strip_prefix(':').is_some_and(|it| it.parse::<u16>().is_ok());
    rest.is_some_and(|rest| rest.is_empty() || is_port(rest))
}

impl Allowed {
    fn has(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match bare.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(address) => {
                let is_name = |name: &str| name.parse() == Ok(address);
                address.is_loopback()
                    || address == self.listener
                    || self.names.iter().any(|name| is_name(name))
            }
            Err(_) => {
                let is_name = |name: &str| name.eq_ignore_ascii_case(bare);
                is_name("localhost") || self.names.iter().any(|name| is_name(name))
            }
        }
    }
}

/// Rejects a request with another host name, before anything else reads it. HTTP/2 clients may send `:authority`
/// instead of `Host`; it becomes `Host` for all that follows.
pub(crate) async fn pass(
    State((state, hosts)): State<(ExportState, Hosts)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    hosts.check(request.uri(), request.headers()).map_err(|refusal| {
        let route = Route::of(&request);
        state.refuse(refusal, &AuditedRequest { token: NONE, app: NONE, route: route.name() })
    })?;
    if !request.headers().contains_key(header::HOST) {
        let authority = request.uri().authority().map(|authority| authority.as_str());
        if let Some(Ok(host)) = authority.map(HeaderValue::try_from) {
            request.headers_mut().insert(header::HOST, host);
        }
    }
    Ok(next.run(request).await)
}

/// Like [`pass`], for the admin listener.
pub(crate) async fn pass_admin(
    State(hosts): State<Hosts>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    hosts.check(request.uri(), request.headers())?;
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks whether a request with this target and these `Host` headers is answered at 192.0.2.1.
    #[track_caller]
    fn check(target: &str, hosts: &[&str], expected: bool) {
        let names: [Box<str>; 2] = ["adtrail.example".into(), "2001:db8::2".into()];
        let allowed = Hosts::only("192.0.2.1".parse().unwrap(), &names);
        let host = |host: &&str| (header::HOST, HeaderValue::try_from(*host).unwrap());
        let headers: HeaderMap = hosts.iter().map(host).collect();
        let uri: Uri = target.parse().unwrap();
        assert_eq!(allowed.check(&uri, &headers).is_ok(), expected, "{target} {hosts:?}");
        assert!(Hosts::any().check(&uri, &headers).is_ok());
    }

    #[test]
    fn only_expected_names_are_allowed() {
        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]:8080",
            "[::ffff:127.0.0.1]",
            "192.0.2.1:80",
            "adtrail.example",
            "ADTRAIL.example:443",
            "[2001:db8::2]:80",
            "[2001:DB8:0::2]",
        ] {
            check("/", &[host], true);
            check(&format!("http://{host}/"), &[], true);
            check(&format!("http://{host}/"), &["evil.example"], false);
            check("http://evil.example/", &[host], false);
            check("/", &[host, "evil.example"], false);
            check("/", &["evil.example", host], false);
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "localhost:x",
            "evil@localhost",
            "evil-localhost",
            "localhost.",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "192.0.2.2",
            "[2001:db8::1]",
            "sub.adtrail.example",
            ":80",
            "@",
            "user@",
            "[",
            "[]",
            "",
            "a b",
        ] {
            check("/", &[host], false);
        }
        check("/", &[], false);
    }
}
