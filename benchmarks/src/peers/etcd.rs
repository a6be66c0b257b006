//! etcd: the lock service of its API.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use monolock_integration_tests::TempDir;
use monolock_integration_tests::port::free_port;
use monolock_integration_tests::process::Process;
use monolock_integration_tests::wait::wait_until;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::worker::Worker;

/// A running etcd of one member.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl Server {
    pub(super) fn start() -> Self {
        let folder = data_folder();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let (client, peer) = (
            format!("http://{address}"),
            format!("http://127.0.0.1:{}", free_port()),
        );
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(folder.path());
        for (setting, value) in [
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &format!("default={peer}")),
        ] {
            command.args([setting, value]);
        }
        let process = Process::spawn("etcd", command);
        wait_until("etcd to listen", || TcpStream::connect(address).is_ok());
        Self {
            address,
            _process: process,
            _folder: folder,
        }
    }

    pub(super) async fn connect(&self, lock: &str) -> Result<Client> {
        let channel = Endpoint::try_from(format!("http://{}", self.address))?
            .connect()
            .await?;
        let mut grpc = Grpc::new(channel);
        let LeaseGrantResponse { id } = call(
            &mut grpc,
            "/etcdserverpb.Lease/LeaseGrant",
            LeaseGrantRequest { ttl: LEASE_SECONDS },
        )
        .await?;
        let name = lock.as_bytes().to_vec();
        Ok(Client {
            grpc,
            request: LockRequest { name, lease: id },
        })
    }
}

/// Its log goes into memory where the system has a folder for that: a lock is compared, not a disk.
fn data_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        TempDir::with_prefix_in("monolock-etcd-", memory)
    } else {
        TempDir::with_prefix("monolock-etcd-")
    };
    folder.expect("a temporary folder can be made")
}

/// A connection with a lease of its own.
#[derive(Debug)]
pub(super) struct Client {
    grpc: Grpc<Channel>,
    request: LockRequest,
}

impl Worker for Client {
    async fn cycle(&mut self) -> Result<()> {
        let locked: LockResponse = call(&mut self.grpc, "/v3lockpb.Lock/Lock", self.request.clone()).await?;
        let unlock = UnlockRequest { key: locked.key };
        let UnlockResponse {} = call(&mut self.grpc, "/v3lockpb.Lock/Unlock", unlock).await?;
        Ok(())
    }
}

async fn call<Q, A>(grpc: &mut Grpc<Channel>, method: &'static str, request: Q) -> Result<A>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    grpc.ready().await?;
    let method = PathAndQuery::from_static(method);
    let answer = grpc.unary(
        tonic::Request::new(request),
        method,
        ProstCodec::<Q, A>::default(),
    );
    Ok(answer.await?.into_inner())
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LockResponse {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct UnlockResponse {}

/// Longer than any row takes.
const LEASE_SECONDS: i64 = 3_600;
