//! One process of the rig, as the rig sees it.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::crew::PATIENCE;
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::messages::{Message, Order, ReactorCounts};
use crate::process::GRACE;
use crate::role::Role;

/// A process of the rig, killed on drop.
pub(crate) struct Member {
    pub(crate) role: Role,
    pub(crate) name: String,
    /// The index within its role, which its successors keep.
    pub(crate) seat: u64,
    /// The number of predecessors in the seat.
    pub(crate) turn: u64,
    /// For producers: the first append without a response.
    pub(crate) next_append: u64,
    /// `true` once it has reported that it reached its place.
    pub(crate) reached: bool,
    /// `true` once it has confirmed that its order is canceled.
    pub(crate) disarmed: bool,
    /// Set once it has reported that a document kills it: the number of other handlers that die
    /// with it.
    pub(crate) dies_with: Option<u64>,
    /// For reactors: the counts that it reported.
    pub(crate) counts: ReactorCounts,
    child: Child,
    orders: Option<ChildStdin>,
    messages: mpsc::UnboundedReceiver<Message>,
}

impl Member {
    /// Starts the process and waits until it is ready.
    pub(crate) async fn start(
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        (role, seat, turn): (Role, u64, u64),
        name: String,
        next_append: u64,
    ) -> Result<Self, Failure> {
        let doing = format!("starting {name}");
        let mut child = Command::new(program)
            .args([role.name(), "--name", &name, "--from", &next_append.to_string()])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure::rig(&doing, error))?;
        let orders = child.stdin.take();
        let (sender, messages) = mpsc::unbounded_channel();
        if let Some(out) = child.stdout.take() {
            tokio::spawn(async move {
                let mut lines = BufReader::new(out).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    // A killed process may leave a partial last line, which does not count.
                    if let Ok(message) = serde_json::from_str(&line) {
                        let _ = sender.send(message);
                    }
                }
            });
        }
        let (reached, disarmed, dies_with, counts) = (false, false, None, ReactorCounts::default());
        let mut member = Self {
            role,
            name,
            seat,
            turn,
            next_append,
            reached,
            disarmed,
            dies_with,
            counts,
            child,
            orders,
            messages,
        };
        match timeout(PATIENCE, member.messages.recv()).await {
            Ok(Some(Message::Ready)) => Ok(member),
            Ok(Some(message)) => Err(Failure::rig(doing, format!("its first message was {message:?}"))),
            Ok(None) => {
                let status = member.child.wait().await.map_err(|error| Failure::rig(doing, error))?;
                Err(member.ended_alone(status))
            }
            Err(_) => Err(Failure::rig(doing, "it did not get ready in time")),
        }
    }

    pub(crate) fn pid(&self) -> Result<Pid, Failure> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        pid.ok_or_else(|| Failure::rig(format!("sending a signal to {}", self.name), "it has ended"))
    }

    /// Reads its messages. Fails if the process has ended without an order or a deadly document.
    pub(crate) async fn tend(&mut self, ledger: &Mutex<Ledger>) -> Result<(), Failure> {
        while let Ok(message) = self.messages.try_recv() {
            self.take_down(message, ledger);
        }
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                self.hear_out(ledger).await;
                if self.reached || self.dies_with.is_some() { Ok(()) } else { Err(self.ended_alone(status)) }
            }
            Err(error) => Err(Failure::rig(format!("watching {}", self.name), error)),
        }
    }

    pub(crate) async fn order(&mut self, order: &Order) -> Result<(), Failure> {
        let failed = |error| Failure::rig(format!("giving {} an order", self.name), error);
        let mut line = serde_json::to_vec(order).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let Some(orders) = &mut self.orders else { return Ok(()) };
        orders.write_all(&line).await.map_err(failed)?;
        orders.flush().await.map_err(failed)
    }

    /// Kills the process, or waits for it if it kills itself, and reads its last messages.
    pub(crate) async fn kill(&mut self, by_itself: bool, ledger: &Mutex<Ledger>) -> Result<(), Failure> {
        let doing = format!("killing {}", self.name);
        if !by_itself {
            self.child.start_kill().map_err(|error| Failure::rig(&doing, error))?;
        }
        let status = self.ended(&doing, PATIENCE, ledger).await?;
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        if killed { Ok(()) } else { Err(self.ended_alone(status)) }
    }

    /// Asks the process to end.
    pub(crate) fn dismiss(&mut self) {
        drop(self.orders.take());
    }

    /// Asks the process to end and waits until it has ended.
    pub(crate) async fn end(&mut self, ledger: &Mutex<Ledger>) -> Result<(), Failure> {
        self.dismiss();
        let patience = GRACE + Duration::from_secs(5);
        let status = self.ended(&format!("ending {}", self.name), patience, ledger).await?;
        if status.success() { Ok(()) } else { Err(self.ended_alone(status)) }
    }

    async fn ended(
        &mut self,
        doing: &str,
        patience: Duration,
        ledger: &Mutex<Ledger>,
    ) -> Result<ExitStatus, Failure> {
        let late = |_| Failure::rig(doing, format!("it did not end in {patience:?}"));
        let status = timeout(patience, self.child.wait()).await.map_err(late)?;
        self.hear_out(ledger).await;
        status.map_err(|error| Failure::rig(doing, error))
    }

    /// Reads the last messages of a process that has ended.
    async fn hear_out(&mut self, ledger: &Mutex<Ledger>) {
        while let Some(message) = self.messages.recv().await {
            self.take_down(message, ledger);
        }
    }

    fn take_down(&mut self, message: Message, ledger: &Mutex<Ledger>) {
        match message {
            Message::Reached { .. } => self.reached = true,
            Message::Disarmed => self.disarmed = true,
            Message::Dying { beside } => self.dies_with = Some(beside),
            Message::Counts(counts) => self.counts = counts,
            Message::Ready => {}
            message => {
                let append = ledger.lock().unwrap_or_else(PoisonError::into_inner).enter(message);
                self.next_append = append.map_or(self.next_append, |append| append + 1);
            }
        }
    }

    fn ended_alone(&self, status: ExitStatus) -> Failure {
        let message = format!("{} ended by itself with {status}; its messages are above", self.name);
        Failure::Violated(vec![message])
    }
}
