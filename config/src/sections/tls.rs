//! The files of a TLS client.

use std::path::PathBuf;

use crate::parse::section::Section;

/// PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Authorities to trust: of a registry in place of the system's, of HBase beside them.
    pub ca: Option<PathBuf>,
    /// For servers that ask for a certificate.
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
