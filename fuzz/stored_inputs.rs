//! Runs the corpus of a crate's targets as a regression test. Included by each crate that has targets.

use std::fs;
use std::path::Path;

use super::TARGETS;

#[test]
fn corpus_inputs_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The corpus is in the package's folder if that is the root of the workspace, otherwise in its parent.
    let corpus = [root, root.parent().unwrap()].map(|folder| folder.join("fuzz/corpus"));
    let corpus = corpus.iter().find(|folder| folder.exists()).expect("fuzz/corpus");
    for (name, target) in TARGETS {
        let mut files: Vec<_> = fs::read_dir(corpus.join(name))
            .unwrap_or_else(|error| panic!("fuzz/corpus/{name}: {error}"))
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "fuzz/corpus/{name} is empty");
        for file in files {
            // Names the input if it fails.
            println!("{}", file.display());
            target(&fs::read(&file).unwrap());
        }
    }
}
