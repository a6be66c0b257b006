//! What monolock costs, measured against the limit of the machine and against other lock services.
//!
//! Each row of the table compares the real server, a process of its own, with a reference that runs in the same minute on
//! the same machine under the same client: a bare program that does nothing but the system calls, or a peer (Redis,
//! PostgreSQL, etcd) that the benchmark starts itself. Both are measured in turn, in short rounds, so that whatever disturbs
//! the machine disturbs both; a row shows the median of the rounds' ratios and how far they lie apart.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`plan`] | how long to measure, and in which order |
//! | [`figures`] | medians, quantiles, spreads |
//! | [`table`] | rows, and the table as Markdown |
//! | [`reference`](mod@reference) | the bare programs, as processes |
//! | [`worker`] | clients that do one thing again and again, and how often they get it done |
//! | [`claims`] | the lock server's own clients |
//! | [`peers`] | lock and unlock on Redis, PostgreSQL and etcd |
//! | [`usage`] | memory, processor time, machine |
//! | [`rows`] | the rows themselves |

pub mod claims;
pub mod figures;
pub mod peers;
pub mod plan;
pub mod reference;
pub mod rows;
pub mod table;
pub mod usage;
pub mod worker;
