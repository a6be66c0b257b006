//! Both ways to a PostgreSQL server lead to one that answers. Needs Debian's `postgresql`; the container needs a
//! Docker engine besides.

use std::process::Command;

use monolock_integration_tests::postgres::{Postgres, docker_answers};

/// What `psql`, the database's own client, says.
fn psql(server: &Postgres, statement: &str) -> String {
    let output = Command::new("psql")
        .args([
            "--no-psqlrc",
            "--tuples-only",
            "--no-align",
            "--command",
            statement,
            server.url(),
        ])
        .output()
        .expect("psql comes with PostgreSQL");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn writes_and_reads(server: &Postgres) {
    psql(server, "create table t (token bigint)");
    psql(server, "insert into t values (9007199254740991)");
    assert_eq!(psql(server, "select token from t"), "9007199254740991");
}

#[test]
fn the_installed_server_answers() {
    writes_and_reads(&Postgres::local());
}

#[test]
fn a_server_in_a_container_answers_where_there_is_an_engine() {
    if docker_answers() {
        writes_and_reads(&Postgres::in_container());
    } else {
        // Nothing to test: without an engine this is the way every other test takes.
        writes_and_reads(&Postgres::start());
    }
}
