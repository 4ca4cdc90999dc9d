//! The built-in cases, or those of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use config::nearest::nearest;
use include_dir::{Dir, include_dir};

use super::case::Case;

static EMBEDDED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/conformance");

const CATALOGUE: &str = "catalogue.toml";
const SUFFIX: &str = ".toml";

/// Cases by name.
#[derive(Debug)]
pub(crate) struct Suite(Vec<Case>);

impl Suite {
    /// Returns the built-in suite.
    ///
    /// # Errors
    /// All cases that cannot be read, with the reasons.
    pub fn embedded() -> Result<Self, String> {
        let mut files = Vec::new();
        add_embedded(&EMBEDDED, &mut files);
        Self::of(files)
    }

    /// Reads the `.toml` files in and below a folder. Its `catalogue.toml` replaces the built-in one.
    ///
    /// # Errors
    /// All cases that cannot be read, with the reasons.
    pub fn from_folder(folder: &Path) -> Result<Self, String> {
        let mut files = Vec::new();
        add_files(folder, folder, &mut files)?;
        Self::of(files)
    }

    /// Parses files, given as paths and texts.
    fn of(files: Vec<(String, String)>) -> Result<Self, String> {
        let replacement =
            files.iter().find(|(path, _)| path == CATALOGUE).map(|(_, text)| text.as_str());
        let embedded = || EMBEDDED.get_file(CATALOGUE).and_then(|file| file.contents_utf8());
        let catalogue = replacement.or_else(embedded).unwrap_or_default();
        let (mut cases, mut problems) = (Vec::new(), Vec::new());
        for (path, text) in files.iter().filter(|(path, _)| path != CATALOGUE) {
            let name = path.strip_suffix(SUFFIX).unwrap_or(path);
            match Case::parse(name.to_owned(), text, catalogue) {
                Ok(case) => cases.push(case),
                Err(problem) => problems.push(format!("{path}: {}", problem.trim())),
            }
        }
        cases.sort_by(|a, b| a.name.cmp(&b.name));
        match (problems.is_empty(), cases.is_empty()) {
            (false, _) => Err(problems.join("\n")),
            (true, true) => Err("no cases found: expected files that end with .toml".into()),
            (true, false) => Ok(Self(cases)),
        }
    }

    /// Returns the cases with these names, or in folders with these names; without names, all.
    ///
    /// # Errors
    /// If a name is unknown; the error names the nearest known one.
    pub fn select(self, names: &[String]) -> Result<Vec<Case>, String> {
        for name in names {
            if !self.0.iter().any(|case| matches_name(name, case)) {
                let known = self.0.iter().map(|case| &*case.name);
                let nearest = nearest(name, known).unwrap_or_default();
                return Err(format!("unknown case: {name}; the nearest is {nearest}"));
            }
        }
        let is_selected =
            |case: &Case| names.is_empty() || names.iter().any(|name| matches_name(name, case));
        Ok(self.0.into_iter().filter(is_selected).collect())
    }
}

fn matches_name(name: &str, case: &Case) -> bool {
    let name = name.trim_end_matches('/');
    case.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn add_embedded(dir: &Dir<'_>, files: &mut Vec<(String, String)>) {
    for file in dir.files() {
        if let (Some(path), Some(text)) = (file.path().to_str(), file.contents_utf8())
            && path.ends_with(SUFFIX)
        {
            files.push((path.to_owned(), text.to_owned()));
        }
    }
    dir.dirs().for_each(|dir| add_embedded(dir, files));
}

fn add_files(root: &Path, folder: &Path, files: &mut Vec<(String, String)>) -> Result<(), String> {
    let unreadable = |path: &Path, error| format!("cannot be read: {}: {error}", path.display());
    let entries = fs::read_dir(folder).map_err(|error| unreadable(folder, error))?;
    for entry in entries {
        let path: PathBuf = entry.map_err(|error| unreadable(folder, error))?.path();
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        if path.is_dir() {
            add_files(root, &path, files)?;
        } else if name.ends_with(SUFFIX) {
            let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
            files.push((name, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cargo does not rebuild this file when a case is added; `touch` it to update the embedded cases.
    #[test]
    fn all_cases_of_the_folder_are_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance");
        let names = |suite: Suite| suite.0.into_iter().map(|case| case.name).collect::<Vec<_>>();
        let embedded = names(Suite::embedded().unwrap());
        assert_eq!(embedded, names(Suite::from_folder(&folder).unwrap()));
        assert!(embedded.len() >= 150, "{}", embedded.len());
    }

    #[test]
    fn cases_are_selected_by_name_and_by_folder() {
        let case =
            |path: &str| (path.to_owned(), "why='w'\ncontract='3'\nevents=''\nrows=0".to_owned());
        let suite =
            || Suite::of(vec![case("a/b.toml"), case("a/bc.toml"), case("d.toml")]).unwrap();
        let check = |names: &[&str], expected: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            let selected = suite().select(&names).unwrap();
            assert_eq!(selected.iter().map(|case| &*case.name).collect::<Vec<_>>(), expected);
        };
        check(&[], &["a/b", "a/bc", "d"]);
        check(&["a/b"], &["a/b"]);
        check(&["a"], &["a/b", "a/bc"]);
        check(&["a/", "d"], &["a/b", "a/bc", "d"]);
        let problem = suite().select(&["a/bd".into()]).unwrap_err();
        assert_eq!(problem, "unknown case: a/bd; the nearest is a/b");
    }
}
