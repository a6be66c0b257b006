//! The paths of the peer link.

use hyper::Method;

use super::Sender;

/// One call of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Challenge,
    Node,
    Follow,
    Acknowledge,
    Promise,
    Fence,
    Handover,
    BeginHandover,
    ExtendReserve,
}

impl Route {
    const ALL: [Self; 9] = [
        Self::Challenge,
        Self::Node,
        Self::Follow,
        Self::Acknowledge,
        Self::Promise,
        Self::Fence,
        Self::Handover,
        Self::BeginHandover,
        Self::ExtendReserve,
    ];

    pub(crate) fn find(method: &Method, path: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|route| route.path() == path && route.method() == method)
    }

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Challenge => "/v1/challenge",
            Self::Node => "/v1/node",
            Self::Follow => "/v1/follow",
            Self::Acknowledge => "/v1/acknowledge",
            Self::Promise => "/v1/promise",
            Self::Fence => "/v1/fence",
            Self::Handover => "/v1/handover",
            Self::BeginHandover => "/v1/begin-handover",
            Self::ExtendReserve => "/v1/extend-reserve",
        }
    }

    pub(crate) const fn method(self) -> &'static Method {
        match self {
            Self::Challenge | Self::Node | Self::Follow => &Method::GET,
            Self::Acknowledge
            | Self::Promise
            | Self::Fence
            | Self::Handover
            | Self::BeginHandover
            | Self::ExtendReserve => &Method::POST,
        }
    }

    /// Whether this sender may make the call; that it is no reflection of the receiver's own is checked elsewhere.
    pub(crate) const fn is_open_to(self, sender: Sender) -> bool {
        match (self, sender) {
            (Self::Challenge | Self::Node | Self::BeginHandover | Self::ExtendReserve, Sender::Operator)
            | (_, Sender::Node(_)) => true,
            (_, Sender::Operator) => false,
        }
    }
}
