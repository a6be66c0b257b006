//! A TXT record at a real BIND as the witness.

use monolock_failover::witness::{DnsWitness, SwapOutcome, Witness, WitnessError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::bind::{Bind, KEY, POWERLESS_KEY, primary_at};
use crate::suite::{Store, conforms, lost, record, won};

const NAME: &str = "_monolock.locks.example.com";

struct DnsStore(Bind);

impl DnsStore {
    fn start() -> Self {
        Self(Bind::start())
    }

    fn witness(&self) -> DnsWitness {
        DnsWitness::new(self.0.primary(KEY), NAME).unwrap()
    }

    /// Puts this text into the name's only TXT record.
    fn put(&self, text: &str) {
        let quoted = text.replace('"', "\\\"");
        self.0.update(&format!(
            "update delete {NAME} TXT\nupdate add {NAME} 0 TXT \"{quoted}\""
        ));
    }

    fn text(&self) -> String {
        let shown = self.0.dig(NAME, "TXT");
        let quoted = shown.strip_prefix('"').unwrap().strip_suffix('"').unwrap();
        quoted.replace("\\\"", "\"")
    }
}

impl Store for DnsStore {
    async fn open(&self) -> Box<dyn Witness> {
        Box::new(self.witness())
    }

    async fn delete(&self) {
        self.0.update(&format!("update delete {NAME} TXT"));
    }

    async fn back_up(&self) -> Vec<u8> {
        self.text().into_bytes()
    }

    async fn restore(&self, backup: &[u8]) {
        self.put(std::str::from_utf8(backup).unwrap());
    }
}

fn assert_failed(outcome: &SwapOutcome, expected: fn(&WitnessError) -> bool) {
    assert!(
        matches!(outcome, SwapOutcome::Failed(error) if expected(error)),
        "{outcome:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dns_conforms() {
    conforms(&DnsStore::start()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_swap_survives_the_death_of_the_server() {
    let mut store = DnsStore::start();
    let witness = store.witness();
    won(&witness, None, &record(1, 1)).await;
    for beat in 2..6 {
        won(&witness, Some(&record(beat - 1, 1)), &record(beat, 1)).await;
        store.0.kill_and_restart();
        assert_eq!(witness.read().await.unwrap(), Some(record(beat, 1)));
    }
    store.0.stop();
    let outcome = witness.swap(Some(&record(5, 1)), &record(6, 1)).await;
    assert_failed(&outcome, |error| {
        matches!(error, WitnessError::Unreachable { .. })
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_in_other_letters_is_the_same_and_what_is_none_is_refused() {
    let store = DnsStore::start();
    let witness = store.witness();
    won(&witness, None, &record(1, 1)).await;
    let text = store.text();
    store.put(&text.replace(',', ", "));
    lost(&witness, Some(&record(9, 9)), &record(2, 1), Some(&record(1, 1))).await;
    won(&witness, Some(&record(1, 1)), &record(2, 1)).await;
    store.0.update(&format!("update add {NAME} 0 TXT \"another\""));
    let error = witness.read().await.unwrap_err();
    assert!(matches!(error, WitnessError::NotARecord { .. }), "{error}");
    let outcome = witness.swap(Some(&record(2, 1)), &record(3, 1)).await;
    assert_failed(&outcome, |error| matches!(error, WitnessError::NotARecord { .. }));
    store.put("v=spf1 -all");
    let error = witness.read().await.unwrap_err();
    assert!(matches!(error, WitnessError::NotARecord { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_refuses_is_certain_only_when_it_is_signed() {
    let store = DnsStore::start();
    won(&store.witness(), None, &record(1, 1)).await;
    let with = |key| DnsWitness::new(store.0.primary(key), NAME).unwrap();
    let (old, new) = (record(1, 1), record(2, 1));

    let powerless = with(POWERLESS_KEY);
    assert_eq!(powerless.read().await.unwrap(), Some(record(1, 1)));
    let outcome = powerless.swap(Some(&old), &new).await;
    assert_failed(&outcome, |error| matches!(error, WitnessError::Refused { .. }));

    for key in ["pair-key:d3Jvbmcgc2VjcmV0", "no-such-key:d3Jvbmcgc2VjcmV0"] {
        let stranger = with(key);
        let error = stranger.read().await.unwrap_err();
        assert!(error.to_string().contains("check the TSIG key"), "{error}");
        let outcome = stranger.swap(Some(&old), &new).await;
        assert!(matches!(outcome, SwapOutcome::Unknown(_)), "{outcome:?}");
    }

    let elsewhere = primary_at(store.0.port(), "example.org", KEY);
    let elsewhere = DnsWitness::new(elsewhere, "_monolock.example.org").unwrap();
    let error = elsewhere.read().await.unwrap_err();
    assert!(matches!(error, WitnessError::Refused { .. }), "{error}");
    let outcome = elsewhere.swap(None, &new).await;
    assert_failed(&outcome, |error| matches!(error, WitnessError::Refused { .. }));

    assert!(DnsWitness::new(store.0.primary(KEY), "_monolock.example.org").is_err());
    assert_eq!(store.witness().read().await.unwrap(), Some(old));
}

/// Passes one exchange on to the server, with the answer as `edit` leaves it.
async fn edit_answer(port: u16, edit: fn(Vec<u8>) -> Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        pass(&mut client, &mut server, None).await;
        pass(&mut server, &mut client, Some(edit)).await;
    });
    proxy
}

async fn pass(from: &mut TcpStream, to: &mut TcpStream, edit: Option<fn(Vec<u8>) -> Vec<u8>>) {
    let length = from.read_u16().await.unwrap();
    let mut message = vec![0; usize::from(length)];
    from.read_exact(&mut message).await.unwrap();
    let message = edit.map_or(message.clone(), |edit| edit(message));
    if !message.is_empty() {
        to.write_u16(u16::try_from(message.len()).unwrap()).await.unwrap();
        to.write_all(&message).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_or_changed_answer_leaves_the_swap_unknown_though_it_was_made() {
    let store = DnsStore::start();
    won(&store.witness(), None, &record(1, 1)).await;
    let edits: [fn(Vec<u8>) -> Vec<u8>; 2] = [
        |_| Vec::new(),
        // The lowest bits of the fourth byte are the response code: "refused" instead of "done".
        |mut answer| {
            answer[3] |= 5;
            answer
        },
    ];
    for (edit, beat) in edits.into_iter().zip(2..) {
        let proxy = edit_answer(store.0.port(), edit).await;
        let through = DnsWitness::new(primary_at(proxy, "example.com", KEY), NAME).unwrap();
        let outcome = through.swap(Some(&record(beat - 1, 1)), &record(beat, 1)).await;
        assert!(matches!(outcome, SwapOutcome::Unknown(_)), "{outcome:?}");
        assert_eq!(store.witness().read().await.unwrap(), Some(record(beat, 1)));
    }
}
