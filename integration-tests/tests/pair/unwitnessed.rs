//! A pair of real processes without a witness.

use monolock_failover::core::NodeId;
use monolock_failover::peer::message::Role;
use monolock_integration_tests::raw_client::{RawClient, Received};
use monolock_integration_tests::wait::wait_for;
use monolock_protocol::ErrorCode;
use monolock_protocol::frame::ServerFrame;

use super::{Fixture, LEASE_MS};

fn without_witness(unproven: &str) -> Fixture {
    Fixture::with(&[("MONOLOCK_WITNESS", "none"), ("MONOLOCK_UNPROVEN", unproven)])
}

fn basis(fixture: &Fixture, node: NodeId) -> Option<String> {
    fixture.step(node, "became_active").basis
}

#[test]
fn a_killed_active_is_taken_over_by_proof_and_comes_back_as_standby() {
    let mut fixture = without_witness("wait");
    let (old, new) = (fixture.active, fixture.standby());
    assert_eq!(
        basis(&fixture, old).as_deref(),
        Some("consent"),
        "both agreed to the first term"
    );
    let (_client, before) = fixture.grant(old, "free");
    fixture.runtime.block_on(fixture.pair.kill(old)).expect("killed");
    let (_client, after) = fixture.grant(new, "another");
    assert!(after > before, "{after} after {before}");
    assert_eq!(basis(&fixture, new).as_deref(), Some("crash"));
    fixture.start(old);
    assert_eq!(fixture.wait_until_healthy(), new);
    fixture
        .runtime
        .block_on(fixture.pair.hand_over())
        .expect("handed over");
    assert_eq!(fixture.wait_until_healthy(), old);
    let (_client, last) = fixture.grant(old, "last");
    assert!(last > after, "{last} after {after}");
}

#[test]
fn with_wait_a_frozen_active_is_waited_for_and_one_node_serves_when_it_wakes() {
    let mut fixture = without_witness("wait");
    let (active, standby) = (fixture.active, fixture.standby());
    let (mut holder, token) = fixture.grant(active, "held");
    fixture.pair.freeze(active).expect("frozen");
    wait_for("the standby to say why it waits", || {
        let reason = fixture.status(standby)?.reason?;
        reason.contains("not proven dead").then_some(())
    });
    assert_eq!(fixture.role(standby), Some(Role::Standby));
    fixture.pair.thaw(active).expect("thawed");
    // It may have been asked meanwhile to give way, by the fence of a standby that could not know better; then its term
    // was over before anybody else began one.
    holder.heartbeat();
    match holder.receive() {
        Received::Frame(ServerFrame::Acquired(still)) => assert_eq!(still, token),
        Received::Frame(ServerFrame::Error { code, .. }) => assert_eq!(code, ErrorCode::NotActive),
        // Its lease ran out while nobody could hear it.
        Received::End | Received::Broken(_) => {}
        other @ Received::Frame(_) => panic!("neither held nor told: {other:?}"),
    }
    let after = fixture.grant_of_either("another");
    assert!(after > token, "{after} after {token}");
}

#[test]
fn with_takeover_a_frozen_active_is_taken_over_and_its_tokens_stay_below() {
    let mut fixture = without_witness("takeover");
    let (old, new) = (fixture.active, fixture.standby());
    let (mut zombie, before) = fixture.grant(old, "held");
    fixture.pair.freeze(old).expect("frozen");
    let (_client, after) = fixture.grant(new, "another");
    assert!(after > before, "{after} after {before}");
    assert_eq!(basis(&fixture, new).as_deref(), Some("unproven"));
    fixture.pair.thaw(old).expect("thawed");
    // Whatever it still grants before it hears of the later term is smaller, and refused by a resource that has seen it.
    let mut late = RawClient::acquire(fixture.pair.lock_address(old), "late", LEASE_MS);
    if let Received::Frame(ServerFrame::Acquired(token)) = late.receive() {
        assert!(token < after, "{token} of a zombie after {after}");
    }
    fixture.wait_for_role(old, Role::Standby);
    zombie.heartbeat();
    while let Received::Frame(frame) = zombie.receive() {
        if let ServerFrame::Acquired(token) = frame {
            assert_eq!(token, before);
        }
    }
    assert_eq!(fixture.wait_until_healthy(), new);
}

#[test]
fn an_active_that_is_alone_shows_what_is_left_and_an_operator_may_extend_it() {
    let mut fixture = without_witness("takeover");
    let (active, standby) = (fixture.active, fixture.standby());
    fixture
        .runtime
        .block_on(fixture.pair.kill(standby))
        .expect("killed");
    let left = fixture.status(active).and_then(|status| status.grants_left);
    let an_hour = 3_600 << 20;
    assert!(left.is_some_and(|left| left >= an_hour), "{left:?}");
    let mut holder = RawClient::acquire(fixture.pair.lock_address(active), "held", LEASE_MS);
    holder.expect_acquired();
    fixture
        .runtime
        .block_on(fixture.pair.extend_reserve())
        .expect("extended");
    fixture.step(active, "floor_extended_alone");
    fixture.start(standby);
    assert_eq!(fixture.wait_until_healthy(), active);
}
