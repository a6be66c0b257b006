//! The tasks that listen to the peer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::driver::Input;
use crate::peer::message::{AcknowledgeRequest, FollowEvent};
use crate::peer::{CallFailure, FollowNext, FollowStream, PeerClient};

/// Asks the peer how it stands, for ever.
pub(super) async fn poll_status(peer: Arc<PeerClient>, inputs: mpsc::Sender<Input>, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failure = None;
    loop {
        ticks.tick().await;
        match peer.status().await {
            Ok(answer) => {
                if failure.take().is_some() {
                    tracing::info!("the peer answers again");
                }
                let status = Box::new(answer.value);
                if inputs
                    .send(Input::PeerStatus {
                        status,
                        sent: answer.sent,
                    })
                    .await
                    .is_err()
                {
                    return;
                }
            }
            Err(error) => note_failure(&mut failure, error),
        }
    }
}

/// Logs a failure once, not at every try.
fn note_failure(last: &mut Option<CallFailure>, error: CallFailure) {
    if last.as_ref() != Some(&error) {
        match &error {
            CallFailure::Unauthenticated(_) => tracing::error!(%error, "the peer is not listened to"),
            CallFailure::Refused
            | CallFailure::TimedOut
            | CallFailure::Declined(_)
            | CallFailure::Failed(_) => {
                tracing::warn!(%error, "the peer does not answer");
            }
        }
        *last = Some(error);
    }
}

/// Follows the peer's locks, anew whenever the stream ends, for ever.
pub(super) async fn follow(
    peer: Arc<PeerClient>,
    inputs: mpsc::Sender<Input>,
    retry_after: Duration,
    longest_silence: Duration,
) {
    loop {
        match peer.follow().await {
            // A node ends its streams when its gate opens: nothing it grants until the next one is heard of.
            Ok(stream) => match pass_on(stream, &peer, &inputs, longest_silence).await {
                Ok(()) => sleep(AFTER_AN_END).await,
                Err(Stopped) => return,
            },
            Err(_) => sleep(retry_after).await,
        }
    }
}

/// Between the end of a stream and the next attempt.
const AFTER_AN_END: Duration = Duration::from_millis(10);

/// The watchdog is gone.
struct Stopped;

async fn pass_on(
    mut stream: FollowStream,
    peer: &Arc<PeerClient>,
    inputs: &mpsc::Sender<Input>,
    longest_silence: Duration,
) -> Result<(), Stopped> {
    let mut name = None;
    // Beats come far more often. A connection that brings none is dead, even if nobody has said so.
    while let Ok(FollowNext::Event(event)) = timeout(longest_silence, stream.next()).await {
        if let FollowEvent::Snapshot { stream, .. } = event {
            name = Some(stream);
        }
        let Some(stream) = name else { break };
        let mark = if let FollowEvent::Mark { mark } = event {
            Some(mark)
        } else {
            None
        };
        inputs.send(Input::Followed(event)).await.map_err(|_| Stopped)?;
        if let Some(mark) = mark {
            acknowledge(peer, AcknowledgeRequest { stream, mark });
        }
    }
    if name.is_some() {
        inputs.send(Input::FollowEnded).await.map_err(|_| Stopped)?;
    }
    Ok(())
}

/// What came before the mark is in the watchdog's queue, ahead of everything that could begin a takeover.
fn acknowledge(peer: &Arc<PeerClient>, request: AcknowledgeRequest) {
    let peer = Arc::clone(peer);
    tokio::spawn(async move {
        if let Err(error) = peer.acknowledge(&request).await {
            tracing::debug!(%error, "a mark of the follow stream could not be acknowledged");
        }
    });
}
