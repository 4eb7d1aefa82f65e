//! The processes: started, given orders, killed, and started again.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leftfold_sim::dice::Dice;
use rustix::process::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::process::GRACE;
use crate::role::Role;
use crate::signals;
use crate::store::{Kind, Place};
use crate::words::{Blow, Order, Said};

/// How long a process has for what it is ordered, before it is told to forget it.
const AIM: Duration = Duration::from_secs(2);
/// What takes longer than this will never happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A process of the rig.
pub(crate) struct Member {
    pub(crate) role: Role,
    pub(crate) name: String,
    /// Which of its role it is: the same for those who come after it.
    seat: u64,
    /// How many have had the seat.
    turn: u64,
    child: Child,
    orders: Option<ChildStdin>,
    said: mpsc::UnboundedReceiver<Said>,
    reached: bool,
    disarmed: bool,
    /// For producers: the first append that has no answer.
    next_append: u64,
}

impl Member {
    pub(crate) fn pid(&self) -> Result<Pid, Failure> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        pid.ok_or_else(|| Failure::rig(format!("signalling {}", self.name), "it has ended"))
    }
}

/// How a member is started.
pub(crate) struct Setting {
    pub(crate) store: Kind,
    pub(crate) place: PathBuf,
    pub(crate) seed: u64,
}

/// All processes. Dropped, it kills them.
pub(crate) struct Crew {
    setting: Setting,
    dice: Dice,
    program: PathBuf,
    pub(crate) members: Vec<Member>,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    /// Whether all that is started from now on has the mended code.
    pub(crate) mended: bool,
}

impl Crew {
    pub(crate) fn new(setting: Setting, ledger: Arc<Mutex<Ledger>>) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::rig("starting processes: this program can't be found", error))?;
        let dice = Dice::new(setting.seed);
        Ok(Self { setting, dice, program, members: Vec::new(), ledger, mended: false })
    }

    /// Starts so many processes, and waits until they are ready.
    pub(crate) async fn start(&mut self, role: Role, count: u64) -> Result<(), Failure> {
        for seat in 0..count {
            let member = self.spawn(role, seat, 0, 0, None)?;
            self.members.push(self.ready(member).await?);
        }
        Ok(())
    }

    /// Where a worker has a batch ready and holds no lock.
    pub(crate) fn before_batch(&self) -> &'static Place {
        self.setting.store.before_batch()
    }

    /// Which member has this name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|member| member.name == name)
    }

    /// Any member of a role.
    pub(crate) fn any(&self, role: Role) -> Option<usize> {
        let fits: Vec<_> = (0..self.members.len()).filter(|at| self.members[*at].role == role).collect();
        self.dice.pick(&fits).copied()
    }

    /// Hears what all have to say. Nobody ends without having been killed.
    pub(crate) async fn tend(&mut self) -> Result<(), Failure> {
        for member in &mut self.members {
            hear(member, &self.ledger);
            match member.child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => {
                    hear_out(member, &self.ledger).await;
                    if !member.reached {
                        return Err(ended_alone(&member.name, status));
                    }
                }
                Err(error) => return Err(Failure::rig(format!("watching {}", member.name), error)),
            }
        }
        let wrong = self.ledger.lock().unwrap_or_else(PoisonError::into_inner).wrong.first().cloned();
        wrong.map_or(Ok(()), |wrong| Err(Failure::Violated(vec![wrong])))
    }

    /// Has a blow befall a member at a place. Answers whether it did, in time.
    pub(crate) async fn aim(
        &mut self,
        at: usize,
        place: &Place,
        times: u64,
        blow: Blow,
    ) -> Result<bool, Failure> {
        let passes = place.passes.iter().map(ToString::to_string).collect();
        let times = u32::try_from(times).unwrap_or(1);
        let order = Order::At { place: place.name.to_owned(), passes, times, blow };
        self.members[at].disarmed = false;
        self.order(at, &order).await?;
        let begun = Instant::now();
        let mut given_up = false;
        loop {
            self.tend().await?;
            if self.members[at].reached {
                return Ok(true);
            }
            if self.members[at].disarmed {
                return Ok(false);
            }
            if !given_up && begun.elapsed() > AIM {
                given_up = true;
                self.order(at, &Order::Disarm).await?;
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::rig(
                    format!("giving {} an order", self.members[at].name),
                    "it does not answer",
                ));
            }
            pause().await;
        }
    }

    async fn order(&mut self, at: usize, order: &Order) -> Result<(), Failure> {
        let member = &mut self.members[at];
        let failed = |error| Failure::rig(format!("giving {} an order", member.name), error);
        let mut line = serde_json::to_vec(order).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let Some(orders) = &mut member.orders else { return Ok(()) };
        orders.write_all(&line).await.map_err(failed)?;
        orders.flush().await.map_err(failed)
    }

    /// Lets a member that was stopped go on, also from the place where it waits.
    pub(crate) async fn resume(&mut self, at: usize) -> Result<(), Failure> {
        let failed = |error| Failure::rig(format!("resuming {}", self.members[at].name), error);
        signals::resume(self.members[at].pid()?).map_err(failed)?;
        if std::mem::take(&mut self.members[at].reached) {
            self.order(at, &Order::GoOn).await?;
        }
        Ok(())
    }

    /// Kills a member, or sees that it has killed itself, and puts another in its seat.
    pub(crate) async fn replace(&mut self, at: usize, by_itself: bool) -> Result<(), Failure> {
        let member = &mut self.members[at];
        let failed = |error| Failure::rig(format!("killing {}", member.name), error);
        if !by_itself {
            member.child.start_kill().map_err(failed)?;
        }
        let late = |_| Failure::rig(format!("killing {}", member.name), "it does not end");
        let status = timeout(PATIENCE, member.child.wait()).await.map_err(late)?.map_err(failed)?;
        if status.signal() != Some(rustix::process::Signal::KILL.as_raw()) {
            return Err(ended_alone(&member.name, status));
        }
        hear_out(member, &self.ledger).await;
        let (role, seat, turn, next) = (member.role, member.seat, member.turn, member.next_append);
        // Under its old name it takes up its work at once, under another it has to wait until its own lease ends.
        let name = self.dice.happens(400).then(|| member.name.clone());
        let next = self.spawn(role, seat, turn + 1, next, name)?;
        self.members[at] = self.ready(next).await?;
        Ok(())
    }

    /// Asks all of a role to end, and waits until they have.
    pub(crate) async fn end(&mut self, role: Role) -> Result<(), Failure> {
        let (mut ending, others) = std::mem::take(&mut self.members)
            .into_iter()
            .partition::<Vec<_>, _>(|member| member.role == role);
        self.members = others;
        for member in &mut ending {
            drop(member.orders.take());
        }
        for mut member in ending {
            let doing = format!("ending {}", member.name);
            let late = |_| Failure::rig(&doing, "it did not end in time");
            let status = timeout(GRACE + Duration::from_secs(5), member.child.wait()).await.map_err(late)?;
            let status = status.map_err(|error| Failure::rig(&doing, error))?;
            hear_out(&mut member, &self.ledger).await;
            if !status.success() {
                return Err(ended_alone(&member.name, status));
            }
        }
        Ok(())
    }

    fn spawn(
        &self,
        role: Role,
        seat: u64,
        turn: u64,
        next_append: u64,
        name: Option<String>,
    ) -> Result<Member, Failure> {
        let name = match role {
            // What a producer writes is named after it.
            Role::Producer => format!("producer-{seat}"),
            _ => name.unwrap_or_else(|| format!("{}-{seat}-{turn}", role.name())),
        };
        let failed = |error| Failure::rig(format!("starting {name}"), error);
        let seed = if role == Role::Producer {
            self.setting.seed.wrapping_add(seat << 32)
        } else {
            self.dice.next()
        };
        // As while new code is being brought out, some have it and some do not.
        let mended = self.mended || role == Role::Operator || self.dice.happens(400);
        let store = clap::ValueEnum::to_possible_value(&self.setting.store);
        let mut child = Command::new(&self.program)
            .args([role.name(), "--name", &name, "--seed", &seed.to_string()])
            .args(["--from", &next_append.to_string()])
            .args(mended.then_some("--mended"))
            .args(store.iter().flat_map(|store| ["--store", store.get_name()]))
            .arg("--place")
            .arg(&self.setting.place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let orders = child.stdin.take();
        let (tell, said) = mpsc::unbounded_channel();
        if let Some(out) = child.stdout.take() {
            tokio::spawn(async move {
                let mut lines = BufReader::new(out).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    // The last line of one that was killed may be torn; then it was not said.
                    if let Ok(said) = serde_json::from_str(&line) {
                        let _ = tell.send(said);
                    }
                }
            });
        }
        let (reached, disarmed) = (false, false);
        Ok(Member { role, name, seat, turn, child, orders, said, reached, disarmed, next_append })
    }

    async fn ready(&self, mut member: Member) -> Result<Member, Failure> {
        match timeout(PATIENCE, member.said.recv()).await {
            Ok(Some(Said::Ready)) => Ok(member),
            Ok(Some(said)) => {
                Err(Failure::rig(format!("starting {}", member.name), format!("it said {said:?}")))
            }
            Ok(None) => {
                let status = member.child.wait().await;
                let status =
                    status.map_err(|error| Failure::rig(format!("starting {}", member.name), error))?;
                Err(ended_alone(&member.name, status))
            }
            Err(_) => Err(Failure::rig(format!("starting {}", member.name), "it does not get ready")),
        }
    }
}

/// A moment between two looks at something that others change.
pub(crate) async fn pause() {
    sleep(Duration::from_millis(5)).await;
}

fn ended_alone(name: &str, status: ExitStatus) -> Failure {
    Failure::Violated(vec![format!("{name} ended by itself with {status}; what it said is above")])
}

fn hear(member: &mut Member, ledger: &Mutex<Ledger>) {
    while let Ok(said) = member.said.try_recv() {
        take_down(member, said, ledger);
    }
}

/// Hears the last words of one that has ended.
async fn hear_out(member: &mut Member, ledger: &Mutex<Ledger>) {
    while let Some(said) = member.said.recv().await {
        take_down(member, said, ledger);
    }
}

fn take_down(member: &mut Member, said: Said, ledger: &Mutex<Ledger>) {
    match said {
        Said::Reached { .. } => member.reached = true,
        Said::Disarmed => member.disarmed = true,
        Said::Ready => {}
        said => {
            let append = ledger.lock().unwrap_or_else(PoisonError::into_inner).enter(said);
            member.next_append = append.map_or(member.next_append, |append| append + 1);
        }
    }
}
