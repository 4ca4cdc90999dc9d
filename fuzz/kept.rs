//! The kept inputs of a crate's targets: what was found with them stays mended. A part of each crate
//! that has targets.

use std::fs;
use std::path::Path;

use super::TARGETS;

#[test]
fn kept_inputs_hold() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The root's own folder has the corpus, as that above a crate's has.
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
            // Shown where it fails.
            println!("{}", file.display());
            target(&fs::read(&file).unwrap());
        }
    }
}
