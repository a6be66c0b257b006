//! Several hosts on one machine, each with an address and a name of its own, and the faults between them.
//!
//! A host is a network namespace, joined to the others by a switch in yet another one. The processes on it are ours: they
//! can be killed and frozen, and every packet between two hosts can be dropped in one direction or both, at random or
//! always. Containers would add nothing to that but a slower start and a layer between the test and the kernel's drops;
//! what a test needs of a host is [`Host::command`] and [`Network`]'s faults, should they ever serve as well.
//!
//! It takes root, `ip` and `nft`; where these are missing, [`Network::new`] fails and says so.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`network`] | hosts, the switch and its faults |
//! | [`parties`] | what runs on the hosts: BIND, PostgreSQL, chronyd, the nodes of a pair |
//! | [`journal`] | the times of authority in a node's journal |

pub mod journal;
pub mod network;
pub mod parties;

pub use network::{Host, Network};
