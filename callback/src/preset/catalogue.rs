//! All presets: the built-in ones, and those of the user's directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use config::nearest::nearest;
use config::{Callbacks, toml_files};
use include_dir::{Dir, include_dir};

use super::{Preset, raw};
use crate::error::CallbackError;

static BUILT_IN: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/presets");

/// The presets by name.
pub struct Presets(BTreeMap<Box<str>, Arc<Preset>>);

impl Presets {
    /// Loads the built-in presets, and those of the directory in the settings, which replace built-in ones of the same
    /// name.
    ///
    /// # Errors
    /// If the directory cannot be read, or a file has a mistake.
    pub fn load(settings: &Callbacks) -> Result<Self, CallbackError> {
        let mut presets = Self(BTreeMap::new());
        for file in BUILT_IN.files() {
            presets.add(file.path(), file.contents_utf8().unwrap_or_default())?;
        }
        if let Some(folder) = &settings.presets {
            let failed = |error| CallbackError::Folder { path: folder.clone(), error };
            for path in toml_files(folder).map_err(failed)? {
                let text = fs::read_to_string(&path).map_err(|error| CallbackError::Preset {
                    file: path.display().to_string(),
                    problem: format!("the file cannot be read, {error}"),
                })?;
                presets.add(&path, &text)?;
            }
        }
        Ok(presets)
    }

    fn add(&mut self, path: &Path, text: &str) -> Result<(), CallbackError> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let preset = raw::parse(&name, text).map_err(|problem| CallbackError::Preset {
            file: path.display().to_string(),
            problem,
        })?;
        self.0.insert(preset.name.clone(), Arc::new(preset));
        Ok(())
    }

    /// Returns the preset that an endpoint names.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Preset>, String> {
        self.0.get(name).cloned().ok_or_else(|| {
            let nearest = nearest(name, self.0.keys().map(|known| &**known)).unwrap_or_default();
            format!("preset: no such preset, the nearest is {nearest:?}: {name:?}")
        })
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Preset>> {
        self.0.values()
    }
}
