//! Resolves names for the HTTP client, which connects to the addresses returned here and to no others.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::address::check_address;

/// Looks up the addresses of a name.
pub(crate) type Lookup = Arc<dyn Fn(String) -> LookedUp + Send + Sync>;
type LookedUp = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// A resolver that returns only addresses that have passed the check.
pub(crate) struct CheckedResolver {
    lookup: Lookup,
    allow_loopback: Arc<[Box<str>]>,
}

/// Why a name is not connected to.
#[derive(Debug, thiserror::Error)]
#[error("refused: the host has {0}")]
pub(crate) struct RefusedAddress(&'static str);

impl CheckedResolver {
    pub fn new(lookup: Lookup, allow_loopback: &[Box<str>]) -> Self {
        Self { lookup, allow_loopback: allow_loopback.into() }
    }
}

/// Returns the lookup of the system.
pub(crate) fn system_lookup() -> Lookup {
    Arc::new(|name| Box::pin(look_up(name)))
}

async fn look_up(name: String) -> io::Result<Vec<IpAddr>> {
    let found = tokio::net::lookup_host((name, 0)).await?;
    Ok(found.map(|address| address.ip()).collect())
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_ascii_lowercase();
        let allows_loopback = self.allow_loopback.iter().any(|allowed| **allowed == *name);
        Box::pin(resolve((self.lookup)(name), allows_loopback))
    }
}

async fn resolve(
    addresses: LookedUp,
    allows_loopback: bool,
) -> Result<Addrs, Box<dyn Error + Send + Sync>> {
    checked(addresses.await?, allows_loopback)
}

/// One refused address is enough to refuse a name: its owner wants a request to go there.
fn checked(
    addresses: Vec<IpAddr>,
    allows_loopback: bool,
) -> Result<Addrs, Box<dyn Error + Send + Sync>> {
    for address in &addresses {
        check_address(*address, allows_loopback).map_err(RefusedAddress)?;
    }
    // The client puts the port of the URL in place of 0.
    Ok(Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0))))
}

/// Finds the refusal among the causes of an error.
pub(crate) fn refusal<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e RefusedAddress> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref() {
            return Some(refused);
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(addresses: &[&str], allows_loopback: bool, expected: Option<&str>) {
        let parsed = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let outcome = checked(parsed, allows_loopback);
        let problem = outcome.err().map(|error| error.to_string());
        assert_eq!(problem.as_deref(), expected, "{addresses:?}");
    }

    #[test]
    fn one_refused_address_refuses_the_name() {
        check(&["1.1.1.1", "2606:4700::1111"], false, None);
        check(&[], false, None);
        let private = Some("refused: the host has a private address");
        check(&["10.0.0.1"], false, private);
        check(&["1.1.1.1", "10.0.0.1"], false, private);
        check(&["127.0.0.1", "10.0.0.1"], true, private);
        check(&["127.0.0.1"], true, None);
        check(&["127.0.0.1"], false, Some("refused: the host has a loopback address"));
    }
}
