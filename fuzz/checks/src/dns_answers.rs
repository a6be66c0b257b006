//! The DNS witness under any answers of its server: nothing unsigned is believed, and a signed one is a record or not.

use std::sync::{Mutex, OnceLock, PoisonError};

use hickory_proto::op::Message;
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
use hickory_proto::rr::{Name, RData, Record, TSigResponseContext, TSigner};
use monolock_failover::core;
use monolock_failover::dns::{DnsPrimary, TsigKey};
use monolock_failover::witness::{DnsWitness, Witness as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::loopback::{runtime, split};

pub(crate) fn check(bytes: &[u8]) {
    *ANSWER.lock().unwrap_or_else(PoisonError::into_inner) = bytes.to_vec();
    let (how, rest) = split(bytes);
    let read = runtime().block_on(witness().read());
    match (is_signed(how), read) {
        (false, read) => assert!(read.is_err(), "an answer that nobody has signed was believed"),
        (true, Ok(Some(record))) => {
            let text: Vec<u8> = strings(rest).concat();
            let written: core::Record = serde_json::from_slice(&text).expect("a record comes from one");
            assert_eq!(record, written);
        }
        (true, Ok(None) | Err(_)) => {}
    }
}

fn is_signed(how: u8) -> bool {
    how & 1 != 0
}

/// The input as character strings of a TXT record.
fn strings(input: &[u8]) -> Vec<&[u8]> {
    input.chunks(255).take(8).collect()
}

fn witness() -> &'static DnsWitness {
    static WITNESS: OnceLock<DnsWitness> = OnceLock::new();
    WITNESS.get_or_init(|| {
        let listener = runtime()
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        runtime().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        });
        let key = TsigKey::parse("pair:c2VjcmV0IHNlY3JldA==").expect("a key");
        let primary = DnsPrimary::new(address.parse().expect("an address"), "example", key).expect("a zone");
        DnsWitness::new(primary, NAME).expect("a name of the zone")
    })
}

/// What the server says next.
static ANSWER: Mutex<Vec<u8>> = Mutex::new(Vec::new());

async fn answer(mut stream: TcpStream) -> Option<()> {
    let mut question = vec![0; stream.read_u16().await.ok()?.into()];
    stream.read_exact(&mut question).await.ok()?;
    let question = Message::from_vec(&question).ok()?;
    let input = ANSWER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (how, rest) = split(&input);
    let said = if is_signed(how) {
        signed(&question, how >> 1, rest)?
    } else {
        unsigned(&question, how >> 1, rest)
    };
    let length = u16::try_from(said.len()).ok()?;
    stream.write_all(&length.to_be_bytes()).await.ok()?;
    stream.write_all(&said).await.ok()?;
    Some(())
}

/// The input as it is, or as the answer to this question with a signature that is none.
fn unsigned(question: &Message, how: u8, input: &[u8]) -> Vec<u8> {
    match how % 3 {
        0 => input.to_vec(),
        1 => text(question, 1, input).to_vec().unwrap_or_default(),
        _ => {
            let mut said = text(question, 1, input);
            if let Some(signature) = &question.signature {
                said.set_signature(signature.clone());
            }
            said.to_vec().unwrap_or_default()
        }
    }
}

/// A signed answer of some TXT records.
fn signed(question: &Message, how: u8, input: &[u8]) -> Option<Vec<u8>> {
    let mut said = text(question, how & 3, input);
    said.metadata.authoritative = how & 4 == 0;
    let request = &question.signature.as_ref()?.data;
    let signer = TSigner::new(
        b"secret secret".to_vec(),
        TsigAlgorithm::HmacSha256,
        Name::from_ascii("pair.").ok()?,
        300,
    )
    .ok()?;
    let context = TSigResponseContext::new(
        question.metadata.id,
        request.time,
        signer,
        request.mac.clone(),
        None,
    );
    let signature = context.sign(&said.to_vec().ok()?).ok()?;
    said.set_signature(signature);
    said.to_vec().ok()
}

fn text(question: &Message, records: u8, input: &[u8]) -> Message {
    let mut said = Message::response(question.metadata.id, question.metadata.op_code);
    said.metadata.authoritative = true;
    said.add_queries(question.queries.clone());
    let name = Name::from_ascii(NAME).expect("a name");
    for number in 0..records {
        // Records of one text would be one record.
        let own = [b'0' + number];
        let mut strings = strings(input);
        if number > 0 {
            strings.push(&own);
        }
        said.add_answer(Record::from_rdata(
            name.clone(),
            1,
            RData::TXT(TXT::from_bytes(strings)),
        ));
    }
    said
}

const NAME: &str = "_monolock.example.";
