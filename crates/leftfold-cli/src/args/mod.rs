//! The command-line arguments.

mod deliveries;
mod documents;
mod parse;
mod service;
mod store;
mod tasks;

use clap::{Parser, Subcommand};

pub(crate) use self::deliveries::{
    Conflicts, DeleteArgs, Held, IdArgs, KeepArgs, Rejected, ResubmitArgs, SkipArgs, StreamArgs,
};
pub(crate) use self::documents::{
    AwaitedEvent, DocumentArgs, ExplainArgs, GetArgs, Parked, ParkedListArgs, RebuildArgs, RefoldArgs,
    RetryParkedArgs, StatusArgs, UndoArgs, VerifyArgs,
};
pub(crate) use self::service::{InitArgs, ServeArgs, TestArgs, Token};
pub(crate) use self::store::StoreArgs;
pub(crate) use self::tasks::{ReactionArgs, RetryTasksArgs, TaskArgs, TaskListArgs, TaskSelection, Tasks};

const ABOUT: &str = "\
Fold events into documents, each event exactly once and in order.

leftfold.toml configures the store and the projections in JavaScript. Commands use the file in the current \
directory, or the file that --config names. With --store, or without a file, they work on every collection \
that the store has.";

const EXIT_STATUS: &str = "\
Commands that need the projections' code, and so a leftfold.toml:
  explain, get --at, parked retry, rebuild, refold, undo, verify

Exit status:
  0    success
  1    a check failed: documents differ from the log, a document is missing, parked or not folded
       in time, a retry still fails, or the doctor found a problem
  2    invalid usage: an argument, the configuration, a collection, an id or a bookmark; or the
       command needs the projections' code
  3    the store can't be opened, or failed
  130  interrupted";

#[derive(Debug, Parser)]
#[command(name = "leftfold", version, about = ABOUT, after_help = EXIT_STATUS, max_term_width = 100)]
pub(crate) struct Cli {
    /// Print one JSON value on standard output, and nothing else there
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a leftfold.toml with a sample projection
    Init(InitArgs),
    /// Serve the configuration of leftfold.toml over HTTP until stopped
    Serve(ServeArgs),
    /// Check leftfold.toml: compile its scripts, try its store
    Check,
    /// Examine everything, and print advice for each problem
    Doctor,
    /// Run the specifications next to the scripts
    Test(TestArgs),
    /// Manage tokens for clients of the server
    #[command(subcommand)]
    Token(Token),
    /// Show the progress of each projection, and its parked records
    Status(StatusArgs),
    /// Print a document
    Get(GetArgs),
    /// List or retry documents and streams that stopped at a failing event
    #[command(subcommand)]
    Parked(Parked),
    /// Show events that arrived early, or skip the revisions they wait for
    #[command(subcommand)]
    Held(Held),
    /// Show and resolve events that contradict the log
    #[command(subcommand)]
    Conflicts(Conflicts),
    /// Show, resubmit or delete messages that are not events
    #[command(subcommand)]
    Rejected(Rejected),
    /// Show and control the tasks of reactions
    #[command(subcommand)]
    Tasks(Tasks),
    /// Show every event that made a document, or why the document is missing
    Explain(ExplainArgs),
    /// Fold a document again from its first event
    Refold(RefoldArgs),
    /// Rebuild all documents of a read model beside the live ones, and switch to them
    Rebuild(RebuildArgs),
    /// Switch back to the documents from before the last rebuild
    Undo(UndoArgs),
    /// Fold documents from the log, and compare them with the stored ones
    Verify(VerifyArgs),
    /// List the actions of operators, the newest first
    Audit(AuditArgs),
}

/// The reason of an action.
#[derive(Debug, clap::Args)]
pub(crate) struct ReasonArgs {
    /// Record this reason in the audit trail
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// Show at most this many actions
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: usize,
}
