//! The arguments of the commands for tasks of reactions.

use clap::{Args, Subcommand, ValueEnum};
use leftfold::react::{Filter, State};

use super::ReasonArgs;
use super::parse::filter;

#[derive(Debug, Subcommand)]
pub(crate) enum Tasks {
    /// List tasks by reaction and document
    List(TaskListArgs),
    /// Count the tasks of each reaction by state
    Count,
    /// Show a task with its last runs
    Show(TaskArgs),
    /// Run tasks again now
    Retry(RetryTasksArgs),
    /// Pause a reaction in every process
    Pause(ReactionArgs),
    /// Resume a reaction that was paused or throttled
    Resume(ReactionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TaskSelection {
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

impl From<TaskState> for State {
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
pub(crate) struct TaskListArgs {
    #[command(flatten)]
    pub(crate) selected: TaskSelection,
    /// Show at most this many tasks
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct TaskArgs {
    /// The reaction
    pub(crate) reaction: String,
    /// The document's id
    pub(crate) document: String,
}

#[derive(Debug, Args)]
pub(crate) struct RetryTasksArgs {
    #[command(flatten)]
    pub(crate) selected: TaskSelection,
    /// Select only tasks whose documents match this filter, in MongoDB's query language
    #[arg(long, value_name = "JSON", value_parser = filter)]
    pub(crate) filter: Option<Box<Filter>>,
    /// Select all tasks of all reactions
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) reason: ReasonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReactionArgs {
    /// The reaction
    pub(crate) reaction: String,
    #[command(flatten)]
    pub(crate) reason: ReasonArgs,
}
