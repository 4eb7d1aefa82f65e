//! A worker process for scripts, for programs that can't start themselves as one. See
//! [`leftfold_script::Workers`].

use std::process::ExitCode;

fn main() -> ExitCode {
    leftfold_script::run_worker()
}
