//! The worker processes for scripts: further instances of this program.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use leftfold::budget::Budget;
use leftfold_script::Workers;

/// The argument that makes this program a worker. No other command begins like it.
const ARGUMENT: &str = "--script-worker";

static WORKERS: OnceLock<Workers> = OnceLock::new();

/// Runs this process as a worker for scripts, if it was started as one.
pub(crate) fn run_if_started_as_worker() -> Option<ExitCode> {
    let is_worker = std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT);
    is_worker.then(leftfold_script::run_worker)
}

/// Charges the memory of the workers to a budget. Without this call before the first script is
/// compiled, it is not counted.
pub(super) fn count_in(budget: &Budget) {
    WORKERS.get_or_init(|| new(budget));
}

/// Returns the workers of this process.
pub(super) fn workers() -> &'static Workers {
    WORKERS.get_or_init(|| new(&Budget::unlimited()))
}

fn new(budget: &Budget) -> Workers {
    Workers::new(program(), [ARGUMENT.to_owned()], budget.clone())
}

/// Returns this program, even if its file was replaced meanwhile.
fn program() -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { running } else { std::env::current_exe().unwrap_or_else(|_| "leftfold".into()) }
}
