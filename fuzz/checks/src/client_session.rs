//! The client's session under any bytes of a server, whole or byte by byte, at any time.

use arbitrary::{Arbitrary, Unstructured};
use monolock_client::session::{Action, Session};
use monolock_client::{BootInstant, Lease, LockName};

#[derive(Arbitrary)]
enum Input<'a> {
    Received { after_ms: u16, bytes: &'a [u8] },
    Timeout { after_ms: u16 },
    Due,
    Closed { after_ms: u16 },
    Release { after_ms: u16 },
}

pub(crate) fn check(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(lease) = u16::arbitrary(&mut input) else {
        return;
    };
    let lease = Lease::from_millis(u32::from(lease) + 1).expect("positive");
    let mut now = BootInstant::from_millis(1);
    let name = LockName::new("a").expect("valid");
    // One session gets each piece as a whole, the other byte by byte.
    let mut whole = Watched::new(Session::new(&name, lease, now));
    let mut pieces = Watched::new(Session::new(&name, lease, now));
    while !input.is_empty() {
        let Ok(step) = Input::arbitrary(&mut input) else {
            break;
        };
        now = step.moment(now, &whole.session);
        match step {
            Input::Received { bytes, .. } => {
                whole.session.handle_received(bytes, now);
                for byte in bytes {
                    pieces.session.handle_received(&[*byte], now);
                }
            }
            Input::Timeout { .. } | Input::Due => {
                whole.session.handle_timeout(now);
                pieces.session.handle_timeout(now);
            }
            Input::Closed { .. } => {
                whole.session.handle_closed(None, now);
                pieces.session.handle_closed(None, now);
            }
            Input::Release { .. } => {
                whole.session.release(now);
                pieces.session.release(now);
            }
        }
        assert_eq!(whole.look(now), pieces.look(now), "pieces change nothing");
    }
}

impl Input<'_> {
    fn moment(&self, now: BootInstant, session: &Session) -> BootInstant {
        match self {
            Self::Due => session.poll_timeout().map_or(now, |due| due.max(now)),
            Self::Received { after_ms, .. }
            | Self::Timeout { after_ms }
            | Self::Closed { after_ms }
            | Self::Release { after_ms } => now + std::time::Duration::from_millis((*after_ms).into()),
        }
    }
}

/// A session and what it has said so far.
struct Watched {
    session: Session,
    granted: Option<monolock_client::Token>,
    ended: bool,
}

impl Watched {
    fn new(session: Session) -> Self {
        Self {
            session,
            granted: None,
            ended: false,
        }
    }

    /// Takes the actions and holds them against what may follow what.
    fn look(&mut self, now: BootInstant) -> Vec<Action> {
        let mut held = self.session.grant(now);
        let actions: Vec<_> = std::iter::from_fn(|| self.session.poll_action()).collect();
        for action in &actions {
            assert!(!self.ended, "{action:?} after the end");
            match action {
                Action::Send(_) => {}
                Action::Queued => assert_eq!(self.granted, None, "queued after the grant"),
                Action::Granted(token) => {
                    assert_eq!(self.granted.replace(*token), None, "granted twice");
                }
                Action::Ended(_) => self.ended = true,
            }
        }
        if let Ok(token) = &mut held {
            assert!(!self.ended);
            assert_eq!(*token, self.granted, "holds what was granted");
            assert!(now < self.session.safe_until(), "held beyond the lease");
            assert!(
                self.session.poll_timeout().is_some(),
                "an open session has a deadline"
            );
        } else {
            assert!(
                self.ended && self.session.poll_timeout().is_none(),
                "over is over"
            );
        }
        actions
    }
}
