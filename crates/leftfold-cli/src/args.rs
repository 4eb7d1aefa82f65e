//! What can be said on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use leftfold::fold::Moment;
use leftfold::{Invalid, Revision, StreamId};
use leftfold_server::Scope;
use leftfold_sources::Mapping;

use crate::daemon::FILE;
use crate::place::Named;

const EXIT_STATUS: &str = "\
Exit status:
  0    done
  1    the answer is no: read models differ from their fold, there is no such document, it is parked or not
       folded in time, something still fails, or the doctor finds something wrong
  2    the command can't be understood: arguments, a collection, an id or a token
  3    the store can't be opened, or failed
  130  interrupted";

const ABOUT: &str = "\
Folds events into documents, each exactly once and in order.

Read models of your own are in JavaScript, as leftfold.toml names them: all commands find that file where they are run, or by --config. Without
it, and with --store, they are about those of the example, a small shop: cart_details, client_summary, daily_totals and open_carts.";

/// The variable that names the store where `--store` does not: other users of a machine can't see it.
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
    /// Fold many events while the workers are killed again and again, then check every document
    Demo(Demo),
    /// Make a leftfold.toml with a sample projection
    Init(Init),
    /// Run what leftfold.toml says, over HTTP, until told to stop
    Serve(Serve),
    /// Look over leftfold.toml: compile its scripts, try its store
    Check(Configured),
    /// Look over everything, and say what to do about what is not as it should be
    Doctor(Store),
    /// Run the specifications next to the scripts
    Test(Test),
    /// Tokens for those who use the server
    #[command(subcommand)]
    Token(Token),
    /// How far each projection is, and what is parked
    Status(Status),
    /// A document
    Get(Get),
    /// What is set aside because an event could not be folded
    #[command(subcommand)]
    Parked(Parked),
    /// Events that came early, and what they wait for
    #[command(subcommand)]
    Held(Held),
    /// Events that contradict what is there
    #[command(subcommand)]
    Conflicts(Conflicts),
    /// Messages that are no events
    #[command(subcommand)]
    Rejected(Rejected),
    /// What reactions have done, and have still to do
    #[command(subcommand)]
    Tasks(Tasks),
    /// Every event that made a document, and what each changed; or why it is not there
    Explain(Explain),
    /// Fold a document anew from its first event
    Refold(Refold),
    /// Make all documents of a read model anew, beside the live ones, and switch to them
    Rebuild(Rebuild),
    /// Switch back to the documents from before the last rebuild
    Undo(Undo),
    /// Fold documents from the log, and compare them with what is stored
    Verify(Verify),
    /// List what operators did, the newest first
    Audit(Audit),
    /// Compare every document with an independent fold of the log
    #[command(hide = true)]
    DemoVerify(Store),
    /// What the demo starts, kills and starts again
    #[command(hide = true)]
    DemoWorker(Worker),
}

impl Command {
    /// The store it is about, where there is one.
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
    /// Where; here, if left out
    #[arg(default_value = ".")]
    pub(crate) directory: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Configured {
    /// The file
    #[arg(long, value_name = "FILE", default_value = FILE)]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) file: Configured,
    /// Listen where other machines can reach it also without TLS, or without tokens: then everybody may do everything
    #[arg(long)]
    pub(crate) insecure: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Test {
    #[command(flatten)]
    pub(crate) file: Configured,
    /// Only this projection's
    pub(crate) projection: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make a token: shows it once, and what to put into leftfold.toml
    New(NewToken),
}

#[derive(Debug, Args)]
pub(crate) struct NewToken {
    /// How you call it
    pub(crate) name: String,
    /// What it allows: ingest, read, operate; all, if left out
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',')]
    pub(crate) scopes: Vec<Scope>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Demo {
    /// How many events to append
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) events: u64,
    /// Keep the log and the documents in this file, or in the database of a mongodb:// URL; what an earlier demo made
    /// gets more events
    #[arg(long, value_name = "FILE|URL", value_parser = OsStringValueParser::new().map(Named::from))]
    pub(crate) store: Option<Named>,
    /// Bring the events in through feeds that deliver twice, out of order or not at all, and junk besides;
    /// `--chaos=false` appends them one by one
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    pub(crate) chaos: bool,
    /// How many feeds or writers there are at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) writers: u64,
    /// How many worker processes fold
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=16))]
    pub(crate) workers: u64,
    /// Kill a worker once in so many seconds, at a random moment; 0 for never
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = period)]
    pub(crate) kill_every: Duration,
    /// The share of events whose fold fails at first; a fiftieth of it fails until the code is mended
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, value_parser = share)]
    pub(crate) failing: f64,
    /// Chooses the events, which of them fail, and when workers are killed; random if not given
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Worker {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The name under which it works, the same after each restart
    #[arg(long)]
    pub(crate) name: String,
    /// The share of events whose fold fails at first
    #[arg(long, value_parser = share)]
    pub(crate) failing: f64,
    /// Chooses which
    #[arg(long)]
    pub(crate) seed: u64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Store {
    /// The file with the log and the documents, or the mongodb:// URL of a database; leftfold.db, if there is no leftfold.toml
    #[arg(long = "store", value_name = "FILE|URL", env = STORE,
        hide_env_values = true, value_parser = OsStringValueParser::new().map(Named::from))]
    pub(crate) named: Option<Named>,
    /// The file that names the store and the read models; leftfold.toml, if it is here and no store is named
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

/// What the audit trail says of an action.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Why it is done; kept in the audit trail
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
    /// How many to show
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) document: Document,
    /// Only up to a revision of its stream, an event (stream@revision), or a time such as 2026-01-01T00:00:00Z; and the document as it was then
    #[arg(long, value_name = "MOMENT", value_parser = moment)]
    pub(crate) at: Option<Moment>,
    /// Say why there is no such document: its events never came, wait, failed, were passed over, or deleted it
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
    /// Build it and say what would be another document, but do not switch
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How many documents to show that differ
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) samples: usize,
    /// Give up the rebuild that is under way
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) cancel: bool,
    #[command(flatten)]
    pub(crate) why: Why,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Only this read model
    pub(crate) collection: Option<String>,
    /// Only so many documents of each, drawn by chance
    #[arg(long, value_name = "N")]
    pub(crate) sample: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    #[command(flatten)]
    pub(crate) document: Document,
    /// Wait until this event is folded: the token that an append returned, or a stream and a revision
    #[arg(long, value_name = "TOKEN|STREAM@REVISION", value_parser = event)]
    pub(crate) at_least: Option<Event>,
    /// How long to wait for it
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// As it was at a revision of its stream, after an event (stream@revision), or at a time such as 2026-01-01T00:00:00Z
    #[arg(long, value_name = "MOMENT", value_parser = moment, conflicts_with = "at_least")]
    pub(crate) at: Option<Moment>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Held {
    /// The streams that wait, for which revisions, since when, and how many events wait with them
    List(Store),
    /// What is held of a stream
    Show(Stream),
    /// Say that revisions of a stream do not exist, and release what waited for them
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
    /// All that is missing up to this revision
    pub(crate) through: u64,
    /// Why it will never come; this is kept
    #[arg(long)]
    pub(crate) reason: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Conflicts {
    /// Those that nobody has decided
    List(Store),
    /// One of them, beside what is there
    Show(One),
    /// Decide that what is there is right: the same event that comes again need not be decided again
    Keep(Keep),
    /// Forget it, as if it had never come
    Discard(Forget),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Rejected {
    /// All of them
    List(Store),
    /// One of them, with its content
    Show(One),
    /// Read it as an event once more, and ingest it: after the cause is mended, or with other places to look at
    Resubmit(Resubmit),
    /// Forget one of them
    Forget(Forget),
}

#[derive(Debug, Args)]
pub(crate) struct Resubmit {
    #[command(flatten)]
    pub(crate) one: One,
    /// What its revision means
    #[arg(long, value_enum, default_value_t = Policy::Contiguous)]
    pub(crate) policy: Policy,
    /// How to find the event in it, as JSON: {"format":"fields","stream":…}; CloudEvents if left out
    #[arg(long, value_name = "JSON", value_parser = mapping)]
    pub(crate) mapping: Option<Box<Mapping>>,
    #[command(flatten)]
    pub(crate) why: Why,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Policy {
    /// 1, 2, 3 … without gaps
    Contiguous,
    /// Growing, with gaps
    Latest,
    /// None: it is given one
    Arrival,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tasks {
    /// Tasks, by reaction and document
    List(TaskList),
    /// How many there are of each reaction, by state
    Count(Store),
    /// One of them, with its last runs
    Show(OneTask),
    /// Have tasks run again, now
    Retry(RetryTasks),
    /// Have no run of a reaction begin, in any process
    Pause(OneReaction),
    /// Have a reaction run again that was paused or throttled
    Resume(OneReaction),
}

#[derive(Debug, Args)]
pub(crate) struct Selection {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Only those of this reaction
    #[arg(long)]
    pub(crate) reaction: Option<String>,
    /// Only those in this state; give it several times for several
    #[arg(long, value_enum)]
    pub(crate) state: Vec<TaskState>,
    /// Only those whose last error has this text in it
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
    /// Only those of this document
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
    /// How many to show
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
    /// Only those whose documents match this filter, in MongoDB's query language
    #[arg(long, value_name = "JSON", value_parser = filter)]
    pub(crate) filter: Option<Box<leftfold::react::Filter>>,
    /// All tasks of all reactions
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
    /// Its id as the list shows it, or the beginning of it
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct Keep {
    #[command(flatten)]
    pub(crate) one: One,
    /// Why what is there is right; this is kept
    #[arg(long)]
    pub(crate) reason: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Parked {
    /// What is parked, and why
    List(ParkedList),
    /// Try again with the code as it is now: one command after the cause is mended
    Retry(ParkedRetry),
}

#[derive(Debug, Args)]
pub(crate) struct ParkedList {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Only of this read model
    pub(crate) collection: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ParkedRetry {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The read model
    #[arg(conflicts_with = "all")]
    pub(crate) collection: Option<String>,
    /// The documents; everything that is parked if none is named
    pub(crate) ids: Vec<String>,
    /// Everything that is parked in all read models
    #[arg(long)]
    pub(crate) all: bool,
    /// The ids name streams, which are parked where their events can't be decoded; without ids: only streams
    #[arg(long)]
    pub(crate) streams: bool,
    /// Write nothing, and say what would be repaired
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) why: Why,
}

fn filter(text: &str) -> Result<Box<leftfold::react::Filter>, String> {
    text.parse().map(Box::new).map_err(|error: Invalid| error.to_string())
}

fn mapping(text: &str) -> Result<Box<Mapping>, String> {
    serde_json::from_str(text).map(Box::new).map_err(|error| format!("expected a mapping as JSON: {error}"))
}

/// What to wait for: an event's token, or its stream and revision.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Token(leftfold::Token),
    At(StreamId, Revision),
}

fn event(text: &str) -> Result<Event, String> {
    if let Some((stream, revision)) = text.rsplit_once('@')
        && let (Ok(stream), Ok(revision)) = (StreamId::new(stream), revision.parse())
    {
        return Ok(Event::At(stream, Revision(revision)));
    }
    text.parse().map(Event::Token).map_err(|error: Invalid| format!("{error}; or stream@revision"))
}

fn moment(text: &str) -> Result<Moment, String> {
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
