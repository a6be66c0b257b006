//! Large bodies in parts. The request that completes them carries the condition; until then nothing is visible.

use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;

use super::request::{Answer, Bucket, answer_of, plain};

/// The size of a part, the last one excepted: 16 MiB. S3 wants at least 5.
const PART_SIZE: usize = 16 << 20;

/// When the upload may be completed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When<'w> {
    /// If the key still has this ETag, or still has no object.
    Unchanged(Option<&'w str>),
    /// Whatever is there: for keys that are never used twice.
    Always,
}

/// Uploads and completes; gives the parts back unless it was completed.
pub(crate) async fn put(bucket: &Bucket, key: &str, body: Bytes, when: When<'_>) -> Answer {
    let create = bucket
        .client
        .create_multipart_upload()
        .bucket(&bucket.name)
        .key(key);
    let upload = match create.customize().config_override(plain()).send().await {
        Ok(created) => created.upload_id.unwrap_or_default(),
        // An upload that nobody completes writes nothing.
        Err(error) => return unwritten(answer_of(error)),
    };
    let answer = match upload_parts(bucket, key, &upload, &body).await {
        Ok(parts) => complete(bucket, key, &upload, parts, when).await,
        Err(answer) => answer,
    };
    if !matches!(answer, Answer::Done) {
        abort(bucket, key, &upload).await;
    }
    answer
}

async fn upload_parts(
    bucket: &Bucket,
    key: &str,
    upload: &str,
    body: &Bytes,
) -> Result<CompletedMultipartUpload, Answer> {
    let mut parts = CompletedMultipartUpload::builder();
    for (number, start) in (1..).zip((0..body.len()).step_by(PART_SIZE)) {
        let part = body.slice(start..body.len().min(start + PART_SIZE));
        let request = bucket
            .client
            .upload_part()
            .bucket(&bucket.name)
            .key(key)
            .upload_id(upload);
        let request = request.part_number(number).body(ByteStream::from(part));
        let sent = request.customize().config_override(plain()).send().await;
        let sent = sent.map_err(|error| unwritten(answer_of(error)))?;
        parts = parts.parts(
            CompletedPart::builder()
                .part_number(number)
                .set_e_tag(sent.e_tag)
                .build(),
        );
    }
    Ok(parts.build())
}

async fn complete(
    bucket: &Bucket,
    key: &str,
    upload: &str,
    parts: CompletedMultipartUpload,
    when: When<'_>,
) -> Answer {
    let request = bucket
        .client
        .complete_multipart_upload()
        .bucket(&bucket.name)
        .key(key);
    let request = request.upload_id(upload).multipart_upload(parts);
    let request = match when {
        When::Unchanged(Some(etag)) => request.if_match(bucket.etag(etag)),
        When::Unchanged(None) => request.if_none_match("*"),
        When::Always => request,
    };
    match request.customize().config_override(plain()).send().await {
        Ok(_) => Answer::Done,
        Err(error) => answer_of(error),
    }
}

/// Best effort: an endpoint that keeps the parts of a dead upload costs storage, not correctness.
async fn abort(bucket: &Bucket, key: &str, upload: &str) {
    let request = bucket
        .client
        .abort_multipart_upload()
        .bucket(&bucket.name)
        .key(key)
        .upload_id(upload);
    drop(request.send().await);
}

/// The answer of a request that makes nothing visible, whatever became of it.
fn unwritten(answer: Answer) -> Answer {
    match answer {
        Answer::Lost(source) => Answer::Race(source),
        Answer::Done | Answer::Race(_) | Answer::Refused(_) => answer,
    }
}
