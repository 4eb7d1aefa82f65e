//! Signals: the ones that end a process without a word, stop it, and let it go on.

use rustix::io;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, waitid};

/// Stops a child.
pub(crate) fn stop(child: Pid) -> io::Result<()> {
    kill_process(child, Signal::STOP)
}

/// Lets a stopped child go on.
pub(crate) fn resume(child: Pid) -> io::Result<()> {
    kill_process(child, Signal::CONT)
}

/// Whether a child stands still.
pub(crate) fn is_stopped(child: Pid) -> io::Result<bool> {
    let only_look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(child), only_look)?.is_some_and(|status| status.stopped()))
}

/// Ends this process here and now: nothing is flushed, closed or told to anyone.
pub(crate) fn kill_self() -> ! {
    loop {
        // It can't fail, and nothing of this process runs after it.
        let _ = kill_process(getpid(), Signal::KILL);
        std::thread::park();
    }
}

/// Has this process killed when the one that started it is gone, also while it is stopped.
pub(crate) fn die_with_parent() {
    #[cfg(target_os = "linux")]
    // Elsewhere, and should it fail, the end of the input ends a process that is not stopped.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}
