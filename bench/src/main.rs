//! Measures the cost of Leftfold as ratios to plain code in the same run.
//!
//! `cargo run --release -p leftfold-bench -- fold --store sqlite`
//!
//! Machines differ and are noisy, so no single number has a meaning. Each measurement alternates
//! with its reference several times, and the medians are compared.

mod append;
mod carts;
mod catch_up;
mod fold;
mod growth;
mod http;
mod ingest;
mod latency;
mod react;
mod report;
mod script;
mod stores;
mod subject;
mod traffic;
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use shopping_cart::workload::Order;

use crate::fold::{Part, Plan};
use crate::report::Result;
use crate::subject::Subject;
use crate::subject::mongodb::Databases;
use crate::subject::sqlite::Files;

#[derive(Parser)]
#[command(about = "Measure Leftfold against plain code on the same machine, in the same run")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure folding: catch-up, per event, append, latency, growth (MongoDB: traffic, no growth)
    Fold {
        /// Measure this store: sqlite, mongodb (starts a private server) or a mongodb:// URL
        #[arg(long, default_value = "sqlite")]
        store: String,
        /// Take only these measurements
        #[arg(long, value_delimiter = ',')]
        only: Vec<Part>,
        /// Repeat each measurement this many times
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Fold this many events, ten per cart (default: 1,000,000 on SQLite, 200,000 on MongoDB)
        #[arg(long)]
        events: Option<u64>,
        /// Print only a JSON list of results on standard output
        #[arg(long)]
        json: bool,
        /// Create the files in this directory instead of a temporary one
        #[arg(long)]
        directory: Option<PathBuf>,
    },
    /// Measure ingesting: deliveries in order, out of order and twice, and memory while events are
    /// held
    Ingest {
        /// Measure this store: sqlite, mongodb (starts a private server) or a mongodb:// URL
        #[arg(long, default_value = "sqlite")]
        store: String,
        /// Repeat each measurement this many times
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Print only a JSON list of results on standard output
        #[arg(long)]
        json: bool,
    },
    /// Measure reactions to documents that other programs write
    React {
        /// Measure this store: sqlite, mongodb (starts a private server) or a mongodb:// URL
        #[arg(long, default_value = "sqlite")]
        store: String,
        /// Profile one run instead and show where its time goes
        #[arg(long)]
        profile: bool,
        /// Repeat each measurement this many times
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Print only a JSON list of results on standard output
        #[arg(long)]
        json: bool,
    },
    /// Measure guarded writes of documents without events against plain writes
    Writes {
        /// Measure this store: sqlite, mongodb (starts a private server) or a mongodb:// URL
        #[arg(long, default_value = "sqlite")]
        store: String,
        /// Repeat each measurement this many times
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Print only a JSON list of results on standard output
        #[arg(long)]
        json: bool,
    },
    /// Measure HTTP: events against the library, document reads against a bare handler
    Http {
        /// Measure this store: sqlite, mongodb (starts a private server) or a mongodb:// URL
        #[arg(long, default_value = "sqlite")]
        store: String,
        /// Repeat each measurement this many times
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Print only a JSON list of results on standard output
        #[arg(long)]
        json: bool,
    },
    /// Measure JavaScript projections against Rust: folds on one thread, and a catch-up on SQLite
    Script {
        /// Repeat each measurement this many times
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Print only a JSON list of results on standard output
        #[arg(long)]
        json: bool,
    },
    /// Serve over HTTP until standard input is closed
    #[command(hide = true)]
    ServeAs { argument: String, role: http::serving::Role },
    /// Deliver events that must be held and print the memory used
    #[command(hide = true)]
    Hold { store: String, events: u64 },
    /// Plan or run reactions beside other processes until killed
    #[command(hide = true)]
    ReactAs { store: String, role: react::processes::Role, count: u64 },
    /// Create a log for profiling and print the `catch-up` command that folds it
    #[command(hide = true)]
    Prepare {
        #[arg(long, default_value = "sqlite")]
        store: String,
        #[arg(long, default_value_t = 1_000_000)]
        events: u64,
        #[arg(long)]
        grouped: bool,
    },
    /// Fold a prepared log in this process and print the time and memory used
    #[command(hide = true)]
    CatchUp { store: String },
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(script::WORKER) {
        return leftfold_script::run_worker();
    }
    let result = stores::runtime().and_then(|runtime| runtime.block_on(run(Args::parse().command)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<()> {
    match command {
        Command::Fold { store, only, rounds, events, json, directory } => {
            let temporary = tempfile::tempdir()?;
            let directory = directory.unwrap_or_else(|| temporary.path().to_owned());
            let plan = Plan { only, rounds: rounds.max(1), events };
            let measurements = match store.as_str() {
                "sqlite" => plan.measure(&Files { directory }).await?,
                "mongodb" => plan.measure(&Databases::private().await?).await?,
                url => plan.measure(&Databases::at(url).await?).await?,
            };
            report::print(&measurements, json)
        }
        Command::Ingest { store, rounds, json } => {
            let temporary = tempfile::tempdir()?;
            let measurements = match store.as_str() {
                "sqlite" => {
                    ingest::measure(&Files { directory: temporary.path().to_owned() }, rounds.max(1)).await?
                }
                "mongodb" => ingest::measure(&Databases::private().await?, rounds.max(1)).await?,
                url => ingest::measure(&Databases::at(url).await?, rounds.max(1)).await?,
            };
            report::print(&measurements, json)
        }
        Command::React { store, profile: true, json, .. } => {
            let temporary = tempfile::tempdir()?;
            match store.as_str() {
                "sqlite" => {
                    react::profile::run(&Files { directory: temporary.path().to_owned() }, json).await
                }
                "mongodb" => react::profile::run(&Databases::private().await?, json).await,
                url => react::profile::run(&Databases::at(url).await?, json).await,
            }
        }
        Command::React { store, rounds, json, .. } => {
            let temporary = tempfile::tempdir()?;
            let rounds = rounds.max(1);
            let measurements = match store.as_str() {
                "sqlite" => {
                    react::on_sqlite(&Files { directory: temporary.path().to_owned() }, rounds).await?
                }
                "mongodb" => react::on_mongodb(&Databases::private().await?, rounds).await?,
                url => react::on_mongodb(&Databases::at(url).await?, rounds).await?,
            };
            report::print(&measurements, json)
        }
        Command::Writes { store, rounds, json } => {
            let temporary = tempfile::tempdir()?;
            let rounds = rounds.max(1);
            let measurements = match store.as_str() {
                "sqlite" => {
                    writes::measure(&Files { directory: temporary.path().to_owned() }, rounds).await?
                }
                "mongodb" => writes::measure(&Databases::private().await?, rounds).await?,
                url => writes::measure(&Databases::at(url).await?, rounds).await?,
            };
            report::print(&measurements, json)
        }
        Command::Http { store, rounds, json } => {
            let temporary = tempfile::tempdir()?;
            let rounds = rounds.max(1);
            let measurements = match store.as_str() {
                "sqlite" => http::measure(&Files { directory: temporary.path().to_owned() }, rounds).await?,
                "mongodb" => http::measure(&Databases::private().await?, rounds).await?,
                url => http::measure(&Databases::at(url).await?, rounds).await?,
            };
            report::print(&measurements, json)
        }
        Command::Script { rounds, json } => {
            let temporary = tempfile::tempdir()?;
            let files = Files { directory: temporary.path().to_owned() };
            report::print(&script::measure(&files, rounds.max(1)).await?, json)
        }
        Command::ServeAs { argument, role } => http::serving::run_role(&argument, role).await,
        Command::Hold { store, events } if store.starts_with("mongodb") => {
            ingest::hold(leftfold_mongodb::Mongo::connect(store).await?, events).await
        }
        Command::Hold { store, events } => {
            ingest::hold(leftfold_sqlite::Sqlite::open(store).await?, events).await
        }
        Command::ReactAs { store, role, count } => react::processes::run_role(&store, role, count).await,
        Command::Prepare { store, events, grouped } => {
            let order = if grouped { Order::Grouped } else { Order::Interleaved { open: 5_000 } };
            match store.as_str() {
                "sqlite" => prepare(&Files { directory: PathBuf::from(".") }, events, order).await,
                url => prepare(&Databases::at(url).await?, events, order).await,
            }
        }
        Command::CatchUp { store } => catch_up::child(&store).await,
    }
}

async fn prepare(subject: &impl Subject, events: u64, order: Order) -> Result<()> {
    stores::fill(subject, "prepared", events, order).await?;
    eprintln!("catch-up {}", subject.argument("prepared"));
    Ok(())
}
