//! S3 as Ceph speaks it: the self-test finds out its ways, and with those the conformance suite holds. Needs the Debian
//! packages `radosgw`, `ceph-mon`, `ceph-osd` and `ceph-common`.

#![cfg(feature = "s3")]

mod common;

use common::ministack::BUCKET;
use common::objects::OneObject;
use common::rgw::Rgw;
use common::suite;
use monolock_adapters::s3::Objects;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms_in_the_way_that_the_self_test_found() {
    let server = Rgw::start().await;
    let objects = Objects::new(server.client(), BUCKET);
    let report = objects.self_test("probe/").await.expect("a sound endpoint");
    assert!(!report.quoted_etags, "it wants bare ETags: {report:?}");
    assert!(
        !report.conditional_multipart,
        "it completes uploads whatever the condition: {report:?}"
    );
    let objects = objects.adapted_to(&report);
    suite::run(
        OneObject {
            objects,
            key: "object".into(),
        },
        15,
        common::seed(),
    )
    .await;
}
