//! A client in another language, written from the protocol's description alone, agrees with the server. Needs
//! Debian's `python3`.

use std::path::Path;
use std::process::Command;

use monolock_integration_tests::process::{Exit, Process};
use monolock_integration_tests::server::LockServer;

#[test]
fn a_client_in_python_is_promoted_by_a_push_and_keeps_its_token() {
    let server = LockServer::start(&[]);
    let mut command = Command::new("python3");
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("python/raw_client.py"))
        .arg(server.address.ip().to_string())
        .arg(server.address.port().to_string());
    let client = Process::spawn("raw_client.py", command);
    assert_eq!(client.wait_for_exit(), Exit::Code(0));
    client.wait_for_line("second was promoted with token");
}
