//! What a seed does to the system: the weather, and which faults strike when.

use std::fmt;

use monolock_failover_core::NodeId;

use crate::random::Rng;

/// One authority period, in microseconds.
pub(crate) const TTL_US: u64 = 1_000_000;
/// By then the first active serves, and clients hold locks.
pub(crate) const FAULTS_START_US: u64 = 3 * TTL_US;
/// Nothing goes wrong any more.
pub(crate) const FAULTS_END_US: u64 = 30 * TTL_US;
/// From here on nobody loses or takes a term, and everybody who waits is served.
pub(crate) const SETTLED_US: u64 = FAULTS_END_US + 12 * TTL_US;
/// The end.
pub(crate) const END_US: u64 = SETTLED_US + 12 * TTL_US;

const A_YEAR_US: i64 = 31_536_000_000_000;

/// Everything that is decided before a run begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed it was drawn from; the network's noise comes from it too.
    pub seed: u64,
    /// How bad the network and the machines are.
    pub weather: Weather,
    /// What goes wrong, in order of time.
    pub strikes: Vec<Strike>,
}

/// A fault and its moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// In microseconds of true time.
    pub at: u64,
    /// What happens.
    pub fault: Fault,
}

/// A node, as a fault finds it when it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one whose gate is open; else `a`.
    Active,
    /// The other.
    Standby,
    /// This one.
    Named(NodeId),
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Killed; its kernel closes its connections.
    Crash,
    /// The machine is gone without a word, and boots again later.
    PowerLoss,
    /// Asked to stop: it hands over or releases its term first.
    Terminate,
}

/// Something that goes wrong, or that an operator wants. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A node's process ends, and starts again after `down`.
    End {
        /// Which node.
        node: Which,
        /// How.
        how: Ending,
        /// For how long it is away.
        down: u64,
        /// Its state file is lost meanwhile.
        loses_disk: bool,
    },
    /// An operator asks for a handover.
    Handover,
    /// A node's machine is suspended.
    Freeze {
        /// Which node.
        node: Which,
        /// For how long.
        length: u64,
    },
    /// What this node sends does not reach its peer.
    CutFromPeer {
        /// The sender.
        node: Which,
        /// For how long.
        length: u64,
        /// Nor does what the peer sends reach it.
        both_ways: bool,
    },
    /// What this node asks does not reach the witness.
    CutFromWitness {
        /// Which node.
        node: Which,
        /// For how long.
        length: u64,
    },
    /// What the witness answers does not reach this node.
    DeafToWitness {
        /// Which node.
        node: Which,
        /// For how long.
        length: u64,
    },
    /// The witness is away.
    WitnessDown {
        /// For how long.
        length: u64,
    },
    /// A node's wall clock steps.
    WallClockSteps {
        /// Which node.
        node: Which,
        /// By so much.
        by: i64,
    },
    /// A middlebox forgets the connections of a node's clients.
    SessionsReset {
        /// Which node.
        node: Which,
    },
    /// A client's machine is suspended.
    FreezeClient {
        /// Which client.
        client: usize,
        /// For how long.
        length: u64,
    },
    /// A client's process is killed and comes back.
    CrashClient {
        /// Which client.
        client: usize,
        /// Its machine goes with it: nobody hears of it.
        silently: bool,
    },
    /// A client and a node do not reach each other.
    CutClient {
        /// Which client.
        client: usize,
        /// Which node.
        node: Which,
        /// For how long.
        length: u64,
        /// What the client sends is lost.
        sends: bool,
        /// What the node sends is lost.
        hears: bool,
    },
    /// So many short claims that tokens run out faster than seconds.
    Burst {
        /// For how long.
        length: u64,
    },
    /// Resolvers keep what they have, beyond its time to live.
    NamesStale {
        /// For how long.
        length: u64,
    },
}

/// How bad a seed's network and machines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// How many messages in a hundred are late: between the nodes, at the witness, at the clients.
    pub late_percent: [u64; 3],
    /// How many in a hundred are lost.
    pub lost_percent: [u64; 3],
    /// How late they are at the most, in microseconds.
    pub latest_us: u64,
    /// How often in a thousand times a node is suspended just after it has sent something.
    pub freezes_after_sending_per_mille: u64,
    /// How many writes in a hundred leave their client long after it has asked for its token.
    pub late_writes_percent: u64,
    /// How many leases in a hundred are long.
    pub long_leases_percent: u64,
    /// How far the first of the time servers is off.
    pub first_time_server_lies_us: i64,
    /// Node `a` starts with a wall clock that is a day ahead.
    pub first_clock_is_off: bool,
    /// How many client machines there are.
    pub clients: usize,
    /// How many locks they share.
    pub locks: usize,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, 0);
        let weather = Weather::draw(&mut rng);
        let longest_calm = rng.pick(&[TTL_US / 2, TTL_US, 2 * TTL_US, 4 * TTL_US]);
        let may_lose_disks = rng.percent(20);
        let mostly = rng.pick(&Trouble::MOSTLY);
        let mut drawing = Drawing {
            rng,
            mostly,
            clients: weather.clients,
            may_lose_disks,
            strikes: Vec::new(),
        };
        let mut at = FAULTS_START_US;
        while at < FAULTS_END_US {
            drawing.trouble(at);
            at += TTL_US / 10 + drawing.rng.below(longest_calm);
        }
        let mut strikes = drawing.strikes;
        strikes.retain(|strike| strike.at < FAULTS_END_US);
        strikes.sort_by_key(|strike| strike.at);
        Self {
            seed,
            weather,
            strikes,
        }
    }
}

impl Weather {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            late_percent: [0; 3].map(|_| rng.pick(&[0, 2, 10, 30])),
            lost_percent: [0; 3].map(|_| rng.pick(&[0, 0, 5, 15])),
            latest_us: rng.pick(&[TTL_US / 2, TTL_US, TTL_US, 4 * TTL_US]),
            freezes_after_sending_per_mille: rng.pick(&[0, 0, 3, 10]),
            late_writes_percent: rng.pick(&[2, 10, 30]),
            long_leases_percent: rng.pick(&[0, 3, 15]),
            first_time_server_lies_us: rng.pick(&[0, 2_500_000, -3_600_000_000, 3_600_000_000, A_YEAR_US]),
            first_clock_is_off: rng.percent(10),
            clients: rng.pick(&[2, 3, 4, 5]),
            locks: rng.pick(&[1, 2, 3]),
        }
    }
}

/// Several faults that make one trouble together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Siege,
    SiegeForgotten,
    CrashUnseen,
    DoubleEnd,
    LonelyClient,
    TwoHandovers,
}

impl Trouble {
    /// What happens more often in a seed than anything else.
    const MOSTLY: [Option<Self>; 10] = [
        None,
        None,
        None,
        Some(Self::Siege),
        Some(Self::Siege),
        Some(Self::SiegeForgotten),
        Some(Self::CrashUnseen),
        Some(Self::DoubleEnd),
        Some(Self::LonelyClient),
        Some(Self::TwoHandovers),
    ];
}

struct Drawing {
    rng: Rng,
    mostly: Option<Trouble>,
    clients: usize,
    may_lose_disks: bool,
    strikes: Vec<Strike>,
}

impl Drawing {
    fn strike(&mut self, at: u64, fault: Fault) {
        self.strikes.push(Strike { at, fault });
    }

    fn which(&mut self) -> Which {
        self.rng.pick(&[
            Which::Active,
            Which::Active,
            Which::Active,
            Which::Standby,
            Which::Named(NodeId::A),
            Which::Named(NodeId::B),
        ])
    }

    fn end(&mut self, node: Which) -> Fault {
        let longest = self.rng.pick(&[TTL_US / 50, TTL_US / 4, 4 * TTL_US]);
        Fault::End {
            node,
            how: self
                .rng
                .pick(&[Ending::Crash, Ending::Crash, Ending::PowerLoss, Ending::Terminate]),
            down: 1_000 + self.rng.below(longest),
            loses_disk: self.may_lose_disks && self.rng.percent(40),
        }
    }

    /// One fault, or several that make one trouble together.
    fn trouble(&mut self, at: u64) {
        let node = self.which();
        let length = self.rng.below(4 * TTL_US);
        let client = self.rng.below(self.clients as u64) as usize;
        if let Some(trouble) = self.mostly
            && self.rng.percent(60)
        {
            return self.several(at, trouble, Which::Active, client);
        }
        match self.rng.below(32) {
            0..=2 => {
                let fault = self.end(node);
                self.strike(at, fault);
            }
            3..=4 => self.strike(
                at,
                Fault::Freeze {
                    node,
                    length: length * 3 / 4,
                },
            ),
            5 => {
                let both_ways = self.rng.percent(60);
                self.strike(
                    at,
                    Fault::CutFromPeer {
                        node,
                        length,
                        both_ways,
                    },
                );
            }
            6 => self.strike(at, Fault::CutFromWitness { node, length }),
            7 => self.strike(at, Fault::DeafToWitness { node, length }),
            8 => self.strike(at, Fault::WitnessDown { length }),
            9..=10 => self.strike(at, Fault::Handover),
            11 => {
                let by = self.rng.pick(&[
                    -86_400_000_000,
                    -3_000_000,
                    700_000,
                    5_000_000,
                    3_600_000_000,
                    A_YEAR_US,
                ]);
                self.strike(at, Fault::WallClockSteps { node, by });
            }
            12 => self.strike(at, Fault::SessionsReset { node }),
            13..=14 => {
                let length = self.rng.below(6 * TTL_US);
                self.strike(at, Fault::FreezeClient { client, length });
            }
            15 => {
                let silently = self.rng.percent(50);
                self.strike(at, Fault::CrashClient { client, silently });
            }
            16..=17 => self.cut_client(at, client, length),
            18 => self.strike(at, Fault::NamesStale { length }),
            19..=20 => {
                let length = self.rng.between(TTL_US / 5, 4 * TTL_US);
                self.strike(at, Fault::Burst { length });
            }
            21..=25 => self.several(at, Trouble::Siege, node, client),
            26 => self.several(at, Trouble::SiegeForgotten, node, client),
            27..=28 => self.several(at, Trouble::CrashUnseen, node, client),
            29 => self.several(at, Trouble::DoubleEnd, node, client),
            30 => self.several(at, Trouble::LonelyClient, node, client),
            _ => self.several(at, Trouble::TwoHandovers, node, client),
        }
    }

    fn several(&mut self, at: u64, trouble: Trouble, node: Which, client: usize) {
        match trouble {
            Trouble::Siege => self.siege(at, node),
            Trouble::SiegeForgotten => self.siege_forgotten(at),
            Trouble::CrashUnseen => self.crash_unseen(at, node),
            Trouble::DoubleEnd => self.double_end(at),
            Trouble::LonelyClient => self.lonely_client(at, client),
            Trouble::TwoHandovers => self.two_handovers(at, client),
        }
    }

    fn cut_client(&mut self, at: u64, client: usize, length: u64) {
        let node = self.which();
        let (sends, hears) = self.rng.pick(&[(true, true), (true, false), (false, true)]);
        self.strike(
            at,
            Fault::CutClient {
                client,
                node,
                length,
                sends,
                hears,
            },
        );
    }

    /// A node loses first one of its voices and a while later the other.
    fn siege(&mut self, at: u64, node: Which) {
        let mut first = at;
        let mut second = at + self.rng.below(2 * TTL_US);
        let length = self.rng.between(TTL_US, 5 * TTL_US);
        if self.rng.percent(50) {
            (first, second) = (second, first);
        }
        let witness = if self.rng.percent(50) {
            Fault::CutFromWitness { node, length }
        } else {
            Fault::DeafToWitness { node, length }
        };
        let both_ways = self.rng.percent(50);
        self.strike(first, witness);
        self.strike(
            second,
            Fault::CutFromPeer {
                node,
                length,
                both_ways,
            },
        );
    }

    /// A node's process ends and comes back while its peer cannot reach the witness.
    fn crash_unseen(&mut self, at: u64, node: Which) {
        let peer = match node {
            Which::Active => Which::Standby,
            Which::Standby => Which::Active,
            Which::Named(node) => Which::Named(node.peer()),
        };
        let length = self.rng.between(TTL_US, 4 * TTL_US);
        self.strike(at, Fault::CutFromWitness { node: peer, length });
        let fault = self.end(node);
        let later = at + self.rng.below(TTL_US / 4);
        self.strike(later, fault);
    }

    /// The new active ends soon after the old one.
    fn double_end(&mut self, at: u64) {
        let first = self.end(Which::Active);
        let second = self.end(Which::Active);
        self.strike(at, first);
        let later = at + self.rng.between(TTL_US / 5, 3 * TTL_US);
        self.strike(later, second);
    }

    /// The active lives on the promises of a peer that crashes, and uses up tokens meanwhile.
    fn siege_forgotten(&mut self, at: u64) {
        let length = self.rng.between(2 * TTL_US, 6 * TTL_US);
        self.strike(
            at,
            Fault::CutFromWitness {
                node: Which::Active,
                length,
            },
        );
        self.strike(at, Fault::Burst { length });
        let standby = self.end(Which::Standby);
        let active = self.end(Which::Active);
        let first = at + self.rng.below(length);
        let second = first + self.rng.below(TTL_US);
        self.strike(first, standby);
        self.strike(second, active);
    }

    /// A client hears nothing while the term goes to the other node and back.
    fn two_handovers(&mut self, at: u64, client: usize) {
        let length = self.rng.between(TTL_US, 5 * TTL_US);
        for node in [NodeId::A, NodeId::B] {
            let node = Which::Named(node);
            self.strike(
                at,
                Fault::CutClient {
                    client,
                    node,
                    length,
                    sends: true,
                    hears: true,
                },
            );
        }
        let first = at + self.rng.below(TTL_US / 5);
        self.strike(first, Fault::Handover);
        let second = first + self.rng.between(TTL_US / 5, TTL_US);
        self.strike(second, Fault::Handover);
    }

    /// A client loses its server, and its server its term.
    fn lonely_client(&mut self, at: u64, client: usize) {
        let length = self.rng.between(TTL_US, 5 * TTL_US);
        self.cut_client(at, client, length);
        let fault = if self.rng.percent(50) {
            Fault::Handover
        } else {
            self.end(Which::Active)
        };
        let later = at + self.rng.below(TTL_US);
        self.strike(later, fault);
    }
}

fn seconds(us: u64) -> String {
    format!("{}.{:03} s", us / 1_000_000, us / 1_000 % 1_000)
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active => f.write_str("the active"),
            Self::Standby => f.write_str("the standby"),
            Self::Named(node) => write!(f, "node {node}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::End {
                node,
                how,
                down,
                loses_disk,
            } => {
                let how = match how {
                    Ending::Crash => "is killed",
                    Ending::PowerLoss => "loses power",
                    Ending::Terminate => "is told to stop",
                };
                let disk = if loses_disk { " and loses its disk" } else { "" };
                write!(f, "{node} {how}{disk}, back {} later", seconds(down))
            }
            Self::Handover => f.write_str("an operator asks for a handover"),
            Self::Freeze { node, length } => write!(f, "{node} is suspended for {}", seconds(length)),
            Self::CutFromPeer {
                node,
                length,
                both_ways: true,
            } => write!(f, "{node} and its peer lose each other for {}", seconds(length)),
            Self::CutFromPeer { node, length, .. } => {
                write!(f, "{node} does not reach its peer for {}", seconds(length))
            }
            Self::CutFromWitness { node, length } => {
                write!(f, "{node} does not reach the witness for {}", seconds(length))
            }
            Self::DeafToWitness { node, length } => {
                write!(f, "{node} does not hear the witness for {}", seconds(length))
            }
            Self::WitnessDown { length } => write!(f, "the witness is away for {}", seconds(length)),
            Self::WallClockSteps { node, by } => {
                write!(f, "the wall clock of {node} steps by {} s", by as f64 / 1e6)
            }
            Self::SessionsReset { node } => write!(f, "the network resets the sessions of {node}"),
            Self::FreezeClient { client, length } => {
                write!(f, "client {client} is suspended for {}", seconds(length))
            }
            Self::CrashClient { client, silently } => {
                let how = if silently { "loses power" } else { "is killed" };
                write!(f, "client {client} {how}")
            }
            Self::CutClient {
                client,
                node,
                length,
                sends,
                hears,
            } => {
                let way = match (sends, hears) {
                    (true, true) => "loses",
                    (true, false) => "does not reach",
                    _ => "does not hear",
                };
                write!(f, "client {client} {way} {node} for {}", seconds(length))
            }
            Self::Burst { length } => write!(f, "clients use up tokens for {}", seconds(length)),
            Self::NamesStale { length } => write!(f, "resolvers do not ask again for {}", seconds(length)),
        }
    }
}
