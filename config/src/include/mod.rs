//! `[include]`: apps, channels, campaigns and more in catalogue files, TOML or CSV.
//!
//! Their entries are added to the lists of the settings file before these are read, so that the same checks apply, and
//! every entry keeps the file and line that it is from. Start with [`read`].

mod csv_file;
mod merge;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use crate::nearest::distance;
use crate::parse::error::{ConfigError, Problem};
use crate::parse::section::Section;
use crate::parse::tree::{self, Table, quoted};

const CATALOGUE: &str = "catalogue";
const CSV: &str = "csv";
const TOML: &str = "toml";

/// Editors and deployments write files under hidden names before they rename them.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Where catalogue files are.
#[derive(Debug)]
pub(crate) struct Files<'a> {
    /// The directory of the settings file, to which patterns are relative.
    pub folder: &'a Path,
    /// A file with the text that it would have; it need not exist.
    pub draft: Option<(&'a Path, &'a str)>,
}

/// Reads the files that the section names, in the order of their paths. Without `files`, only checks the section.
pub(crate) fn read(include: &mut Section<'_>, files: Option<&Files<'_>>) -> Vec<Table> {
    let patterns = include.text_or_texts(CATALOGUE, |text| parse_pattern(text, files));
    let patterns = patterns.unwrap_or_default();
    let Some(files) = files else { return Vec::new() };
    let mut paths = BTreeSet::new();
    for pattern in &patterns {
        files.find(pattern, &mut paths).unwrap_or_else(|error| include.fail(error));
    }
    if let Some((draft, _)) = files.draft {
        let draft = canonical(draft);
        let is_found = paths.iter().any(|path| canonical(path) == draft);
        let is_matched =
            |pattern: &String| files.canonical_pattern(pattern).matches_path_with(&draft, OPTIONS);
        if !is_found && patterns.iter().any(is_matched) {
            paths.insert(draft);
        } else if !is_found {
            let problem = "expected a path or a pattern that matches the file to be written";
            include.reject(CATALOGUE, problem, quoted(&draft.to_string_lossy()));
        }
    }
    let mut tables = Vec::with_capacity(paths.len());
    for path in paths {
        match files.read(&path) {
            Ok(table) => tables.push(table),
            Err(errors) => errors.into_iter().for_each(|error| include.fail(error)),
        }
    }
    tables
}

/// Adds the entries of catalogue files to the lists of the settings.
pub(crate) fn add(root: &mut Section<'_>, catalogue: Vec<Table>) {
    catalogue.into_iter().for_each(|table| merge::add(root.entries(), table));
}

impl Files<'_> {
    /// Adds the files that a pattern matches.
    fn find(&self, pattern: &str, found: &mut BTreeSet<PathBuf>) -> Result<(), ConfigError> {
        let is_path = split_wildcards(pattern).1.is_empty();
        let full = below(self.folder, pattern);
        // Patterns have been checked, and a folder is escaped.
        let Ok(paths) = glob::glob_with(&full, OPTIONS) else { return Ok(()) };
        let mut is_found = false;
        for path in paths {
            let path = path.map_err(|error| {
                let name = error.path().to_string_lossy().into();
                ConfigError::Unreadable { path: name, source: error.into() }
            })?;
            // Reading reports a directory that is named as a file.
            if is_path || !path.is_dir() {
                found.insert(path);
                is_found = true;
            }
        }
        if is_path && !is_found {
            found.insert(self.folder.join(pattern));
        }
        Ok(())
    }

    fn read(&self, path: &Path) -> Result<Table, Vec<ConfigError>> {
        let name = path.to_string_lossy();
        let draft = self.draft.filter(|(draft, _)| canonical(draft) == canonical(path));
        let bytes = match draft {
            Some((_, text)) => text.as_bytes().to_vec(),
            None => std::fs::read(path).map_err(|source| {
                vec![ConfigError::Unreadable { path: name.clone().into(), source }]
            })?,
        };
        if has_extension(path, CSV) {
            return csv_file::parse(&name, &bytes);
        }
        let table = tree::parse_file(&name, &bytes).map_err(|errors| errors.into_vec())?;
        merge::check(table)
    }

    /// A pattern for canonical paths.
    fn canonical_pattern(&self, pattern: &str) -> Pattern {
        let (fixed, rest) = split_wildcards(pattern);
        let folder = canonical(&self.folder.join(fixed));
        let full = if rest.is_empty() {
            Pattern::escape(&folder.to_string_lossy())
        } else {
            below(&folder, rest)
        };
        Pattern::new(&full).unwrap_or_default()
    }
}

/// Checks a pattern. A missing directory or file is an error: a misspelt one would silently leave out its campaigns. A
/// pattern without a match is not: the directory may still be empty.
fn parse_pattern(text: &str, files: Option<&Files<'_>>) -> Result<String, Problem> {
    if ![CSV, TOML].iter().any(|extension| has_extension(Path::new(text), extension)) {
        return Err(
            r#"expected a path or a pattern of .toml or .csv files, such as "campaigns/*.toml""#
                .into(),
        );
    }
    Pattern::new(text)
        .map_err(|error| format!("expected a valid pattern of paths, but: {}", error.msg))?;
    let Some(files) = files else { return Ok(text.to_owned()) };
    let (fixed, rest) = split_wildcards(text);
    let path = files.folder.join(fixed);
    let is_draft = files.draft.is_some_and(|(draft, _)| canonical(draft) == canonical(&path));
    if rest.is_empty() && !is_draft && !path.exists() {
        return Err("expected the path of a file that exists, relative to the settings file".into());
    }
    if !rest.is_empty() && files.folder.to_str().is_none() {
        // No file would match.
        return Err(
            "expected a path without wildcards, because that of the settings file is not UTF-8"
                .into(),
        );
    }
    // The directory of a settings file without a path is the working directory.
    if !rest.is_empty() && !path.as_os_str().is_empty() && !path.is_dir() {
        return Err(
            "expected a pattern in a directory that exists, relative to the settings file".into()
        );
    }
    Ok(text.to_owned())
}

/// Splits a pattern before the first component with a wildcard. Without one, the rest is empty.
fn split_wildcards(pattern: &str) -> (&str, &str) {
    let Some(wildcard) = pattern.find(['*', '?', '[']) else { return (pattern, "") };
    let start = pattern[..wildcard].rfind('/').map_or(0, |slash| slash + 1);
    pattern.split_at(start)
}

fn below(folder: &Path, pattern: &str) -> String {
    Path::new(&Pattern::escape(&folder.to_string_lossy()))
        .join(pattern)
        .to_string_lossy()
        .into_owned()
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// Returns the canonical path of a file, which need not exist, in a directory that does.
fn canonical(path: &Path) -> PathBuf {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let canonical = path.canonicalize().ok().or_else(|| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Some(folder.unwrap_or(Path::new(".")).canonicalize().ok()?.join(path.file_name()?))
    });
    canonical.unwrap_or_else(|| path.to_owned())
}

/// Returns the name that is at most two edits away.
fn similar<'n>(text: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    names.into_iter().find(|name| distance(text, name) <= 2)
}
