//! A pair of real processes whose grants are confirmed by the standby: `MONOLOCK_FOLLOW=sync`.

use monolock_failover::core::NodeId;
use monolock_integration_tests::raw_client::{RawClient, Received};
use monolock_integration_tests::wait::wait_for;
use monolock_protocol::frame::ServerFrame;

use super::{Fixture, LEASE_MS};

fn confirmed() -> Fixture {
    let fixture = Fixture::with(&[("MONOLOCK_FOLLOW", "sync")]);
    wait_until_confirmed(&fixture, fixture.active, true);
    fixture
}

fn wait_until_confirmed(fixture: &Fixture, node: NodeId, confirmed: bool) {
    wait_for(
        &format!("node {node} to say {confirmed} about its grants"),
        || (fixture.status(node)?.grants_confirmed? == confirmed).then_some(()),
    );
}

#[test]
fn a_holder_is_told_only_what_the_standby_has_heard() {
    let mut fixture = confirmed();
    let (active, standby) = (fixture.active, fixture.standby());
    let (_client, before) = fixture.grant(active, "before");
    fixture.pair.freeze(standby).expect("frozen");
    let mut unheard = RawClient::acquire(fixture.pair.lock_address(active), "unheard", LEASE_MS);
    wait_for("the grant to be made", || {
        (fixture.status(active)?.last_token > before).then_some(())
    });
    fixture
        .runtime
        .block_on(fixture.pair.kill(active))
        .expect("killed");
    let told = unheard.receive();
    assert!(matches!(told, Received::End | Received::Broken(_)), "{told:?}");

    fixture.pair.thaw(standby).expect("thawed");
    let (_client, after) = fixture.grant(standby, "after");
    assert!(after > before, "{after} after {before}");
}

#[test]
fn a_lock_granted_just_before_the_crash_is_held_back() {
    let mut fixture = confirmed();
    for round in 0..3 {
        let (old, new) = (fixture.active, fixture.standby());
        let lock = format!("round-{round}");
        let (_holder, before) = fixture.grant(old, &lock);
        fixture.runtime.block_on(fixture.pair.kill(old)).expect("killed");
        // The stream was live, so what it told of is all that is held back.
        let (_client, free) = fixture.grant(new, "free");
        let mut rival = RawClient::acquire(fixture.pair.lock_address(new), &lock, LEASE_MS);
        assert_eq!(rival.receive(), Received::Frame(ServerFrame::Waiting), "{lock}");
        assert!(free > before, "{free} after {before}");
        fixture.start(old);
        fixture.active = fixture.wait_until_healthy();
        wait_until_confirmed(&fixture, fixture.active, true);
    }
}

#[test]
fn a_standby_that_is_gone_is_waited_for_once_and_confirms_again_when_it_is_back() {
    let mut fixture = confirmed();
    let (active, standby) = (fixture.active, fixture.standby());
    fixture
        .runtime
        .block_on(fixture.pair.kill(standby))
        .expect("killed");
    let (_client, first) = fixture.grant(active, "waits");
    wait_until_confirmed(&fixture, active, false);
    let (_client, second) = fixture.grant(active, "at-once");
    assert!(second > first, "{second} after {first}");
    fixture.start(standby);
    wait_until_confirmed(&fixture, active, true);
    fixture.grant(active, "confirmed");
    assert_eq!(fixture.wait_until_healthy(), active);
}
