//! Time servers, one of which may lie, and what a node makes of them.

use std::time::Duration;

use monolock_failover_core::NodeId;
use monolock_failover_core::clock::{ClockCheck, ClockLimits, ClockOffset, ClockReading, ClockSample};
use monolock_protocol::{BootInstant, WallTime};

use super::{NodeEvent, World};
use crate::clock::FIRST_SECOND;
use crate::laws::Checked;
use crate::mutation::Slip;
use crate::network::{Host, Link};
use crate::plan::TTL_US;

/// As many are asked.
pub(super) const TIME_SERVERS: usize = 3;

const DISPERSION: Duration = Duration::from_millis(1);

impl World {
    pub(super) fn new_clock_check(&self) -> ClockCheck {
        let servers = if self.slips(Slip::OneTimeServerDecides) {
            1
        } else {
            TIME_SERVERS
        };
        ClockCheck::new(ClockLimits {
            servers,
            max_offset: Duration::from_millis(500),
            max_age: Duration::from_secs(10),
        })
    }

    /// Every time server is asked by itself.
    pub(super) fn ask_time(&mut self, node: NodeId) {
        self.push_node(self.now + TTL_US, node, NodeEvent::AskTime);
        let asked = self.boot(node);
        let asked_servers = if self.slips(Slip::OneTimeServerDecides) {
            1
        } else {
            TIME_SERVERS
        };
        for server in 0..asked_servers {
            if !self.reaches(Host::Node(node), Host::Names, Link::Witness) {
                continue;
            }
            let arrives = self.now + self.delay(Link::Witness);
            let lie = if server == 0 {
                self.plan.weather.first_time_server_lies_us
            } else {
                0
            };
            let shows = (FIRST_SECOND * 1_000_000 + arrives).saturating_add_signed(lie);
            let shows = WallTime::from_unix_nanos(shows * 1_000);
            let answered = arrives + self.delay(Link::Witness);
            self.push_node(answered, node, NodeEvent::TimeTold(server, asked, shows));
        }
    }

    pub(super) fn time_told(
        &mut self,
        node: NodeId,
        server: usize,
        asked: BootInstant,
        shows: WallTime,
    ) -> Checked {
        let now = self.nodes[&node].clock.read(self.now);
        let half = now.boot.saturating_duration_since(asked) / 2;
        let sample = ClockSample {
            offset: ClockOffset::between(now.wall, shows.saturating_add(half)),
            error: half + DISPERSION,
            reading: ClockReading {
                wall: now.wall,
                boot: now.boot,
            },
        };
        self.process(node).clock_check.handle_sample(server, sample);
        self.judge_clock(node)
    }

    /// What the wall clock is worth.
    pub(super) fn judge_clock(&mut self, node: NodeId) -> Checked {
        let now = self.nodes[&node].clock.read(self.now);
        let reading = ClockReading {
            wall: now.wall,
            boot: now.boot,
        };
        let unchecked = self.slips(Slip::WallClockIsNotChecked);
        let process = self.process(node);
        process.clock_check.handle_reading(reading);
        let verdict = process.clock_check.verdict(reading);
        let trusted = unchecked || verdict.allows_first_start();
        let epoch = trusted.then(|| now.wall.unix_seconds());
        process.watchdog.handle_clock(epoch, now.boot);
        if unchecked || verdict.allows_adoption() {
            self.table_step(node, |table, later| table.adopt_wall_clock(now, later))?;
        }
        Ok(())
    }
}
