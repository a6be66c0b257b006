//! The lock table against a naive model: sessions that ask, beat, close, expire and are thrown out in any order.

use arbitrary::{Arbitrary, Unstructured};

#[path = "../../../server/core/tests/naive_model/mod.rs"]
mod naive_model;

use naive_model::Step;

#[derive(Arbitrary)]
enum Input {
    Acquire { lock: u8, lease: u8 },
    Heartbeat { claim: u8 },
    Close { claim: u8, cause: u8 },
    ForceRelease { lock: u8 },
    Kick { claim: u8 },
    Elapse { millis: u8, wall_step: i16, timer: bool },
}

impl From<Input> for Step {
    fn from(input: Input) -> Self {
        match input {
            Input::Acquire { lock, lease } => Self::Acquire {
                lock: lock.into(),
                lease: u32::from(lease) + 1,
            },
            Input::Heartbeat { claim } => Self::Heartbeat { claim: claim.into() },
            Input::Close { claim, cause } => Self::Close {
                claim: claim.into(),
                cause: cause.into(),
            },
            Input::ForceRelease { lock } => Self::ForceRelease { lock: lock.into() },
            Input::Kick { claim } => Self::Kick { claim: claim.into() },
            Input::Elapse {
                millis,
                wall_step,
                timer,
            } => Self::Elapse {
                millis: millis.into(),
                wall_step: wall_step.into(),
                timer,
            },
        }
    }
}

pub(crate) fn check(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let steps = std::iter::from_fn(|| {
        if input.is_empty() {
            return None;
        }
        Input::arbitrary(&mut input).ok().map(Step::from)
    });
    naive_model::agree(steps.take(MOST_STEPS));
}

/// The model scans: long sequences cost more than they show.
const MOST_STEPS: usize = 400;
