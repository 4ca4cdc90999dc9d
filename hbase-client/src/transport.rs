//! How bytes get to a server and back: TCP, TLS, or whatever a [`Transport`] makes of it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::config::{Config, Tls};
use crate::error::Error;
use crate::names::Server;

/// Both directions of a connection.
pub struct Stream {
    pub read: Box<dyn AsyncRead + Send + Unpin>,
    pub write: Box<dyn AsyncWrite + Send + Unpin>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream")
    }
}

pub type Opening<'a> = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send + 'a>>;

/// Opens connections. The tests' server has one in memory; a tunnel would have one of its own.
pub trait Transport: fmt::Debug + Send + Sync {
    fn open<'a>(&'a self, server: &'a Server) -> Opening<'a>;
}

pub(crate) fn configured(config: &Config) -> Result<Box<dyn Transport>, Error> {
    Ok(match &config.tls {
        None => Box::new(Tcp),
        Some(tls) => Box::new(TlsTransport::new(tls)?),
    })
}

#[derive(Debug)]
struct Tcp;

async fn connect(server: &Server) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((&*server.host, server.port)).await?;
    // Each frame is written whole: waiting for more would only delay it.
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Transport for Tcp {
    fn open<'a>(&'a self, server: &'a Server) -> Opening<'a> {
        Box::pin(async move {
            let (read, write) = connect(server).await?.into_split();
            Ok(Stream { read: Box::new(read), write: Box::new(write) })
        })
    }
}

struct TlsTransport {
    connector: tokio_native_tls::TlsConnector,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsTransport")
    }
}

impl TlsTransport {
    fn new(tls: &Tls) -> Result<Self, Error> {
        let refused =
            |what: &str, error: native_tls::Error| Error::input(format!("{what}: {error}"));
        let mut builder = native_tls::TlsConnector::builder();
        if !tls.authorities_pem.is_empty() {
            let authorities = native_tls::Certificate::stack_from_pem(&tls.authorities_pem)
                .map_err(|error| refused("the authorities' certificates can not be read", error))?;
            if authorities.is_empty() {
                return Err(Error::input("the authorities' certificates: none is in it, in PEM"));
            }
            for authority in authorities {
                builder.add_root_certificate(authority);
            }
        }
        if let Some(identity) = &tls.identity {
            let pems = (&identity.certificates_pem, &identity.key_pem);
            let read = native_tls::Identity::from_pkcs8(pems.0, pems.1).map_err(|error| {
                refused("the client's certificate and key (in PKCS#8) can not be read", error)
            })?;
            builder.identity(read);
        }
        let connector = builder.build().map_err(|error| refused("TLS can not be set up", error))?;
        Ok(Self { connector: connector.into() })
    }
}

impl Transport for TlsTransport {
    fn open<'a>(&'a self, server: &'a Server) -> Opening<'a> {
        Box::pin(async move {
            let stream = connect(server).await?;
            let secured = self.connector.connect(&server.host, stream).await;
            let (read, write) = tokio::io::split(secured.map_err(explained)?);
            Ok(Stream { read: Box::new(read), write: Box::new(write) })
        })
    }
}

fn explained(error: native_tls::Error) -> io::Error {
    io::Error::other(format!(
        "no connection over TLS: {error}; is hbase.server.netty.tls.enabled set on this server, is its \
         certificate of this name and its authority known here, and does it want a certificate of the client?"
    ))
}
