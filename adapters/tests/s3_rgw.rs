//! S3 as Ceph speaks it: the self-test finds out its ways, and with those the conformance suite holds. Needs the Debian
//! packages `radosgw`, `ceph-mon`, `ceph-osd` and `ceph-common`.

#![cfg(feature = "s3")]

mod common;

use std::sync::Arc;

use common::ministack::{BUCKET, client_at};
use common::objects::{self, OneObject};
use common::proxy::Proxy;
use common::rgw::Rgw;
use common::suite;
use monolock_adapters::s3::Objects;

/// One cluster for all, since it takes long to start.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms_in_the_way_that_the_self_test_found() {
    let mut server = Rgw::start().await;
    let fast = Objects::new(server.client(), BUCKET);
    let report = fast.self_test("probe/").await.expect("a sound endpoint");
    assert!(!report.quoted_etags, "it wants bare ETags: {report:?}");
    assert!(
        !report.conditional_multipart,
        "it completes uploads whatever the condition: {report:?}"
    );
    let fast = fast.adapted_to(&report);
    let proxy = Proxy::start(server.port()).await;
    let slow = Objects::new(client_at(proxy.port()), BUCKET).adapted_to(&report);

    suite::run(object(&fast, "suite"), 15, common::seed()).await;
    objects::a_writer_paused_anywhere_is_never_accepted_late(&fast, &slow, &proxy).await;
    objects::a_lost_answer_is_found_out(&fast, &slow, &proxy, "PUT /").await;
    let store = Arc::new(object(&fast, "restart"));
    suite::race_through_a_restart(store, server.crash_and_restart(), common::seed()).await;
}

fn object(objects: &Objects, key: &str) -> OneObject {
    OneObject {
        objects: objects.clone(),
        key: key.to_owned(),
    }
}
