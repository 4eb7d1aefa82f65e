//! The command-line arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use leftfold::inspect::AsOf;
use leftfold::react::FilterError;
use leftfold::{Invalid, Revision, StreamId};
use leftfold_server::Scope;
use leftfold_sources::Mapping;

use crate::daemon::FILE;
use crate::place::Named;

const EXIT_STATUS: &str = "\
Exit status:
  0    success
  1    a check failed: documents differ from the log, a document is missing, parked or not folded
       in time, a retry still fails, or the doctor found a problem
  2    invalid usage: an argument, the configuration, a collection, an id or a bookmark
  3    the store can't be opened, or failed
  130  interrupted";

const ABOUT: &str = "\
Fold events into documents, each event exactly once and in order.

leftfold.toml configures the store and your read models in JavaScript. Commands use the file in the \
current directory, or the file that --config names. Without a file, or with --store, they use the read \
models of the example shop: cart_details, client_summary, daily_totals and open_carts.";

/// The variable that names the store if `--store` does not. Other users of the machine can't see
/// it.
pub(crate) const STORE: &str = "LEFTFOLD_STORE";

#[derive(Debug, Parser)]
#[command(name = "leftfold", version, about = ABOUT, after_help = EXIT_STATUS, max_term_width = 100)]
pub(crate) struct Cli {
    /// Print one JSON value on standard output, and nothing else there
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Fold many events while workers are killed repeatedly, then check every document
    Demo(Demo),
    /// Create a leftfold.toml with a sample projection
    Init(Init),
    /// Serve the configuration of leftfold.toml over HTTP until told to stop
    Serve(Serve),
    /// Check leftfold.toml: compile its scripts, try its store
    Check(Configured),
    /// Examine everything, and print advice for each problem
    Doctor(Store),
    /// Run the specifications next to the scripts
    Test(Test),
    /// Manage tokens for clients of the server
    #[command(subcommand)]
    Token(Token),
    /// Show the progress of each projection, and its parked records
    Status(Status),
    /// Print a document
    Get(Get),
    /// List or retry documents and streams that stopped at a failing event
    #[command(subcommand)]
    Parked(Parked),
    /// Show events that arrived early, or skip revisions they wait for
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
    /// Show every event that made a document and its changes, or why the document is missing
    Explain(Explain),
    /// Fold a document again from its first event
    Refold(Refold),
    /// Rebuild all documents of a read model beside the live ones, and switch to them
    Rebuild(Rebuild),
    /// Switch back to the documents from before the last rebuild
    Undo(Undo),
    /// Fold documents from the log, and compare them with the stored ones
    Verify(Verify),
    /// List the actions of operators, the newest first
    Audit(Audit),
    /// Compare every document with an independent fold of the log
    #[command(hide = true)]
    DemoVerify(Store),
    /// Run a worker of the demo
    #[command(hide = true)]
    DemoWorker(Worker),
}

impl Command {
    /// Returns the store that the command uses, if any.
    pub(crate) fn store(&self) -> Option<&Store> {
        Some(match self {
            Self::Demo(_)
            | Self::Init(_)
            | Self::Serve(_)
            | Self::Check(_)
            | Self::Doctor(_)
            | Self::Test(_)
            | Self::Token(_) => return None,
            Self::Status(args) => &args.store,
            Self::Get(args) => &args.document.store,
            Self::Parked(Parked::List(args)) => &args.store,
            Self::Parked(Parked::Retry(args)) => &args.store,
            Self::Held(Held::List(store))
            | Self::Conflicts(Conflicts::List(store))
            | Self::Rejected(Rejected::List(store))
            | Self::Tasks(Tasks::Count(store)) => store,
            Self::Held(Held::Show(args)) => &args.store,
            Self::Held(Held::Skip(args)) => &args.store,
            Self::Conflicts(Conflicts::Keep(args)) => &args.one.store,
            Self::Rejected(Rejected::Resubmit(args)) => &args.one.store,
            Self::Conflicts(Conflicts::Show(args)) | Self::Rejected(Rejected::Show(args)) => &args.store,
            Self::Conflicts(Conflicts::Discard(args)) | Self::Rejected(Rejected::Forget(args)) => {
                &args.one.store
            }
            Self::Tasks(Tasks::List(args)) => &args.selected.store,
            Self::Tasks(Tasks::Show(args)) => &args.store,
            Self::Tasks(Tasks::Retry(args)) => &args.selected.store,
            Self::Tasks(Tasks::Pause(args) | Tasks::Resume(args)) => &args.store,
            Self::Explain(args) => &args.document.store,
            Self::Refold(args) => &args.document.store,
            Self::Audit(args) => &args.store,
            Self::DemoVerify(args) => args,
            Self::DemoWorker(args) => &args.store,
            Self::Rebuild(args) => &args.one.store,
            Self::Undo(args) => &args.one.store,
            Self::Verify(args) => &args.store,
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The directory; the current one if left out
    #[arg(default_value = ".")]
    pub(crate) directory: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Configured {
    /// Use this configuration file
    #[arg(long, value_name = "FILE", default_value = FILE)]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) file: Configured,
    /// Allow remote listeners without TLS or tokens: then every client may do everything
    #[arg(long)]
    pub(crate) insecure: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Test {
    #[command(flatten)]
    pub(crate) file: Configured,
    /// Run only the specifications of this projection
    pub(crate) projection: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Create a token: print it once, with the lines for leftfold.toml
    New(NewToken),
}

#[derive(Debug, Args)]
pub(crate) struct NewToken {
    /// The name of the token
    pub(crate) name: String,
    /// Grant these scopes: ingest, read, operate; all if left out
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',')]
    pub(crate) scopes: Vec<Scope>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Demo {
    /// Append this many events
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) events: u64,
    /// Keep the log and documents in this file or mongodb:// database; add to an earlier demo's
    #[arg(long, value_name = "FILE|URL", value_parser = OsStringValueParser::new().map(Named::from))]
    pub(crate) store: Option<Named>,
    /// Deliver events through feeds that duplicate, reorder and lose them, with junk;
    /// `--chaos=false` appends them one by one
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    pub(crate) chaos: bool,
    /// Run this many feeds or writers concurrently
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) writers: u64,
    /// Run this many worker processes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=16))]
    pub(crate) workers: u64,
    /// Kill a worker once in this many seconds, at a random moment; 0 for never
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = period)]
    pub(crate) kill_every: Duration,
    /// Make this share of events fail at first; a fiftieth of it fails until the code is fixed
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, value_parser = share)]
    pub(crate) failing: f64,
    /// Choose events, failures and kills by this seed; random if left out
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Worker {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Use this worker name, the same after each restart
    #[arg(long)]
    pub(crate) name: String,
    /// Make this share of events fail at first
    #[arg(long, value_parser = share)]
    pub(crate) failing: f64,
    /// Choose the failing events by this seed
    #[arg(long)]
    pub(crate) seed: u64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Store {
    /// Use this file or mongodb:// database; leftfold.db if there is no leftfold.toml
    #[arg(long = "store", value_name = "FILE|URL", env = STORE,
        hide_env_values = true, value_parser = OsStringValueParser::new().map(Named::from))]
    pub(crate) named: Option<Named>,
    /// Use this configuration file; leftfold.toml if it exists here and no store is named
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Exit with status 1 if something is parked or not yet folded
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Document {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The read model
    pub(crate) collection: String,
    /// The document's id
    pub(crate) id: String,
}

/// The reason of an action.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Record this reason in the audit trail
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Refold {
    #[command(flatten)]
    pub(crate) document: Document,
    #[command(flatten)]
    pub(crate) why: Why,
}

#[derive(Debug, Args)]
pub(crate) struct Undo {
    #[command(flatten)]
    pub(crate) one: Collection,
    #[command(flatten)]
    pub(crate) why: Why,
}

#[derive(Debug, Args)]
pub(crate) struct Forget {
    #[command(flatten)]
    pub(crate) one: One,
    #[command(flatten)]
    pub(crate) why: Why,
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Show at most this many actions
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) document: Document,
    /// Explain the document as of a revision, an event (stream@revision) or a time such as
    /// 2026-01-01T00:00:00Z
    #[arg(long, value_name = "REVISION|EVENT|TIME", value_parser = moment)]
    pub(crate) at: Option<AsOf>,
    /// Print why the document is missing: its events never came, wait, failed, were skipped or
    /// deleted it
    #[arg(long, conflicts_with = "at")]
    pub(crate) why_not: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Collection {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The read model
    pub(crate) collection: String,
}

#[derive(Debug, Args)]
pub(crate) struct Rebuild {
    #[command(flatten)]
    pub(crate) one: Collection,
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
    pub(crate) why: Why,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Verify only this read model
    pub(crate) collection: Option<String>,
    /// Verify only this many random documents of each
    #[arg(long, value_name = "N")]
    pub(crate) sample: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    #[command(flatten)]
    pub(crate) document: Document,
    /// Wait until this event is folded: the bookmark of an append, or a stream and a revision
    #[arg(long, value_name = "BOOKMARK|STREAM@REVISION", value_parser = event)]
    pub(crate) at_least: Option<Event>,
    /// Wait at most this long
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Print the document as of a revision, an event (stream@revision) or a time such as
    /// 2026-01-01T00:00:00Z
    #[arg(long, value_name = "REVISION|EVENT|TIME", value_parser = moment, conflicts_with = "at_least")]
    pub(crate) at: Option<AsOf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Held {
    /// List the waiting streams: the missing revisions, since when, and the held events
    List(Store),
    /// Show the held events of a stream
    Show(Stream),
    /// Declare that revisions of a stream do not exist, and release the events behind them
    Skip(Skip),
}

#[derive(Debug, Args)]
pub(crate) struct Stream {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The stream
    pub(crate) stream: String,
}

#[derive(Debug, Args)]
pub(crate) struct Skip {
    #[command(flatten)]
    pub(crate) store: Store,
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
    List(Store),
    /// Show a conflict beside the stored event
    Show(One),
    /// Keep the stored event; the same conflict need not be resolved again
    Keep(Keep),
    /// Delete the conflicting event, as if it had never come
    Discard(Forget),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Rejected {
    /// List the rejected messages
    List(Store),
    /// Show a rejected message with its content
    Show(One),
    /// Ingest a message again, after its cause is fixed or with another mapping
    Resubmit(Resubmit),
    /// Delete a rejected message
    Forget(Forget),
}

#[derive(Debug, Args)]
pub(crate) struct Resubmit {
    #[command(flatten)]
    pub(crate) one: One,
    /// Interpret its revision by this policy
    #[arg(long, value_enum, default_value_t = Policy::Contiguous)]
    pub(crate) policy: Policy,
    /// Map the message by this JSON: {"format":"fields","stream":…}; CloudEvents if left out
    #[arg(long, value_name = "JSON", value_parser = mapping)]
    pub(crate) mapping: Option<Box<Mapping>>,
    #[command(flatten)]
    pub(crate) why: Why,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Policy {
    /// 1, 2, 3 … without gaps
    Contiguous,
    /// Increasing, with gaps
    Latest,
    /// None: the log assigns one
    Arrival,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tasks {
    /// List tasks by reaction and document
    List(TaskList),
    /// Count the tasks of each reaction by state
    Count(Store),
    /// Show a task with its last runs
    Show(OneTask),
    /// Run tasks again now
    Retry(RetryTasks),
    /// Pause a reaction in every process
    Pause(OneReaction),
    /// Resume a reaction that was paused or throttled
    Resume(OneReaction),
}

#[derive(Debug, Args)]
pub(crate) struct Selection {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Select only tasks of this reaction
    #[arg(long)]
    pub(crate) reaction: Option<String>,
    /// Select only tasks in this state; repeat it for several
    #[arg(long, value_enum)]
    pub(crate) state: Vec<TaskState>,
    /// Select only tasks whose last error contains this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
    /// Select only tasks of this document
    #[arg(long, value_name = "ID")]
    pub(crate) document: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TaskState {
    Pending,
    Running,
    Changed,
    Done,
    Stale,
    Failed,
}

impl From<TaskState> for leftfold::react::State {
    fn from(state: TaskState) -> Self {
        match state {
            TaskState::Pending => Self::Pending,
            TaskState::Running => Self::Running,
            TaskState::Changed => Self::Changed,
            TaskState::Done => Self::Done,
            TaskState::Stale => Self::Stale,
            TaskState::Failed => Self::Failed,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct TaskList {
    #[command(flatten)]
    pub(crate) selected: Selection,
    /// Show at most this many tasks
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct OneTask {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The reaction
    pub(crate) reaction: String,
    /// The document's id
    pub(crate) document: String,
}

#[derive(Debug, Args)]
pub(crate) struct RetryTasks {
    #[command(flatten)]
    pub(crate) selected: Selection,
    /// Select only tasks whose documents match this filter, in MongoDB's query language
    #[arg(long, value_name = "JSON", value_parser = filter)]
    pub(crate) filter: Option<Box<leftfold::react::Filter>>,
    /// Select all tasks of all reactions
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) why: Why,
}

#[derive(Debug, Args)]
pub(crate) struct OneReaction {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The reaction
    pub(crate) reaction: String,
    #[command(flatten)]
    pub(crate) why: Why,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The id as the list shows it, or the beginning of it
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct Keep {
    #[command(flatten)]
    pub(crate) one: One,
    /// Record why the stored event is right
    #[arg(long)]
    pub(crate) reason: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Parked {
    /// List parked documents and streams, with the reasons
    List(ParkedList),
    /// Retry with the current code, after the cause is fixed
    Retry(ParkedRetry),
}

#[derive(Debug, Args)]
pub(crate) struct ParkedList {
    #[command(flatten)]
    pub(crate) store: Store,
    /// List only this read model
    pub(crate) collection: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ParkedRetry {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The read model
    #[arg(conflicts_with = "all")]
    pub(crate) collection: Option<String>,
    /// The documents; everything that is parked if left out
    pub(crate) ids: Vec<String>,
    /// Retry everything that is parked in all read models
    #[arg(long)]
    pub(crate) all: bool,
    /// Treat the ids as streams, parked because of events that can't be decoded; without ids, retry
    /// only streams
    #[arg(long)]
    pub(crate) streams: bool,
    /// Write nothing, and show what would be repaired
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) why: Why,
}

fn filter(text: &str) -> Result<Box<leftfold::react::Filter>, String> {
    text.parse().map(Box::new).map_err(|error: FilterError| error.to_string())
}

fn mapping(text: &str) -> Result<Box<Mapping>, String> {
    serde_json::from_str(text).map(Box::new).map_err(|error| format!("expected a mapping as JSON: {error}"))
}

/// An event to wait for: its bookmark, or its stream and revision.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Bookmark(leftfold::Bookmark),
    At(StreamId, Revision),
}

fn event(text: &str) -> Result<Event, String> {
    if let Some((stream, revision)) = text.rsplit_once('@')
        && let (Ok(stream), Ok(revision)) = (StreamId::new(stream), revision.parse())
    {
        return Ok(Event::At(stream, Revision(revision)));
    }
    text.parse().map(Event::Bookmark).map_err(|error: Invalid| format!("{error}; or stream@revision"))
}

fn moment(text: &str) -> Result<AsOf, String> {
    text.parse().map_err(|error: Invalid| error.to_string())
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a share from 0 to 1, such as 0.01".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a number of seconds, such as 0.5".to_owned())
}

fn period(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(50);
    match seconds(text)? {
        period if period.is_zero() || period >= SHORTEST => Ok(period),
        _ => Err("expected 0, or at least 0.05 seconds: a worker needs some time to start".to_owned()),
    }
}
