//! Each of the small examples, as a user would run it. Needs what `integration-tests/setup` installs.

use std::process::Command;

/// Runs an example to its end. It checks itself; here it must also have said the things it is there to show.
fn play(program: &str) {
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars_os() {
        if variable.as_encoded_bytes().starts_with(b"MONOLOCK_") {
            command.env_remove(variable);
        }
    }
    let output = command.output().expect("cargo has built it");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);

    let mut rest = said.as_ref();
    for line in [
        "ann   writes: accepted",
        "ann is frozen",
        "bob   writes: accepted",
        "ann wakes up",
        "ann   writes what it was about to write: REFUSED, token ",
        " is stale: token ",
        "ann   looks at its grant before the next write: REFUSED, the grant of ",
        "a reader finds \"written by bob\"",
    ] {
        let at = rest
            .find(line)
            .unwrap_or_else(|| panic!("no {line:?} in its place:\n{said}"));
        rest = &rest[at + line.len()..];
    }
}

#[test]
fn postgres_rows() {
    play(env!("CARGO_BIN_EXE_postgres_rows"));
}

#[cfg(feature = "s3")]
#[test]
fn s3_object() {
    play(env!("CARGO_BIN_EXE_s3_object"));
}

#[cfg(feature = "axum")]
#[test]
fn axum_service() {
    play(env!("CARGO_BIN_EXE_axum_service"));
}
