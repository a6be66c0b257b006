//! A pair, its clients, and what can be done to them in one scenario.

use std::path::{Path, PathBuf};
use std::time::Duration;

use monolock_clock::{boot_now, wall_now};
use monolock_failover_core::NodeId;
use monolock_protocol::{BootInstant, Lease};

use super::Scenario;
use super::clients::{ClientPlan, Clients};
use super::clocks::{Clocks, Step, find_libfaketime};
use super::history::Answer;
use super::network::Network;
use super::pair::{Pair, PairError};
use super::register::Register;
use super::report::{Run, TimelineStep};

/// With what a scenario is played.
#[derive(Clone, Debug)]
pub(super) struct StagePlan {
    pub(super) program: PathBuf,
    pub(super) ttl: Duration,
    pub(super) lease: Lease,
    pub(super) witness: Option<String>,
    pub(super) grace: String,
}

/// Why a scenario is not played.
#[derive(Debug)]
pub(super) enum Unplayed {
    /// It cannot be played here.
    NotHere(String),
    /// Something that should work does not.
    Failed(PairError),
}

impl From<PairError> for Unplayed {
    fn from(error: PairError) -> Self {
        Self::Failed(error)
    }
}

/// One scenario in the playing. Dropping it ends the clients, then the nodes.
pub(super) struct Stage {
    scenario: Scenario,
    clients: Clients,
    pair: Pair,
    network: Option<Network>,
    clocks: Option<Clocks>,
    patience: Duration,
    /// Before each fault: a node that has just come back follows the active again within that time.
    calm: Duration,
}

impl Stage {
    /// Starts a pair with its files in `folder`, and clients that keep asking.
    pub(super) async fn set(scenario: Scenario, plan: &StagePlan, folder: &Path) -> Result<Self, Unplayed> {
        let register = Register::beside(plan.witness.as_deref(), folder).map_err(Unplayed::NotHere)?;
        let mut pair = Pair::prepare(&plan.program, folder, plan.ttl)?;
        let dns = "MONOLOCK_DNS_SERVER MONOLOCK_DNS_ZONE MONOLOCK_DNS_KEY MONOLOCK_DNS_KEY_FILE";
        for node in [NodeId::A, NodeId::B] {
            pair.set(node, "MONOLOCK_WITNESS", register.setting());
            pair.set(node, "MONOLOCK_TAKEOVER_GRACE", &plan.grace);
            // A witness in a zone is reached with the settings of the operator's own.
            for variable in dns.split(' ') {
                if let Some(value) = std::env::var_os(variable) {
                    pair.set(node, variable, value);
                }
            }
        }
        let network = match scenario {
            Scenario::Partition => Some(lay_network(&mut pair, &register, folder).await?),
            _ => None,
        };
        let clocks = match scenario {
            Scenario::ClockStep => Some(attach_clocks(&mut pair, folder)?),
            _ => None,
        };
        for node in [NodeId::A, NodeId::B] {
            pair.start_node(node)?;
        }
        let servers = match &network {
            Some(network) => network.lock_addresses(),
            None => [NodeId::A, NodeId::B].map(|node| pair.lock_address(node)),
        };
        let clients = Clients::start(&ClientPlan {
            servers,
            prefix: "drill".into(),
            lease: plan.lease,
            pause: Duration::from_millis(2),
            holders: vec![vec![NodeId::A], vec![NodeId::B], vec![NodeId::A, NodeId::B]],
        });
        let patience = PATIENCE + plan.ttl * 5 + plan.lease.as_duration() * 2;
        let stage = Self {
            scenario,
            clients,
            pair,
            network,
            clocks,
            patience,
            calm: plan.ttl,
        };
        stage.check_clocks().await?;
        Ok(stage)
    }

    /// Plays the scenario once. What breaks a promise is in the run; an error is something that the drill itself could not do.
    pub(super) async fn play(&mut self) -> Result<Run, PairError> {
        self.pair.wait_until_healthy().await?;
        tokio::time::sleep(self.calm).await;
        let (old, _) = self.pair.wait_until_healthy().await?;
        self.clients.turn();
        if !self.clients.are_served_by(old, self.patience).await {
            return Ok(Run::with_problem(format!(
                "node {old} is active and grants nothing"
            )));
        }
        if let Err(problem) = self.prepare(old).await? {
            return Ok(Run::with_problem(problem));
        }
        let fault = boot_now();
        let asked_from = match self.break_it(old).await {
            Ok(asked_from) => asked_from,
            Err(PairError::Handover(error)) => return Ok(Run::with_problem(error.to_string())),
            Err(error) => return Err(error),
        };
        let mut run = self.observe(old, fault, asked_from).await;
        self.repair(old).await?;
        let healthy = self.pair.wait_until_healthy().await;
        self.judge(&mut run, old, healthy.as_ref().map(|(active, _)| *active));
        if let (Scenario::ClockStep, Ok((active, _)), None) = (self.scenario, &healthy, &run.problem) {
            run.problem = self.fall_back(*active).await?.err();
        }
        run.violations.extend(self.clients.violations());
        run.timeline = self.timeline(fault)?;
        run.argument = argument_of(&run.timeline);
        Ok(run)
    }

    /// What must have happened before the fault itself.
    async fn prepare(&mut self, old: NodeId) -> Result<Result<(), String>, PairError> {
        match &self.clocks {
            Some(clocks) => {
                clocks.set(old, Step::Forward)?;
                Ok(self.grants_anew(old).await)
            }
            None => Ok(Ok(())),
        }
    }

    /// Does what the scenario is named after. A grant of the next term is asked for at the earliest when this returns, if the
    /// same node can give it.
    async fn break_it(&mut self, old: NodeId) -> Result<BootInstant, PairError> {
        match self.scenario {
            Scenario::Kill | Scenario::ClockStep => self.pair.kill(old).await?,
            Scenario::Freeze => self.pair.freeze(old)?,
            Scenario::Partition => {
                let network = self.network.as_ref().expect("laid for this scenario");
                network
                    .isolate(old)
                    .map_err(PairError::system("cut the lines of a node"))?;
            }
            Scenario::Handover => self.pair.hand_over().await?,
            Scenario::DoubleRestart => {
                for node in [old, old.peer()] {
                    self.pair.kill(node).await?;
                }
                let gone = boot_now();
                for node in [old, old.peer()] {
                    self.pair.start_node(node)?;
                }
                return Ok(gone);
            }
        }
        Ok(BootInstant::ZERO)
    }

    /// Waits for the first grants of the next term, of a free lock and of the held one.
    async fn observe(&self, old: NodeId, fault: BootInstant, asked_from: BootInstant) -> Run {
        let either = self.scenario == Scenario::DoubleRestart;
        let is_next = |answer: &Answer| {
            (either || answer.node != old) && answer.received > fault && answer.asked > asked_from
        };
        self.clients.measure(self.patience, is_next).await
    }

    /// Takes the fault away.
    async fn repair(&mut self, old: NodeId) -> Result<(), PairError> {
        match self.scenario {
            Scenario::Kill => self.pair.start_node(old),
            Scenario::ClockStep => {
                let clocks = self.clocks.as_ref().expect("attached for this scenario");
                clocks.set(old, Step::Right)?;
                self.pair.start_node(old)
            }
            Scenario::Freeze => self.pair.thaw(old),
            Scenario::Partition => {
                let network = self.network.as_ref().expect("laid for this scenario");
                network
                    .rejoin(old)
                    .map_err(PairError::system("heal the lines of a node"))
            }
            Scenario::Handover | Scenario::DoubleRestart => Ok(()),
        }
    }

    fn judge(&self, run: &mut Run, old: NodeId, active: Result<NodeId, &PairError>) {
        let either = self.scenario == Scenario::DoubleRestart;
        let problem = match active {
            Ok(active) if either || active != old => return,
            Ok(_) => format!("node {old} is active again: the returning node must stay standby"),
            Err(error) => error.to_string(),
        };
        run.problem.get_or_insert(problem);
    }

    /// The clock of the new active falls back, and is put right again.
    async fn fall_back(&self, active: NodeId) -> Result<Result<(), String>, PairError> {
        let clocks = self.clocks.as_ref().expect("attached for this scenario");
        clocks.set(active, Step::Back)?;
        let behind = self.grants_anew(active).await;
        clocks.set(active, Step::Right)?;
        Ok(behind.and(self.grants_anew(active).await))
    }

    /// Waits for a grant that is asked for from now on.
    async fn grants_anew(&self, node: NodeId) -> Result<(), String> {
        let from = boot_now();
        let wanted = |answer: &Answer| answer.is_free_lock_of(node) && answer.asked > from;
        let granted = self.clients.wait(self.patience, |history| history.first(wanted));
        let problem = || format!("node {node} grants nothing after its clock was stepped");
        granted.await.map(drop).ok_or_else(problem)
    }

    /// Whether the nodes read the clocks that they were given: else stepping them would show nothing.
    async fn check_clocks(&self) -> Result<(), Unplayed> {
        let Some(clocks) = &self.clocks else {
            return Ok(());
        };
        for step in [Step::Forward, Step::Right] {
            clocks.set(NodeId::A, step)?;
            if !self.is_read_by_a(step).await? {
                let reason = "libfaketime does not reach the clock of this program";
                return Err(Unplayed::NotHere(reason.into()));
            }
        }
        Ok(())
    }

    /// Whether node `a` reads the time that it was set to.
    async fn is_read_by_a(&self, step: Step) -> Result<bool, PairError> {
        loop {
            let (_, status) = self.pair.wait_until_healthy().await?;
            if let Some(reads) = step.is_read_by(NodeId::A, &status, wall_now()) {
                return Ok(reads);
            }
        }
    }

    /// What both nodes wrote down since the fault, in the order in which it was decided.
    fn timeline(&self, fault: BootInstant) -> Result<Vec<TimelineStep>, PairError> {
        let mut steps = Vec::new();
        for node in [NodeId::A, NodeId::B] {
            let lines = self.pair.journal(node)?;
            steps.extend(
                lines
                    .into_iter()
                    .filter_map(|line| TimelineStep::since(fault, line)),
            );
        }
        steps.sort_by_key(|step| step.after);
        Ok(steps)
    }
}

async fn lay_network(pair: &mut Pair, register: &Register, folder: &Path) -> Result<Network, Unplayed> {
    if let Some(reason) = register.why_not_cut() {
        return Err(Unplayed::NotHere(reason));
    }
    Ok(Network::lay(pair, register, folder).await?)
}

fn attach_clocks(pair: &mut Pair, folder: &Path) -> Result<Clocks, Unplayed> {
    let missing = || Unplayed::NotHere("libfaketime is not installed".into());
    let library = find_libfaketime().ok_or_else(missing)?;
    Ok(Clocks::attach(pair, &library, folder)?)
}

/// What carried the takeover.
fn argument_of(timeline: &[TimelineStep]) -> Option<String> {
    let opened = timeline.iter().find(|step| step.step == "became_active")?;
    opened.argument.clone()
}

/// How long to wait for what must happen, beside what the pair's own durations add.
const PATIENCE: Duration = Duration::from_secs(60);
