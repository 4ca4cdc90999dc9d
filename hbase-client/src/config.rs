//! How a client is set up.

use std::time::Duration;

use crate::error::Error;
use crate::names::Server;

/// All that a client has to be told: the servers; the rest has defaults.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// Masters or region servers, by the ports of their RPC; any that answers leads to the others.
    pub servers: Vec<Server>,
    /// As whom everything is done. HBase believes it, unless it uses Kerberos, which this client
    /// does not speak.
    pub user: String,
    pub tls: Option<Tls>,
    /// Until a connection is made, and until a server has told what it knows of the cluster.
    pub connect_timeout: Duration,
    /// Of one call to one server; then another way is tried.
    pub call_timeout: Duration,
    /// Of a whole operation with all its tries; of a scan, without any progress.
    pub operation_timeout: Duration,
    /// Sent to one server and not answered yet, whether or not anybody still waits for it.
    pub in_flight_bytes_max: usize,
    /// Of one call; servers may refuse more than 5,000.
    pub call_actions_max: usize,
    pub call_bytes_max: usize,
    /// Of one row that a scan puts together from parts, with what of its answers is in memory because of
    /// it: a longer one is [`Error::RowTooLong`].
    pub row_bytes_max: usize,
}

impl Config {
    /// # Errors
    /// Where a server is not written as `host:port`, or there is none.
    pub fn new<S: AsRef<str>>(servers: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let servers: Result<Vec<Server>, _> =
            servers.into_iter().map(|server| server.as_ref().parse()).collect();
        let servers = servers?;
        if servers.is_empty() {
            return Err(Error::input("no server is named: at least one host:port is needed"));
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
}

/// What a server's certificate is checked with.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Certificates in PEM that are believed besides the system's.
    pub authorities_pem: Vec<u8>,
    /// Who the client is, where servers want to know.
    pub identity: Option<Identity>,
}

/// A client's certificate.
#[derive(Clone)]
pub struct Identity {
    pub certificates_pem: Vec<u8>,
    /// In PKCS#8.
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
    fn servers_are_needed_and_read() {
        assert_eq!(Config::new(["a:1", "b:2"]).unwrap().servers.len(), 2);
        assert!(Config::new(["a"]).is_err());
        assert!(Config::new::<&str>([]).is_err());
    }
}
