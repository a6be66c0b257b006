//! `monolock run`: from the arguments to a granted lock, and to the command under it.

use monolock_client::{AcquireError, CancellationToken, Claim, Client, ConfigError, Guard, Tls};

use crate::args::{RunArgs, ServerArgs};
use crate::supervise::{Orders, Signals, supervise};
use crate::{Failure, exit};

pub(crate) async fn run(args: RunArgs) -> Result<u8, Failure> {
    let client = client(&args.server).map_err(|error| Failure::new(exit::CONFIG, error))?;
    let mut signals = Signals::new().map_err(|error| Failure::new(exit::FAILURE, error))?;
    let stop = CancellationToken::new();
    let mut claim = client.claim(&args.lock, args.lease).stop_on(stop.clone());
    if let Some(limit) = args.wait {
        claim = claim.wait_limit(limit);
    }
    let guard = tokio::select! {
        guard = acquire(claim, args.without_waiting) => guard.map_err(|error| explain(&error))?,
        signal = signals.next_fatal() => return Ok(exit::SIGNAL_BASE + signal),
    };
    let orders = Orders {
        command: args.command,
        lease: args.lease,
        on_lost: args.on_lost,
        kill_after: args.kill_after,
    };
    supervise(orders, guard, signals).await
}

fn client(args: &ServerArgs) -> Result<Client, ConfigError> {
    let mut builder = Client::builder(&args.server).dns_servers(args.dns.0.clone());
    if let Some(tls) = tls(args) {
        builder = builder.tls(tls);
    }
    builder.build()
}

fn tls(args: &ServerArgs) -> Option<Tls> {
    let wanted =
        args.tls || args.tls_ca.is_some() || args.tls_cert.is_some() || args.tls_server_name.is_some();
    let mut tls = Tls::new();
    if let Some(ca) = &args.tls_ca {
        tls = tls.roots(ca);
    }
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        tls = tls.client_certificate(certificate, key);
    }
    if let Some(name) = &args.tls_server_name {
        tls = tls.server_name(name);
    }
    wanted.then_some(tls)
}

async fn acquire(claim: Claim, without_waiting: bool) -> Result<Guard, AcquireError> {
    if without_waiting {
        return claim.without_waiting().acquire().await;
    }
    claim.acquire_with_retry().await
}

fn explain(error: &AcquireError) -> Failure {
    let code = match error {
        AcquireError::InvalidLock(_) | AcquireError::InvalidLease(_) => exit::CONFIG,
        AcquireError::Unavailable(_) | AcquireError::QueueLost { .. } => exit::UNAVAILABLE,
        AcquireError::Refused { .. } => exit::REFUSED,
        AcquireError::WouldQueue | AcquireError::WaitLimit { .. } => exit::NOT_GRANTED,
        _ => exit::FAILURE,
    };
    Failure::new(code, error)
}
