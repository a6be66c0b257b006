//! Decode, encode, decode: of both directions, whole and cut short.

use monolock_protocol::frame::{
    ClientFrame, Decoded, HEARTBEAT_FRAME, ServerFrame, SessionPhase, decode_client_frame,
    decode_server_frame, encode_acquire,
};

pub(crate) fn check(bytes: &[u8]) {
    for phase in [SessionPhase::AwaitingAcquire, SessionPhase::Claimed] {
        from_client(bytes, phase);
    }
    from_server(bytes);
}

fn from_client(bytes: &[u8], phase: SessionPhase) {
    let decoded = decode_client_frame(bytes, phase);
    for end in 0..bytes.len() {
        match decode_client_frame(&bytes[..end], phase) {
            Ok(Decoded::Incomplete) => {}
            early => assert_eq!(early, decoded, "what follows changes nothing: {end} bytes"),
        }
    }
    let Ok(Decoded::Frame { frame, consumed }) = decoded else {
        return;
    };
    let mut encoded = Vec::new();
    match &frame {
        ClientFrame::Acquire { name, lease } => encode_acquire(name, *lease, &mut encoded),
        ClientFrame::Heartbeat => encoded.extend(HEARTBEAT_FRAME),
    }
    assert_eq!(encoded, bytes[..consumed]);
    for end in 0..consumed {
        assert_eq!(
            decode_client_frame(&bytes[..end], phase),
            Ok(Decoded::Incomplete),
            "{end} bytes"
        );
    }
}

fn from_server(bytes: &[u8]) {
    let Ok(Decoded::Frame { frame, consumed }) = decode_server_frame(bytes) else {
        return;
    };
    for end in 0..consumed {
        assert_eq!(
            decode_server_frame(&bytes[..end]),
            Ok(Decoded::Incomplete),
            "{end} bytes"
        );
    }
    let encoded = frame.to_bytes();
    let again = decode_server_frame(&encoded);
    let Ok(Decoded::Frame {
        frame: second,
        consumed,
    }) = again
    else {
        panic!("an encoded frame is a whole one: {again:?}");
    };
    assert_eq!(consumed, encoded.len());
    assert_eq!(second.to_bytes(), encoded);
    // Replacement characters are longer than the bytes they stand for, so a reason may not fit any more.
    let fits = !matches!(&frame, ServerFrame::Error { reason, .. } if reason.len() > 255);
    assert!(!fits || second == frame, "{frame:?} became {second:?}");
}
