//! The memory allocator of the daemon, which must return free memory to the system.
//!
//! When a large block is freed, glibc raises the size from which blocks are mapped separately, up
//! to 32 MiB. From then on documents of some megabytes lie between small blocks, and their memory
//! is rarely returned. A daemon with a budget of 512 MiB had 700 MiB resident after a quarter of an
//! hour. Fixed thresholds prevent that. They are read from the environment when a process starts,
//! so the daemon replaces its process with one that has them.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const THRESHOLDS: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "262144"), ("MALLOC_TRIM_THRESHOLD_", "1048576")];

/// Replaces this process with one whose allocator has fixed thresholds. If that fails, or the
/// thresholds are set already, the process continues unchanged.
pub(crate) fn fix_thresholds() {
    if cfg!(not(target_env = "gnu")) || THRESHOLDS.iter().any(|(name, _)| env::var_os(name).is_some()) {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut arguments = env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // `exec` returns only if it fails: the program may have been replaced meanwhile.
    let _ = command.args(arguments).envs(THRESHOLDS).exec();
}
