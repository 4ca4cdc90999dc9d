//! TLS of the client: the trusted CAs and the client certificate, from the files in the settings.

use std::path::Path;

use reqwest::{Certificate, ClientBuilder, Identity};

use crate::kafka::error::IngestError;

pub fn apply(
    mut builder: ClientBuilder,
    settings: &config::Tls,
) -> Result<ClientBuilder, IngestError> {
    if let Some(path) = &settings.ca {
        let certificates = Certificate::from_pem_bundle(&read("ca", path)?);
        let certificates = certificates.ok().filter(|found| !found.is_empty());
        let certificates = certificates.ok_or_else(|| {
            file_error("ca", path, "expected certificates in PEM (BEGIN CERTIFICATE)")
        })?;
        builder = builder.tls_certs_only(certificates);
    }
    if let Some(config::Identity { certificate, key }) = &settings.identity {
        let (certificate_pem, key_pem) = (read("certificate", certificate)?, read("key", key)?);
        let parsed = Identity::from_pkcs8_pem(&certificate_pem, &key_pem).map_err(|_| {
            let expected = "expected a key in PEM, PKCS #8, not encrypted (first line BEGIN \
                            PRIVATE KEY), and in registry.certificate its certificate in PEM";
            file_error("key", key, expected)
        })?;
        builder = builder.identity(parsed);
    }
    Ok(builder)
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, IngestError> {
    std::fs::read(path)
        .map_err(|error| file_error(setting, path, &format!("the file cannot be read, {error}")))
}

fn file_error(setting: &'static str, path: &Path, problem: &str) -> IngestError {
    IngestError::RegistryFile { setting, path: path.into(), problem: problem.into() }
}
