//! The table against a naive model.

mod naive_model;

use naive_model::{Step, agree};
use proptest::prelude::*;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3usize, 1..60u32).prop_map(|(lock, lease)| Step::Acquire { lock, lease }),
        4 => (0..40usize).prop_map(|claim| Step::Heartbeat { claim }),
        3 => (0..40usize, 0..3usize).prop_map(|(claim, cause)| Step::Close { claim, cause }),
        1 => (0..3usize).prop_map(|lock| Step::ForceRelease { lock }),
        1 => (0..40usize).prop_map(|claim| Step::Kick { claim }),
        3 => (0..40u64, -2_000..2_000i64, any::<bool>())
            .prop_map(|(millis, wall_step, timer)| Step::Elapse { millis, wall_step, timer }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_naive_model(steps in prop::collection::vec(step(), 1..120)) {
        agree(steps);
    }
}
