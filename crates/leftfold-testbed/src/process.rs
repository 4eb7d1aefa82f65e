//! Child processes that end with this process, however it ends.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::sync::oneshot;

/// A child process, killed on drop.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    frozen: bool,
}

impl Process {
    /// Starts a program with its output redirected to a file.
    pub(crate) async fn start(program: &Path, arguments: &[OsString], output: &Path) -> io::Result<Self> {
        // `setpriv` makes the kernel kill the program when the thread that started it ends. If this
        // process ended even earlier, the program has another parent by then, and the shell does
        // not run it.
        const RUN_UNDER: &str = r#"[ "$PPID" = "$1" ] || exit 1; shift; exec "$@""#;
        let file = File::create(output)?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "sh", "-c", RUN_UNDER, "sh"])
            .arg(std::process::id().to_string())
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            // Ctrl-C is only for this process, which decides when the child ends.
            .process_group(0);
        let child = spawn_from_lasting_thread(command).await?;
        Ok(Self { child, frozen: false })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status if the process has ended.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    #[cfg(feature = "mongodb")]
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Sends SIGSTOP. [`has_stopped`](Self::has_stopped) tells when the process has stopped.
    pub(crate) fn freeze(&mut self) -> io::Result<()> {
        kill_process(self.pid(), Signal::STOP)?;
        self.frozen = true;
        Ok(())
    }

    pub(crate) fn has_stopped(&self) -> io::Result<bool> {
        let without_reaping = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.pid()), without_reaping)?.is_some_and(|status| status.stopped()))
    }

    pub(crate) fn thaw(&mut self) -> io::Result<()> {
        kill_process(self.pid(), Signal::CONT)?;
        self.frozen = false;
        Ok(())
    }

    /// Kills the process and waits until it is gone.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // This fails if the process has already ended.
        let _ = self.kill();
    }
}

type Order = (Command, oneshot::Sender<io::Result<Child>>);

/// Starts a program from a thread that lives as long as this process.
async fn spawn_from_lasting_thread(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, ordered) = mpsc::channel();
        thread::spawn(move || spawn_all(&ordered));
        orders
    });
    let (reply, answer) = oneshot::channel();
    let gone = || io::Error::other("the thread that starts processes has ended");
    starter.send((command, reply)).map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

/// Starts programs until the process ends, because the sender is never dropped.
fn spawn_all(ordered: &mpsc::Receiver<Order>) {
    while let Ok((mut command, reply)) = ordered.recv() {
        // The caller may have been dropped while it waited.
        if let Err(Ok(mut unwanted)) = reply.send(command.spawn()) {
            let _ = unwanted.kill();
            let _ = unwanted.wait();
        }
    }
}
