//! Settings of a client.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;
use crate::names::Server;

/// The settings of a client. Only the servers have no default.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// Masters or region servers with their RPC ports. The client finds the others through any that responds.
    pub servers: Vec<Server>,
    /// The user name for all operations. HBase trusts it unless it uses Kerberos, which this client does not support.
    pub user: String,
    pub tls: Option<Tls>,
    /// Timeout for opening a connection, and for each call to the cluster's registry.
    pub connect_timeout: Duration,
    /// Timeout of one call to one server, after which it is retried.
    pub call_timeout: Duration,
    /// Timeout of an operation with all its retries; for a scan, the maximum time without progress.
    pub operation_timeout: Duration,
    /// Maximum number of bytes in flight to one server, including abandoned calls.
    pub in_flight_bytes_max: usize,
    /// Maximum number of rows per call. Servers may reject more than 5,000.
    pub call_actions_max: usize,
    pub call_bytes_max: usize,
    /// Maximum memory for one row that a scan assembles from parts, including the buffers of the responses that contain
    /// them. A longer row fails the scan with [`Error::RowTooLong`].
    pub row_bytes_max: usize,
}

impl Config {
    /// Returns the default settings for these servers.
    ///
    /// # Errors
    /// Fails if a server is not of the form `host:port`, or no server is given.
    pub fn new<S: AsRef<str>>(servers: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let servers: Result<Vec<Server>, _> =
            servers.into_iter().map(|server| server.as_ref().parse()).collect();
        let servers = servers?;
        if servers.is_empty() {
            return Err(Error::input("no servers given: at least one host:port is required"));
        }
        Ok(Self {
            servers,
            user: std::env::var("USER").unwrap_or_else(|_| "hbase-client".to_owned()),
            tls: None,
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(60),
            in_flight_bytes_max: 16 << 20,
            call_actions_max: 1_000,
            call_bytes_max: 2 << 20,
            row_bytes_max: 256 << 20,
        })
    }

    /// Returns the deadline of an operation that starts now.
    pub(crate) fn operation_deadline(&self) -> Instant {
        Instant::now() + self.operation_timeout
    }

    /// Returns the deadline of a call that starts now, as part of an operation.
    pub(crate) fn call_deadline(&self, operation_deadline: Instant) -> Instant {
        operation_deadline.min(Instant::now() + self.call_timeout)
    }
}

/// TLS settings.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// CA certificates in PEM that are trusted in addition to the system's.
    pub authorities_pem: Vec<u8>,
    /// The client certificate, for servers that require one.
    pub identity: Option<Identity>,
}

/// A client certificate with its key.
#[derive(Clone)]
pub struct Identity {
    pub certificates_pem: Vec<u8>,
    /// The private key, as PKCS#8.
    pub key_pem: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_required_and_parsed() {
        assert_eq!(Config::new(["a:1", "b:2"]).unwrap().servers.len(), 2);
        assert!(Config::new(["a"]).is_err());
        assert!(Config::new::<&str>([]).is_err());
    }
}
