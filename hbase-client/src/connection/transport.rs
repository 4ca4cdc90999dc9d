//! Connections to servers: TCP, TLS, or another [`Transport`].

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::config::{Config, Identity, Tls};
use crate::error::Error;
use crate::names::Server;

/// The two directions of a connection.
pub struct Stream {
    pub read: Box<dyn AsyncRead + Send + Unpin>,
    pub write: Box<dyn AsyncWrite + Send + Unpin>,
}

/// The future of [`Transport::open`].
pub type Opening<'a> = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send + 'a>>;

/// Opens connections. Tests implement it in memory; a tunnel could implement it too.
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
    // Frames are written whole, so Nagle's algorithm would only delay them.
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

#[derive(Debug)]
struct TlsTransport {
    connector: tokio_native_tls::TlsConnector,
}

impl TlsTransport {
    fn new(tls: &Tls) -> Result<Self, Error> {
        let input_error =
            |failure: &str, error: native_tls::Error| Error::input(format!("{failure}: {error}"));
        let mut builder = native_tls::TlsConnector::builder();
        if !tls.authorities_pem.is_empty() {
            let authorities = native_tls::Certificate::stack_from_pem(&tls.authorities_pem)
                .map_err(|error| input_error("cannot read the CA certificates", error))?;
            if authorities.is_empty() {
                return Err(Error::input("the CA certificates contain no certificate in PEM"));
            }
            for authority in authorities {
                builder.add_root_certificate(authority);
            }
        }
        if let Some(identity) = &tls.identity {
            let Identity { certificates_pem, key_pem } = identity;
            let read = native_tls::Identity::from_pkcs8(certificates_pem, key_pem);
            builder.identity(read.map_err(|error| {
                input_error("cannot read the client certificate and key (PKCS#8)", error)
            })?);
        }
        let connector = builder.build().map_err(|error| input_error("cannot set up TLS", error))?;
        Ok(Self { connector: connector.into() })
    }
}

impl Transport for TlsTransport {
    fn open<'a>(&'a self, server: &'a Server) -> Opening<'a> {
        Box::pin(async move {
            let stream = connect(server).await?;
            let secured = self.connector.connect(&server.host, stream).await;
            let (read, write) = tokio::io::split(secured.map_err(tls_error)?);
            Ok(Stream { read: Box::new(read), write: Box::new(write) })
        })
    }
}

fn tls_error(error: native_tls::Error) -> io::Error {
    io::Error::other(format!(
        "TLS connection failed: {error}; check that the server has hbase.server.netty.tls.enabled and a certificate \
         for this host name from a trusted authority, and whether it requires a client certificate"
    ))
}
