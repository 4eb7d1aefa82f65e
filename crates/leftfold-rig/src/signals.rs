//! Signals that kill, stop and resume a process.

use rustix::io;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, waitid};

/// Stops a child.
pub(crate) fn stop(child: Pid) -> io::Result<()> {
    kill_process(child, Signal::STOP)
}

/// Resumes a stopped child.
pub(crate) fn resume(child: Pid) -> io::Result<()> {
    kill_process(child, Signal::CONT)
}

/// Returns whether a child is stopped.
pub(crate) fn is_stopped(child: Pid) -> io::Result<bool> {
    let only_look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(child), only_look)?.is_some_and(|status| status.stopped()))
}

/// Kills this process at once, without flushing, closing or reporting anything.
pub(crate) fn kill_self() -> ! {
    loop {
        // This can't fail, and no code of this process runs after it.
        let _ = kill_process(getpid(), Signal::KILL);
        std::thread::park();
    }
}

/// Makes the kernel kill this process when its parent ends, even while this process is stopped.
pub(crate) fn die_with_parent() {
    #[cfg(target_os = "linux")]
    // On other systems, or if this fails, the end of the input ends a process that is not stopped.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}
