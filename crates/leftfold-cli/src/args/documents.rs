//! The arguments of the commands for documents and collections.

use std::time::Duration;

use clap::{Args, Subcommand};
use leftfold::inspect::AsOf;
use leftfold::{Bookmark, Revision, StreamId};

use super::ReasonArgs;
use super::parse::{as_of, awaited_event, seconds};

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Exit with status 1 if something is parked or not yet folded
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DocumentArgs {
    /// The read model
    pub(crate) collection: String,
    /// The document's id
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) document: DocumentArgs,
    /// Wait until this event is folded: the bookmark of an append, or a stream and a revision
    #[arg(long, value_name = "BOOKMARK|STREAM@REVISION", value_parser = awaited_event)]
    pub(crate) at_least: Option<AwaitedEvent>,
    /// Wait at most this long
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Print the document as of a revision, an event or a time such as 2026-01-01T00:00:00Z
    #[arg(long, value_name = "REVISION|STREAM@REVISION|TIME", value_parser = as_of, conflicts_with = "at_least")]
    pub(crate) at: Option<AsOf>,
}

/// An event to wait for.
#[derive(Clone, Debug)]
pub(crate) enum AwaitedEvent {
    Bookmark(Bookmark),
    At(StreamId, Revision),
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) document: DocumentArgs,
    /// Explain the document as of a revision, an event or a time such as 2026-01-01T00:00:00Z
    #[arg(long, value_name = "REVISION|STREAM@REVISION|TIME", value_parser = as_of)]
    pub(crate) at: Option<AsOf>,
    /// Print why the document is missing
    #[arg(long, conflicts_with = "at")]
    pub(crate) why_not: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RefoldArgs {
    #[command(flatten)]
    pub(crate) document: DocumentArgs,
    #[command(flatten)]
    pub(crate) reason: ReasonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RebuildArgs {
    /// The read model
    pub(crate) collection: String,
    /// Build it and show the differences, but do not switch
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Show at most this many differing documents
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) samples: usize,
    /// Cancel the rebuild in progress
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) cancel: bool,
    #[command(flatten)]
    pub(crate) reason: ReasonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// The read model
    pub(crate) collection: String,
    #[command(flatten)]
    pub(crate) reason: ReasonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Verify only this read model
    pub(crate) collection: Option<String>,
    /// Verify only this many random documents of each
    #[arg(long, value_name = "N")]
    pub(crate) sample: Option<usize>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Parked {
    /// List parked documents and streams, with the reasons
    List(ParkedListArgs),
    /// Retry with the current code, after the cause is fixed
    Retry(RetryParkedArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ParkedListArgs {
    /// List only this read model
    pub(crate) collection: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RetryParkedArgs {
    /// The read model
    #[arg(conflicts_with = "all")]
    pub(crate) collection: Option<String>,
    /// The documents; everything that is parked if left out
    pub(crate) ids: Vec<String>,
    /// Retry everything that is parked in all read models
    #[arg(long)]
    pub(crate) all: bool,
    /// Treat the ids as streams; without ids, retry only streams
    #[arg(long)]
    pub(crate) streams: bool,
    /// Write nothing, and show what would be repaired
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) reason: ReasonArgs,
}
