//! The chores of this repository. `cargo xtask test` is what every change must pass.

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

const USAGE: &str = "\
usage: cargo xtask test

  test    formatting, lints, all tests, documentation, and a short demo in which workers are killed;
          stops at the first that fails, with its exit status
";

/// What `cargo xtask test` runs, in this order: what fails fastest comes first.
const TEST: &[Step] = &[
    Step::new("format", &["fmt", "--all", "--check"]),
    Step::new(
        "lints",
        &["clippy", "--workspace", "--all-targets", "--all-features", "--", "--deny", "warnings"],
    ),
    Step::new("tests and examples in the documentation", &["test", "--workspace", "--all-features"]),
    Step::new("documentation", &["doc", "--workspace", "--all-features", "--no-deps"])
        .with("RUSTDOCFLAGS", "--deny warnings"),
    Step::new(
        "a short demo, with workers killed",
        &["run", "--release", "--", "demo", "--events", "20000", "--kill-every", "0.5", "--json"],
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => run_all(TEST),
        ["help" | "--help" | "-h"] => {
            eprint!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run_all(steps: &[Step]) -> ExitCode {
    let begin = Instant::now();
    for (step, number) in steps.iter().zip(1..) {
        eprintln!("\n== {number}/{}: {}\n   {step}", steps.len(), step.title);
        let before = Instant::now();
        let outcome = step.run();
        let seconds = before.elapsed().as_secs_f64();
        if let Err(status) = outcome {
            eprintln!("\n== failed after {seconds:.1} s: {}", step.title);
            return ExitCode::from(status);
        }
        eprintln!("   passed in {seconds:.1} s");
    }
    eprintln!("\n== all passed in {:.1} s", begin.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

/// A call of cargo.
struct Step {
    title: &'static str,
    arguments: &'static [&'static str],
    variable: Option<(&'static str, &'static str)>,
}

impl Step {
    const fn new(title: &'static str, arguments: &'static [&'static str]) -> Self {
        Self { title, arguments, variable: None }
    }

    const fn with(self, name: &'static str, value: &'static str) -> Self {
        Self { variable: Some((name, value)), ..self }
    }

    /// Runs it at the root of the workspace; an error is the exit status.
    fn run(&self) -> Result<(), u8> {
        const NO_STATUS: u8 = 1;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status =
            Command::new(cargo).args(self.arguments).envs(self.variable).current_dir(root).status().map_err(
                |error| {
                    eprintln!("   can't run cargo: {error}");
                    NO_STATUS
                },
            )?;
        if status.success() {
            return Ok(());
        }
        Err(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(NO_STATUS))
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((name, value)) = self.variable {
            write!(f, "{name}={value:?} ")?;
        }
        write!(f, "cargo {}", self.arguments.join(" "))
    }
}
