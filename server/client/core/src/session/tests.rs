use super::*;
use proptest::prelude::*;

const TOKEN: Token = Token::new(7);

fn at(millis: u64) -> BootInstant {
    BootInstant::from_millis(millis)
}

/// A session with a lease of 1000 ms whose `ACQUIRE` left at 0.
fn session() -> Session {
    let name = LockName::new("a").expect("valid");
    let mut session = Session::new(&name, Lease::from_millis(1_000).expect("positive"), at(0));
    let acquire = vec![0x01, 0x01, 0x00, 0x00, 0x03, 0xe8, 0x00, 0x01, b'a'];
    assert_eq!(actions(&mut session), [Action::Send(acquire)]);
    session
}

fn waiting_session() -> Session {
    let mut session = session();
    session.handle_frame(ServerFrame::Waiting, at(0));
    assert_eq!(actions(&mut session), [Action::Queued]);
    session
}

fn holding_session() -> Session {
    let mut session = session();
    session.handle_frame(ServerFrame::Acquired(TOKEN), at(0));
    assert_eq!(actions(&mut session), [Action::Granted(TOKEN)]);
    session
}

fn actions(session: &mut Session) -> Vec<Action> {
    std::iter::from_fn(|| session.poll_action()).collect()
}

fn heartbeat() -> Action {
    Action::Send(vec![0x02])
}

fn ended(lost: Lost) -> Vec<Action> {
    vec![Action::Ended(lost)]
}

#[test]
fn heartbeats_leave_every_quarter_of_the_lease_and_only_when_the_last_is_answered() {
    let mut session = holding_session();
    assert_eq!(session.poll_timeout(), Some(at(250)));
    session.handle_timeout(at(249));
    assert_eq!(actions(&mut session), []);
    session.handle_timeout(at(250));
    assert_eq!(actions(&mut session), [heartbeat()]);
    assert_eq!(
        session.poll_timeout(),
        Some(at(800)),
        "nothing left but to give up"
    );
    session.handle_timeout(at(600));
    assert_eq!(actions(&mut session), [], "one is in flight");
    session.handle_frame(ServerFrame::Acquired(TOKEN), at(610));
    assert_eq!(actions(&mut session), []);
    assert_eq!(
        session.grant(at(1_049)),
        Ok(Some(TOKEN)),
        "250 + 800 is the new deadline"
    );
}

#[test]
fn the_claim_is_given_up_at_four_fifths_of_the_lease_from_the_sending() {
    let mut session = holding_session();
    session.handle_timeout(at(250));
    assert_eq!(actions(&mut session), [heartbeat()]);
    session.handle_timeout(at(799));
    assert_eq!(actions(&mut session), []);
    session.handle_timeout(at(800));
    let lost = Lost::HeartbeatTimeout {
        unconfirmed: Duration::from_millis(800),
    };
    assert_eq!(actions(&mut session), ended(lost.clone()));
    assert_eq!(session.poll_timeout(), None);
    assert_eq!(session.grant(at(800)), Err(lost));
    assert_eq!(session.safe_until(), at(900));
}

/// Found by the simulation: with the whole lease, a client whose clock runs slow believed itself safe while a server
/// whose clock runs fast had ended the lease.
#[test]
fn the_safe_time_ends_before_the_lease_on_the_fastest_server_by_the_slowest_clock() {
    let mut session = holding_session();
    session.handle_timeout(at(250));
    session.handle_timeout(at(800));
    let safe_in_true_time = session.safe_until().as_nanos() * 100 / 95;
    let lease_in_true_time = at(1_000).as_nanos() * 100 / 105;
    assert!(safe_in_true_time < lease_in_true_time);
}

#[test]
fn an_unanswered_acquire_is_given_up_too() {
    let mut session = session();
    assert_eq!(session.poll_timeout(), Some(at(800)));
    session.handle_timeout(at(800));
    let unconfirmed = Duration::from_millis(800);
    assert_eq!(
        actions(&mut session),
        ended(Lost::HeartbeatTimeout { unconfirmed })
    );
}

#[test]
fn a_waiter_keeps_beating_and_gives_up_like_a_holder() {
    let mut session = waiting_session();
    for beat in 1..=20 {
        session.handle_timeout(at(beat * 250));
        assert_eq!(actions(&mut session), [heartbeat()]);
        session.handle_frame(ServerFrame::Waiting, at(beat * 250));
    }
    assert_eq!(session.grant(at(5_000)), Ok(None));
    session.handle_timeout(at(5_250));
    assert_eq!(actions(&mut session), [heartbeat()]);
    session.handle_timeout(at(5_800));
    let unconfirmed = Duration::from_millis(800);
    assert_eq!(
        actions(&mut session),
        ended(Lost::HeartbeatTimeout { unconfirmed })
    );
}

#[test]
fn the_push_answers_nothing() {
    let mut session = waiting_session();
    session.handle_timeout(at(250));
    assert_eq!(actions(&mut session), [heartbeat()]);
    session.handle_frame(ServerFrame::Acquired(TOKEN), at(260));
    assert_eq!(actions(&mut session), [Action::Granted(TOKEN)]);
    assert_eq!(
        session.poll_timeout(),
        Some(at(800)),
        "the heartbeat is still unanswered"
    );
    session.handle_frame(ServerFrame::Acquired(TOKEN), at(270));
    assert_eq!(actions(&mut session), []);
    // The round trip of the answer, 20 ms smoothed to 4 ms, shortens the interval by 8 ms.
    assert_eq!(session.poll_timeout(), Some(at(250 + 242)));
    assert_eq!(session.grant(at(1_049)), Ok(Some(TOKEN)));
}

#[test]
fn a_push_between_two_heartbeats_leaves_the_schedule_alone() {
    let mut session = waiting_session();
    session.handle_frame(ServerFrame::Acquired(TOKEN), at(100));
    assert_eq!(actions(&mut session), [Action::Granted(TOKEN)]);
    assert_eq!(session.poll_timeout(), Some(at(250)));
    assert_eq!(session.safe_until(), at(900), "a promotion confirms nothing");
}

#[test]
fn an_answer_after_the_deadline_comes_too_late() {
    let mut session = holding_session();
    session.handle_timeout(at(250));
    assert_eq!(actions(&mut session), [heartbeat()]);
    session.handle_frame(ServerFrame::Acquired(TOKEN), at(800));
    let unconfirmed = Duration::from_millis(800);
    assert_eq!(
        actions(&mut session),
        ended(Lost::HeartbeatTimeout { unconfirmed })
    );
}

#[test]
fn a_grant_after_the_deadline_is_never_announced() {
    let mut session = waiting_session();
    session.handle_timeout(at(250));
    assert_eq!(actions(&mut session), [heartbeat()]);
    session.handle_frame(ServerFrame::Acquired(TOKEN), at(900));
    let unconfirmed = Duration::from_millis(900);
    assert_eq!(
        actions(&mut session),
        ended(Lost::HeartbeatTimeout { unconfirmed })
    );
}

#[test]
fn waking_up_past_the_deadline_is_told_from_a_silent_server() {
    // No heartbeat in flight: this process failed to send one at 250.
    let mut session = holding_session();
    assert_eq!(
        session.grant(at(900)),
        Err(Lost::Suspended {
            overslept: Duration::from_millis(650)
        })
    );
    // One in flight, and the whole lease slept through.
    let mut session = holding_session();
    session.handle_timeout(at(250));
    assert_eq!(actions(&mut session), [heartbeat()]);
    session.handle_timeout(at(60_000));
    let overslept = Duration::from_millis(59_200);
    assert_eq!(actions(&mut session), ended(Lost::Suspended { overslept }));
}

#[test]
fn whatever_is_called_first_after_the_deadline_finds_the_claim_lost() {
    type Call = fn(&mut Session);
    let calls: [Call; 6] = [
        |session| session.handle_timeout(at(10_000)),
        |session| session.handle_frame(ServerFrame::Acquired(TOKEN), at(10_000)),
        |session| session.handle_received(&ServerFrame::Acquired(TOKEN).to_bytes(), at(10_000)),
        |session| session.handle_closed(None, at(10_000)),
        |session| session.release(at(10_000)),
        |session| assert!(session.grant(at(10_000)).is_err()),
    ];
    for call in calls {
        let mut session = holding_session();
        call(&mut session);
        let overslept = Duration::from_millis(9_750);
        assert_eq!(actions(&mut session), ended(Lost::Suspended { overslept }));
    }
}

#[test]
fn an_error_frame_ends_the_session_and_says_why() {
    let mut session = holding_session();
    session.handle_frame(ServerFrame::error(ErrorCode::ClosedByAdministrator), at(10));
    let lost = Lost::Server {
        code: ErrorCode::ClosedByAdministrator,
        reason: "closed by administrator".to_owned(),
    };
    assert_eq!(actions(&mut session), ended(lost.clone()));
    assert_eq!(
        lost.to_string(),
        "the server ended the session: 0x02 closed by administrator"
    );
    session.handle_closed(None, at(11));
    assert_eq!(actions(&mut session), [], "the first cause stands");
    assert_eq!(
        session.safe_until(),
        BootInstant::ZERO,
        "the lock may be granted again already"
    );
    assert_eq!(session.grant(at(12)), Err(lost));
}

#[test]
fn a_grant_and_an_error_in_one_segment_announce_no_grant() {
    let mut session = session();
    let mut bytes = ServerFrame::Acquired(TOKEN).to_bytes();
    ServerFrame::error(ErrorCode::ShuttingDown).encode(&mut bytes);
    session.handle_received(&bytes, at(1));
    let lost = Lost::Server {
        code: ErrorCode::ShuttingDown,
        reason: "server shutting down".to_owned(),
    };
    assert_eq!(actions(&mut session), ended(lost));
}

#[test]
fn what_no_server_sends_ends_the_session() {
    use ServerFrame::{Acquired, Waiting};
    let other = Token::new(8);
    let changed = Violation::TokenChanged {
        granted: TOKEN,
        received: other,
    };
    type Case = (fn() -> Session, ServerFrame, Violation);
    let cases: [Case; 4] = [
        (waiting_session, Waiting, Violation::UnaskedAnswer),
        (holding_session, Acquired(TOKEN), Violation::UnaskedAnswer),
        (holding_session, Acquired(other), changed),
        (holding_session, Waiting, Violation::FellBackToWaiting),
    ];
    for (start, frame, violation) in cases {
        let mut session = start();
        session.handle_frame(frame, at(10));
        assert_eq!(actions(&mut session), ended(Lost::ProtocolViolation(violation)));
    }
    let mut session = holding_session();
    session.handle_received(b"HTTP/1.1 400", at(10));
    let unknown = Violation::UnknownFrame { message_type: b'H' };
    assert_eq!(actions(&mut session), ended(Lost::ProtocolViolation(unknown)));
}

#[test]
fn closing_and_releasing_end_the_session_once() {
    let mut session = holding_session();
    session.handle_closed(Some(io::ErrorKind::ConnectionReset), at(1));
    session.release(at(2));
    let lost = Lost::Closed(Some(io::ErrorKind::ConnectionReset));
    assert_eq!(
        lost.to_string(),
        "the connection to the server was closed: connection reset"
    );
    assert_eq!(actions(&mut session), ended(lost));

    let mut session = waiting_session();
    session.release(at(1));
    session.handle_frame(ServerFrame::Acquired(TOKEN), at(2));
    assert_eq!(actions(&mut session), ended(Lost::Released), "no late grant");
}

proptest! {
    #[test]
    fn how_the_bytes_are_cut_does_not_matter(cuts in proptest::collection::vec(1..12_usize, 0..12)) {
        let mut bytes = ServerFrame::Waiting.to_bytes();
        ServerFrame::Acquired(TOKEN).encode(&mut bytes);
        ServerFrame::error(ErrorCode::NotActive).encode(&mut bytes);
        let mut session = session();
        let mut seen = Vec::new();
        let mut rest = &bytes[..];
        for cut in cuts.into_iter().chain([bytes.len()]) {
            let (chunk, left) = rest.split_at(cut.min(rest.len()));
            session.handle_received(chunk, at(1));
            rest = left;
            seen.extend(actions(&mut session));
        }
        prop_assert_eq!(rest, &[] as &[u8]);
        let lost = Lost::Server { code: ErrorCode::NotActive, reason: ErrorCode::NotActive.text().to_owned() };
        prop_assert_eq!(seen.last(), Some(&Action::Ended(lost)));
    }

    /// Whatever a peer sends and whenever: no panic, at most one grant, an end is final, and a claim that counts as
    /// held was confirmed by something sent less than 0.8 leases ago.
    #[test]
    fn any_peer_is_survived(
        steps in proptest::collection::vec((0..400_u64, proptest::option::of(
            prop_oneof![
                Just(vec![0x11]),
                Just(ServerFrame::Acquired(TOKEN).to_bytes()),
                proptest::collection::vec(any::<u8>(), 0..4),
            ],
        )), 0..40),
    ) {
        let mut session = session();
        let (mut now, mut last_sent, mut grants, mut over) = (0, 0, 0, false);
        for (wait, bytes) in steps {
            now += wait;
            match bytes {
                Some(bytes) => session.handle_received(&bytes, at(now)),
                None => session.handle_timeout(at(now)),
            }
            for action in actions(&mut session) {
                prop_assert!(!over, "{:?} after the end", action);
                match action {
                    Action::Send(_) => last_sent = now,
                    Action::Granted(_) => grants += 1,
                    Action::Queued => {}
                    Action::Ended(_) => over = true,
                }
            }
            if session.grant(at(now)).is_ok() {
                prop_assert!(now < last_sent + 800 && !over);
            }
            actions(&mut session).into_iter().for_each(|_| over = true);
            prop_assert!(grants <= 1);
        }
    }
}
