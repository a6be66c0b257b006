//! The seeds of the fuzz targets as a plain test: cheap, and without the nightly toolchain.

use std::fs;
use std::path::{Path, PathBuf};

use monolock_fuzz_checks::CHECKS;

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("readable").path())
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn every_seed_keeps_every_promise() {
    for (name, check) in CHECKS {
        let folder = fuzz_folder().join("seeds").join(name);
        let seeds = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut run = 0;
        for seed in seeds {
            let path = seed.expect("readable").path();
            println!("{}", path.display());
            check(&fs::read(&path).expect("readable"));
            run += 1;
        }
        assert!(run > 0, "{name} has no seeds");
        check(b"");
    }
}

#[test]
fn every_check_is_a_fuzz_target_with_seeds_and_the_other_way_round() {
    let checks: Vec<_> = CHECKS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names_in(&fuzz_folder().join("fuzz_targets")), checks);
    assert_eq!(names_in(&fuzz_folder().join("seeds")), checks);
    let manifest = fs::read_to_string(fuzz_folder().join("Cargo.toml")).expect("readable");
    for name in checks {
        assert!(
            manifest.contains(&format!("name = \"{name}\"")),
            "{name} is no binary"
        );
    }
}
