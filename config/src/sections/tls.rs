//! Reads the files of a TLS client.

use std::path::PathBuf;

use crate::parse::section::Section;

/// Paths of PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Trusted authorities. For the registry they replace the system's authorities, for HBase they are added to them.
    pub ca: Option<PathBuf>,
    /// The client certificate, for servers that require one.
    pub identity: Option<Identity>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Reads the keys `ca`, `certificate` and `key`; a certificate without its key counts as absent.
pub(crate) fn read(section: &mut Section<'_>) -> Tls {
    let ca = section.path("ca");
    let identity = section.path("certificate").zip(section.path("key"));
    Tls { ca, identity: identity.map(|(certificate, key)| Identity { certificate, key }) }
}
