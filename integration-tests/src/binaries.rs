//! Where the project's own programs are, and whether they are up to date.
//!
//! The tests of this crate run the programs of other crates, which cargo does not build for them. A program that is
//! missing, or older than its sources, is refused: a test of yesterday's server says nothing.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Set to a folder with the programs to test other ones than those cargo built; these are not checked for age.
const BINARIES_DIR: &str = "MONOLOCK_TEST_BIN_DIR";

/// A command that runs one of the project's programs, such as `monolock-server`, without the `MONOLOCK_*` settings
/// of the surrounding shell.
///
/// # Panics
///
/// When the program is missing or older than its sources.
#[must_use]
pub fn command(program: &str) -> Command {
    let mut command = Command::new(path(program));
    for (variable, _) in env::vars_os() {
        if variable.as_encoded_bytes().starts_with(b"MONOLOCK_") {
            command.env_remove(variable);
        }
    }
    command
}

/// The path of one of the project's programs.
///
/// # Panics
///
/// When the program is missing or older than its sources.
#[must_use]
pub fn path(program: &str) -> PathBuf {
    if let Some(folder) = env::var_os(BINARIES_DIR).filter(|folder| !folder.is_empty()) {
        let path = Path::new(&folder).join(program);
        assert!(path.is_file(), "{BINARIES_DIR}: {} is missing", path.display());
        return path;
    }
    let path = profile_folder().join(program);
    assert!(path.is_file(), "{} is missing: {HOW_TO_BUILD}", path.display());
    if let Some(source) = newer_source(&path) {
        panic!(
            "{} is older than {}: {HOW_TO_BUILD}",
            path.display(),
            source.display()
        );
    }
    path
}

const HOW_TO_BUILD: &str = "build it with `make build` (or `cargo build --bins -p` and its package)";

/// The folder that cargo puts programs into, `target/debug` as a rule: tests run in its `deps`.
fn profile_folder() -> PathBuf {
    let test = env::current_exe().expect("a test knows its own path");
    let folder = test.parent().expect("a file is in a folder");
    if folder.ends_with("deps") {
        folder.join("..")
    } else {
        folder.to_owned()
    }
}

/// A source file that changed after the program was built, from the list that cargo writes beside it.
fn newer_source(program: &Path) -> Option<PathBuf> {
    let built = modified(program)?;
    let list = fs::read_to_string(program.with_extension("d")).ok()?;
    sources(&list)
        .into_iter()
        .find(|source| modified(source) > Some(built))
}

/// The files that a line `program: source source ...` names; a blank within a name is written `\ `.
fn sources(list: &str) -> Vec<PathBuf> {
    let list = list.trim_end().replace("\\ ", "\0");
    list.split(' ')
        .skip(1)
        .map(|name| PathBuf::from(name.replace('\0', " ")))
        .collect()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_with_blanks_are_read() {
        let paths = sources("/t/server: /s/main.rs /s/my\\ lib.rs\n");
        assert_eq!(paths, [Path::new("/s/main.rs"), Path::new("/s/my lib.rs")]);
    }

    #[test]
    fn a_program_older_than_a_source_is_found_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let (program, source) = (folder.path().join("program"), folder.path().join("main.rs"));
        fs::write(&source, "").expect("written");
        fs::write(&program, "").expect("written");
        let list = format!("{}: {}\n", program.display(), source.display());
        fs::write(folder.path().join("program.d"), list).expect("written");
        let built = modified(&program).expect("it exists");

        let set_modified = |time| {
            File::options()
                .append(true)
                .open(&source)
                .expect("opened")
                .set_modified(time)
        };
        set_modified(built - Duration::from_secs(1)).expect("set");
        assert_eq!(newer_source(&program), None);
        set_modified(built + Duration::from_secs(1)).expect("set");
        assert_eq!(newer_source(&program), Some(source));
    }

    #[test]
    #[should_panic(expected = "monolock-no-such-program is missing")]
    fn a_missing_program_is_named() {
        let _ = path("monolock-no-such-program");
    }
}
