//! Tokens only grow, however often the server is killed.

use monolock_integration_tests::TempDir;
use monolock_integration_tests::port::free_port;
use monolock_integration_tests::process::Exit;
use monolock_integration_tests::raw_client::RawClient;
use monolock_integration_tests::server::LockServer;
use monolock_protocol::Token;

const RESTARTS: usize = 10;

/// Kills the server (`SIGKILL`) and starts it again on the same port at once, and again; returns every token in the
/// order of the grants.
fn tokens_over_restarts(settings: &[(&str, &str)]) -> Vec<Token> {
    let address = format!("127.0.0.1:{}", free_port());
    let settings = [settings, &[("MONOLOCK_LISTEN_ADDRESS", &address)]].concat();
    let mut tokens = Vec::new();
    for _ in 0..=RESTARTS {
        let server = LockServer::start(&settings);
        // Their sessions are open when the server is killed.
        let clients = ["one", "two", "three"].map(|lock| {
            let mut client = RawClient::acquire(server.address, lock, 60_000);
            tokens.push(client.expect_acquired_in_the_end());
            client
        });
        assert_eq!(server.process.kill(), Exit::Signal(9));
        drop(clients);
    }
    tokens
}

#[track_caller]
fn assert_strictly_increasing(tokens: &[Token]) {
    for pair in tokens.windows(2) {
        assert!(
            pair[0] < pair[1],
            "{} is followed by {}: {tokens:?}",
            pair[0],
            pair[1]
        );
    }
    assert_eq!(tokens.len(), 3 * (RESTARTS + 1));
}

#[test]
fn tokens_increase_over_ten_kills_and_immediate_restarts() {
    assert_strictly_increasing(&tokens_over_restarts(&[]));
}

#[test]
fn tokens_increase_over_ten_kills_and_immediate_restarts_with_a_token_file() {
    let folder = TempDir::with_prefix("monolock-restart-").expect("a temporary folder can be made");
    let token_file = folder.path().join("token");
    let token_file = token_file.to_str().expect("the path is UTF-8");
    assert_strictly_increasing(&tokens_over_restarts(&[("MONOLOCK_TOKEN_FILE", token_file)]));
}
