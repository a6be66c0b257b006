//! Every JSON message of the pair: what is read is written back as the same message.

use std::fmt::Debug;

use monolock_failover::core::{LockChange, NodeState, Record};
use monolock_failover::journal::JournalLine;
use monolock_failover::peer::message::{
    AcknowledgeRequest, AcknowledgeResponse, BeginHandoverRequest, BeginHandoverResponse, FenceRequest,
    FenceResponse, FollowEvent, HandoverRequest, HandoverResponse, NodeStatus, PromiseRequest,
    PromiseResponse,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::loopback::split;

pub(crate) fn check(bytes: &[u8]) {
    let (kind, json) = split(bytes);
    match kind % 15 {
        0 => survives::<NodeStatus>(json),
        1 => survives::<PromiseRequest>(json),
        2 => survives::<PromiseResponse>(json),
        3 => survives::<FenceRequest>(json),
        4 => survives::<FenceResponse>(json),
        5 => survives::<HandoverRequest>(json),
        6 => survives::<HandoverResponse>(json),
        7 => survives::<BeginHandoverRequest>(json),
        8 => survives::<BeginHandoverResponse>(json),
        9 => survives::<AcknowledgeRequest>(json),
        10 => survives::<AcknowledgeResponse>(json),
        11 => survives::<JournalLine>(json),
        12 => survives::<Record>(json),
        13 => survives::<NodeState>(json),
        _ => follow_event(json),
    }
}

fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(json: &[u8]) {
    let Ok(message) = serde_json::from_slice::<T>(json) else {
        return;
    };
    let written = serde_json::to_vec(&message).expect("what was read can be written");
    assert!(!written.contains(&b'\n'), "a message is one line");
    let again: T = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(again, message);
}

fn follow_event(json: &[u8]) {
    survives::<FollowEvent>(json);
    let change = serde_json::from_slice::<FollowEvent>(json)
        .ok()
        .and_then(|event| event.lock_change());
    if let Some(LockChange::Held { lease, .. }) = change {
        assert!(lease.as_millis() > 0, "no lease is zero");
    }
}
