//! The chores of this repository. Every change must pass `cargo xtask test`.

mod words;

use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

const USAGE: &str = "\
usage: cargo xtask test
       cargo xtask soak [--minutes 30] [--store sqlite|mongodb] [--seed <number>] [--no-clocks] [--json]
       cargo xtask words [--lines] [<path>…]

  test    formatting, lints, all tests, which get and start the servers they need, documentation, sixty kills at the
          worst moments on each store, a minute of the soak, planted bugs that must be caught, and thousands of simulated
          worlds; stops at the first that fails, with its exit status
  soak    drive the daemon with hostile scripts, requests, files, clocks and kills, beside a bystander who must not
          notice; on both stores, half the time each, if none is named
  words   report comments and pages that are hard to read: lines that begin with What, Whether, How, Who, Whoever or
          Those, sentences over 25 words, comments over 100 columns; --lines lists each place
";

/// The steps of `cargo xtask test`, in order: steps that fail fast come first.
const TEST: &[Step] = &[
    Step::new("format", &["fmt", "--all", "--check"]),
    Step::new(
        "lints",
        &["clippy", "--workspace", "--all-targets", "--all-features", "--", "--deny", "warnings"],
    ),
    Step::new("tests and examples in the documentation", &["test", "--workspace", "--all-features"]),
    Step::soak(
        "a minute of hostile scripts, requests, files and kills beside a bystander",
        &["--quick", "--minutes", "1", "--store", "sqlite", "--seed", "1"],
    ),
    Step::new("documentation", &["doc", "--workspace", "--all-features", "--no-deps"])
        .with("RUSTDOCFLAGS", "--deny warnings"),
    Step::new(
        "real processes, killed inside their commits and stopped for longer than their leases",
        &["run", "--release", "--package", "leftfold-rig", "--features", "failpoints", "--", "--kills", "60"],
    ),
    Step::new(
        "the same on MongoDB, whose primary is killed, too",
        &[
            "run",
            "--release",
            "--package",
            "leftfold-rig",
            "--features",
            "failpoints",
            "--",
            "--store",
            "mongodb",
            "--kills",
            "60",
        ],
    ),
    Step::new(
        "deaths at every point of fixed stories",
        &["run", "--release", "--package", "leftfold-sim", "--features", "planted", "--", "--crashes"],
    ),
    Step::new(
        "planted bugs, each of which the simulation must catch",
        &["run", "--release", "--package", "leftfold-sim", "--features", "planted", "--", "--bug", "all"],
    ),
    Step::new(
        "the engine in simulated worlds",
        &[
            "run",
            "--release",
            "--package",
            "leftfold-sim",
            "--features",
            "planted",
            "--",
            "--first-seed",
            "1",
            "--seeds",
            "20000",
        ],
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => run_all(TEST),
        ["soak", ref arguments @ ..] => soak(arguments),
        ["words", ref arguments @ ..] => words::report(arguments),
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

/// Builds the daemon and the soak test for release, and runs them.
fn soak(arguments: &[&str]) -> ExitCode {
    const BUILD: Step = Step::new(
        "the daemon and its soak",
        &["build", "--release", "--package", "leftfold-cli", "--package", "leftfold-soak"],
    );
    let mut soak = Program::ReleasedSoak.command();
    soak.args(arguments);
    match BUILD.run().and_then(|()| run(&mut soak)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(status) => ExitCode::from(status),
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

/// A command to run.
struct Step {
    title: &'static str,
    program: Program,
    arguments: &'static [&'static str],
    variable: Option<(&'static str, &'static str)>,
}

#[derive(Clone, Copy)]
enum Program {
    Cargo,
    /// The soak test of the daemon, both as built for the tests.
    Soak,
    /// The same, built for release.
    ReleasedSoak,
}

impl Program {
    fn command(self) -> Command {
        let this = env::current_exe().unwrap_or_else(|_| "target/debug/xtask".into());
        let built = this.parent().unwrap_or(Path::new("."));
        let place = match self {
            Self::Cargo => return Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
            Self::Soak => built.to_owned(),
            Self::ReleasedSoak => built.with_file_name("release"),
        };
        let mut soak = Command::new(place.join("leftfold-soak"));
        soak.arg("--daemon").arg(place.join("leftfold"));
        soak
    }
}

impl Step {
    const fn new(title: &'static str, arguments: &'static [&'static str]) -> Self {
        Self { title, program: Program::Cargo, arguments, variable: None }
    }

    const fn soak(title: &'static str, arguments: &'static [&'static str]) -> Self {
        Self { program: Program::Soak, ..Self::new(title, arguments) }
    }

    const fn with(self, name: &'static str, value: &'static str) -> Self {
        Self { variable: Some((name, value)), ..self }
    }

    fn run(&self) -> Result<(), u8> {
        run(self.program.command().args(self.arguments).envs(self.variable))
    }
}

/// Runs a program at the root of the workspace. The error is the exit status.
fn run(command: &mut Command) -> Result<(), u8> {
    const NO_STATUS: u8 = 1;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    command.current_dir(root);
    for (name, _) in env::vars_os().filter(|(name, _)| is_about_xtask(name)) {
        command.env_remove(name);
    }
    let status = command.status().map_err(|error| {
        eprintln!("   can't run {}: {error}", command.get_program().display());
        NO_STATUS
    })?;
    if status.success() { Ok(()) } else { Err(status.code().map_or(NO_STATUS, low_byte)) }
}

/// Returns whether cargo sets this variable to describe xtask itself. Some build scripts depend on
/// such variables, and would rebuild everything whenever they change.
fn is_about_xtask(variable: &OsStr) -> bool {
    let name = variable.to_string_lossy();
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// Returns an exit status in the range that can be passed on.
fn low_byte(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(1)
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((name, value)) = self.variable {
            write!(f, "{name}={value:?} ")?;
        }
        let program = match self.program {
            Program::Cargo => "cargo",
            Program::Soak | Program::ReleasedSoak => "leftfold-soak",
        };
        write!(f, "{program} {}", self.arguments.join(" "))
    }
}
