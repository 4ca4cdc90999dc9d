//! Settings: defaults, a file, environment variables and flags, merged into one validated [`Config`].
//!
//! Each source overrides the previous one. Every value keeps its location, and all errors are reported at once. A
//! derived deserializer would stop at the first error and lose the location, so `parse` builds a tree of values with
//! locations, and `sections` reads it table by table.
//!
//! `include` adds the entries of catalogue files. Nothing here opens a connection, a listener or a store. Start with
//! `settings`; `example.toml` shows every key.

mod changes;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod include;
mod macros;
pub mod nearest;
pub mod private_files;
mod settings;
mod toml_files;

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

pub use changes::{fixed_changes, fixed_store_changes};
/// Used by [`crash_point`].
#[cfg(feature = "crash-points")]
#[doc(hidden)]
pub use fail;
use include::Files;
pub use parse::error::{ConfigError, ConfigErrors, Location};
pub use parse::layers::PREFIX;
use parse::report::Diagnostics;
pub use parse::secret::{Secret, TOKEN_PREFIX};
use parse::section::Section;
use parse::tree::{self, Table};
use parse::{error, layers};
pub use sections::callbacks::{CallbackConditions, CallbackEndpoint, Callbacks};
pub use sections::collect::Collect;
pub use sections::credentials::CallbackCredentials;
pub use sections::formats::{Format, Formats};
pub use sections::hbase::HBase;
pub use sections::kafka::{Kafka, Topics};
pub use sections::librdkafka::ClientSetting;
pub use sections::links::{Link, LinkTarget};
pub use sections::registry::{Login, Registry};
pub use sections::signatures::{Signature, SignatureKey, SignatureMode, SignatureScheme};
pub use sections::store::{AppStore, Store};
pub use sections::tls::{Identity, Tls};
pub use sections::tokens::{
    SECRET_CHARS, Token, TokenApps, TokenDigest, parse_expiry, parse_token_id, token_id,
};
pub use settings::{Config, ExportClients, Ingest};
pub use toml_files::toml_files;

/// The target of the spans that are exported to a collector of traces. Logs do not show them. They have no device ids,
/// addresses or tokens.
pub const TRACE_TARGET: &str = "adtrail::trace";

/// The settings file if none is named.
pub const DEFAULT_FILE: &str = "adtrail.toml";

/// The sources of settings, besides the defaults.
#[derive(Debug, Default)]
pub struct Sources<'a> {
    /// `None` means [`DEFAULT_FILE`], which need not exist.
    pub file: Option<&'a Path>,
    /// Variables without [`PREFIX`] are ignored.
    pub environment: Vec<(String, String)>,
    /// Dotted keys with their values; the last value of a repeated key applies.
    pub flags: Vec<(String, String)>,
}

/// Loads the settings from all sources, and the catalogue files that they include. Depends on nothing else, so that it
/// can be called again to reload them.
///
/// # Errors
/// Returns all errors: those in files, then in the environment, then in flags. If a file cannot be read or is not TOML
/// or CSV, returns only errors about such files.
pub fn load(sources: &Sources<'_>) -> Result<Config, ConfigErrors> {
    load_with(sources, None)
}

/// Loads the settings as if a catalogue file had this text. The file need not exist, but must be included.
///
/// # Errors
/// The same as those of [`load`], and if the settings do not include the file.
pub fn load_with_file(
    sources: &Sources<'_>,
    path: &Path,
    text: &str,
) -> Result<Config, ConfigErrors> {
    load_with(sources, Some((path, text)))
}

fn load_with(sources: &Sources<'_>, draft: Option<(&Path, &str)>) -> Result<Config, ConfigErrors> {
    let path = sources.file.unwrap_or(Path::new(DEFAULT_FILE));
    let name = path.to_string_lossy();
    let mut table = match std::fs::read(path) {
        Ok(bytes) => tree::parse_file(&name, &bytes)?,
        Err(error) if sources.file.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            Table::new()
        }
        Err(source) => {
            return Err(ConfigError::Unreadable { path: name.into(), source }.into());
        }
    };
    layers::overlay(&mut table, &sources.environment, &sources.flags);
    let folder = path.parent().unwrap_or(Path::new(""));
    read(table, &name, Some(&Files { folder, draft })).0
}

/// Parses the text of a settings file, without environment, flags and catalogue files.
pub fn parse(text: &str) -> Result<Config, ConfigErrors> {
    read(tree::parse_file(DEFAULT_FILE, text.as_bytes())?, DEFAULT_FILE, None).0
}

/// Parses a duration such as `10m`.
///
/// # Errors
/// Returns what is expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    parse::duration::parse_ms(text).map(Duration::from_millis).map_err(Cow::into_owned)
}

fn read(
    table: Table,
    file: &str,
    files: Option<&Files<'_>>,
) -> (Result<Config, ConfigErrors>, Diagnostics) {
    let mut diagnostics = Diagnostics::default();
    let location = Location::File { path: file.into(), line: 1 };
    let mut include_errors = 0;
    let mut config = Section::root(table, location, &mut diagnostics).read(|root| {
        let catalogue = root.table("include", |table| include::read(table, files));
        include_errors = root.error_count();
        include::add(root, catalogue);
        settings::read(root)
    });
    diagnostics.report_unknown();
    if include_errors > 0 {
        // Others may follow from what is missing.
        diagnostics.errors.truncate(include_errors);
    }
    error::sort(&mut diagnostics.warnings);
    config.warnings =
        diagnostics.warnings.iter().map(|warning| warning.to_string().into()).collect();
    let errors = std::mem::take(&mut diagnostics.errors);
    (if errors.is_empty() { Ok(config) } else { Err(ConfigErrors::new(errors)) }, diagnostics)
}

mod parse;
mod sections;
#[cfg(test)]
mod tests;
