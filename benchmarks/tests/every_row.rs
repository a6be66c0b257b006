//! Every row can be measured: with the servers built as the tests build them, for moments, and without a word about
//! the figures.

use std::process::Command;

#[test]
fn every_row_produces_figures() {
    let output = Command::new(env!("CARGO_BIN_EXE_monolock-bench"))
        .args(["--seconds", "0.05"])
        .output()
        .expect("it starts");
    let (table, progress) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{table}\n{progress}");
    let rows: Vec<_> = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(2)
        .collect();
    for group in [
        "claim cycle, 64 at once",
        "processor time for a claim, 16 at once",
        "acknowledgement of a heartbeat, p99",
        "handover: close to next grant, p50",
        "one lock, 64 want it",
        "lock and unlock without contention, 16 at once",
        "memory of an idle session, TLS",
        "processor time",
        "enqueue behind",
        "promote behind",
        "system calls of the server",
    ] {
        assert!(
            rows.iter().any(|row| row.contains(group)),
            "no row {group}:\n{table}"
        );
    }
    for peer in ["Redis", "PostgreSQL", "etcd"] {
        let of_peer = rows
            .iter()
            .filter(|row| row.contains(&format!("| {peer}: ")))
            .count();
        assert_eq!(of_peer, 3, "{peer}:\n{table}");
    }
    for row in rows {
        assert!(!row.contains("NaN") && !row.contains("inf"), "{row}");
    }
}
