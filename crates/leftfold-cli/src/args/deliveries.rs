//! The arguments of the commands for held events, conflicts and rejected messages.

use clap::{Args, Subcommand};
use leftfold_sources::Mapping;

use super::ReasonArgs;
use super::parse::mapping;
use crate::daemon::OrderPolicy;

#[derive(Debug, Subcommand)]
pub(crate) enum Held {
    /// List the waiting streams: the missing revisions, since when, and the held events
    List,
    /// Show the held events of a stream
    Show(StreamArgs),
    /// Declare that revisions of a stream do not exist, and release the events behind them
    Skip(SkipArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    /// The stream
    pub(crate) stream: String,
}

#[derive(Debug, Args)]
pub(crate) struct SkipArgs {
    /// The stream
    pub(crate) stream: String,
    /// The revision up to which all missing ones are skipped
    pub(crate) through: u64,
    /// Record why the revisions will never come
    #[arg(long)]
    pub(crate) reason: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Conflicts {
    /// List the unresolved conflicts
    List,
    /// Show a conflict beside the stored event
    Show(IdArgs),
    /// Keep the stored event; the same conflict need not be resolved again
    Keep(KeepArgs),
    /// Delete the conflicting event, as if it had never come
    Discard(DeleteArgs),
}

/// A conflict or a rejected message.
#[derive(Debug, Args)]
pub(crate) struct IdArgs {
    /// The id as the list shows it, or the beginning of it
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct KeepArgs {
    #[command(flatten)]
    pub(crate) id: IdArgs,
    /// Record why the stored event is right
    #[arg(long)]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) id: IdArgs,
    #[command(flatten)]
    pub(crate) reason: ReasonArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Rejected {
    /// List the rejected messages
    List,
    /// Show a rejected message with its content
    Show(IdArgs),
    /// Ingest a message again, after its cause is fixed or with another mapping
    Resubmit(ResubmitArgs),
    /// Delete a rejected message
    Forget(DeleteArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ResubmitArgs {
    #[command(flatten)]
    pub(crate) id: IdArgs,
    /// Interpret its revision by this policy
    #[arg(long, value_enum, default_value_t = OrderPolicy::Contiguous)]
    pub(crate) policy: OrderPolicy,
    /// Map the message by this JSON: {"format":"fields","stream":…}; CloudEvents if left out
    #[arg(long, value_name = "JSON", value_parser = mapping)]
    pub(crate) mapping: Option<Box<Mapping>>,
    #[command(flatten)]
    pub(crate) reason: ReasonArgs,
}
