//! All dialects: the built-in ones, and those of the user's directory.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use config::nearest::nearest;
use config::{Config, toml_files};
use include_dir::{Dir, include_dir};

use super::Dialect;
use super::parse::parse;
use crate::CollectError;

static BUILT_IN: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/dialects");

/// The dialect of a channel that names none and has no other name in common with one.
const GENERIC: &str = "generic";

/// The dialects by name.
pub struct Dialects(BTreeMap<Box<str>, Arc<Dialect>>);

impl Dialects {
    /// Loads the built-in dialects, and those in `folder`, which replace built-in ones of the same name.
    ///
    /// # Errors
    /// If the directory cannot be read, or a file has a mistake.
    pub fn load(folder: Option<&Path>) -> Result<Self, CollectError> {
        let mut dialects = Self(BTreeMap::new());
        for file in BUILT_IN.files() {
            let text = file.contents_utf8().unwrap_or_default();
            dialects.add(file.path(), text)?;
        }
        if let Some(folder) = folder {
            let failed = |error| CollectError::Folder { path: folder.to_owned(), error };
            for path in toml_files(folder).map_err(failed)? {
                let text = fs::read_to_string(&path).map_err(|error| CollectError::Dialect {
                    file: path.display().to_string(),
                    problem: format!("the file cannot be read, {error}"),
                })?;
                dialects.add(&path, &text)?;
            }
        }
        Ok(dialects)
    }

    fn add(&mut self, path: &Path, text: &str) -> Result<(), CollectError> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let dialect = parse(&name, text).map_err(|problem| CollectError::Dialect {
            file: path.display().to_string(),
            problem,
        })?;
        self.0.insert(dialect.name.clone(), Arc::new(dialect));
        Ok(())
    }

    /// Returns the dialect of each channel of the settings.
    ///
    /// # Errors
    /// If a channel names a dialect that does not exist.
    pub(crate) fn of_channels(
        &self,
        config: &Config,
    ) -> Result<HashMap<Box<str>, Arc<Dialect>>, CollectError> {
        let channels = config.channels.iter();
        channels.map(|channel| Ok((channel.clone(), self.of_channel(config, channel)?))).collect()
    }

    pub(super) fn of_channel(
        &self,
        config: &Config,
        channel: &str,
    ) -> Result<Arc<Dialect>, CollectError> {
        let (name, dialect) = match config.dialects.get(channel) {
            Some(name) => (&**name, self.0.get(name)),
            None => (GENERIC, self.0.get(channel).or_else(|| self.0.get(GENERIC))),
        };
        dialect.cloned().ok_or_else(|| self.unknown(channel, name))
    }

    /// Checks that each channel has a dialect.
    ///
    /// # Errors
    /// If a channel names a dialect that does not exist.
    pub fn check(&self, config: &Config) -> Result<(), CollectError> {
        self.of_channels(config).map(drop)
    }

    fn unknown(&self, channel: &str, name: &str) -> CollectError {
        let nearest = nearest(name, self.0.keys().map(|known| &**known)).unwrap_or_default();
        CollectError::UnknownDialect {
            channel: channel.into(),
            name: name.into(),
            nearest: format!("the nearest is {nearest:?}"),
        }
    }

    #[cfg(test)]
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Dialect>> {
        self.0.get(name)
    }

    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: &str = "[[channels]]\nid = \"generic\"\n[[channels]]\nid = \"other\"\n";

    #[test]
    fn every_channel_has_a_dialect() {
        let dialects = Dialects::load(None).unwrap();
        let config = config::parse(SETTINGS).unwrap();
        let channels = dialects.of_channels(&config).unwrap();
        assert_eq!(&*channels["other"].name, "generic");
        let config = config::parse("[[channels]]\nid = \"c\"\ndialect = \"genric\"\n").unwrap();
        let error = dialects.check(&config).unwrap_err().to_string();
        let expected =
            "channels: channel \"c\": no such dialect, the nearest is \"generic\": \"genric\"";
        assert_eq!(error, expected);
    }
}
