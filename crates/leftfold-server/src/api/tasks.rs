//! Tasks of reactions: finished and pending ones.

use axum::extract::State;
use leftfold::DocumentId;
use leftfold::react::{Filter, Query, State as TaskState, Task, TaskKey};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::audit::{Actor, REASON, Reason, reason};
use super::extract::{Content, Named, Params};
use super::{Answer, Operation, fill, json_of, page_limit};
use crate::access::Scope;
use crate::idempotency::AfterUnknown;
use crate::problem::Problem;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    let selection = json!({
        "type": "object", "additionalProperties": false,
        "description": "The tasks to run. Without any condition, `all` must be true.",
        "properties": {
            "reaction": { "type": "string" }, "document": { "type": "string" },
            "states": { "type": "array", "items": { "type": "string" } }, "error": { "type": "string" },
            "filter": { "type": "object" }, "all": { "type": "boolean" },
            "reason": { "type": "string", "description": REASON },
        },
    });
    vec![
        Operation::get(
            "/reactions",
            "listReactions",
            "List reactions, with the number of tasks by state and the oldest due task",
            reactions::<S>,
        )
        .scope(Scope::Operate),
        Operation::post(
            "/reactions/{reaction}/pause",
            "pauseReaction",
            "Pause a reaction in every process",
            pause::<S>,
        )
        .scope(Scope::Operate)
        .idempotent(AfterUnknown::Repeat)
        .optional_body("application/json", reason()),
        Operation::post(
            "/reactions/{reaction}/resume",
            "resumeReaction",
            "Resume a reaction that was paused or throttled",
            resume::<S>,
        )
        .scope(Scope::Operate)
        .idempotent(AfterUnknown::Repeat)
        .optional_body("application/json", reason()),
        Operation::get("/tasks", "listTasks", "List tasks by reaction and document", list::<S>)
            .scope(Scope::Operate)
            .query("reaction", "Select tasks of this reaction", "string")
            .query("document", "Select tasks of this document", "string")
            .query(
                "state",
                "Select tasks in this state: pending, running, changed, done, stale or failed",
                "string",
            )
            .query("error", "Select tasks whose last error contains this text", "string")
            .query(
                "after",
                "The `after` of the previous page: a document, or reaction/document without `reaction`",
                "string",
            )
            .query("limit", "The maximum number of tasks: 100 by default, at most 1000", "integer"),
        Operation::get("/tasks/{reaction}/{document}", "getTask", "Show a task with its last runs", get::<S>)
            .scope(Scope::Operate)
            .fails(404, "The task does not exist"),
        Operation::post("/tasks/retry", "retryTasks", "Run tasks again now", retry::<S>)
            .scope(Scope::Operate)
            .idempotent(AfterUnknown::Repeat)
            .body("application/json", selection),
    ]
}

async fn reactions<S: Backend>(State(shared): State<Shared<S>>) -> Answer {
    let (registered, depths) = (shared.reacting.reactions().await?, shared.reacting.depths().await?);
    let reactions = registered.iter().map(|registered| {
        let depth = depths.get(&registered.name).cloned().unwrap_or_default();
        json!({
            "reaction": registered.name, "on": registered.on.as_ref().map(ToString::to_string),
            "states": depth.states, "oldest_due": depth.oldest_due, "paused": registered.paused,
            "paused_because": registered.paused_because,
            "throttled": registered.throttled, "comparing": registered.comparing,
        })
    });
    json_of(&json!({ "reactions": reactions.collect::<Vec<_>>() }))
}

async fn pause<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(reaction): Named<String>,
    Reason(reason): Reason,
) -> Answer {
    shared.reacting.pause(&reaction).await?;
    actor.did(&shared, "pause-reaction", &reaction, reason.as_deref(), "paused").await;
    json_of(&json!({ "reaction": reaction, "paused": true }))
}

async fn resume<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(reaction): Named<String>,
    Reason(reason): Reason,
) -> Answer {
    shared.reacting.resume(&reaction).await?;
    actor.did(&shared, "resume-reaction", &reaction, reason.as_deref(), "resumed").await;
    json_of(&json!({ "reaction": reaction, "paused": false }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    reaction: Option<String>,
    document: Option<String>,
    state: Option<TaskState>,
    error: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

async fn list<S: Backend>(State(shared): State<Shared<S>>, Params(params): Params<List>) -> Answer {
    let List { reaction, document, state, error, after, limit } = params;
    let after = match (after, &reaction) {
        (None, _) => None,
        (Some(document), Some(reaction)) => {
            Some(TaskKey { reaction: reaction.clone(), document: DocumentId::new(document)? })
        }
        (Some(both), None) => match both.split_once('/') {
            Some((reaction, document)) => {
                Some(TaskKey { reaction: reaction.to_owned(), document: DocumentId::new(document)? })
            }
            None => return Err(Problem::invalid("after: expected reaction/document")),
        },
    };
    let is_of_one = reaction.is_some();
    let query = Query {
        reaction,
        document: document.map(DocumentId::new).transpose()?,
        states: state.into_iter().collect(),
        error,
        changed_before: None,
    };
    let _turn = shared.turn().await;
    let read = |after, most| shared.reacting.tasks(query.clone(), after, most);
    let size = |task: &Task| {
        let errors = task.history.iter().filter_map(|run| run.error.as_ref()).chain(&task.error);
        task.watched.as_str().len() + errors.map(String::len).sum::<usize>() + 2_000
    };
    let (tasks, more) = fill(page_limit(limit)?, after, read, |task| task.key.clone(), size).await?;
    let after = tasks.last().filter(|_| more).map(|Task { key, .. }| {
        if is_of_one { key.document.to_string() } else { format!("{}/{}", key.reaction, key.document) }
    });
    json_of(&TaskPage { tasks, after, more })
}

/// A page of tasks.
#[derive(Serialize)]
struct TaskPage {
    tasks: Vec<Task>,
    after: Option<String>,
    more: bool,
}

async fn get<S: Backend>(
    State(shared): State<Shared<S>>,
    Named((reaction, document)): Named<(String, String)>,
) -> Answer {
    let key = TaskKey { reaction, document: DocumentId::new(document)? };
    match shared.reacting.task(key.clone()).await? {
        Some(task) => json_of(&task),
        None => Err(Problem::missing(format!(
            "reaction {} has no task for document {}",
            key.reaction, key.document
        ))),
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Selection {
    reaction: Option<String>,
    document: Option<String>,
    states: Vec<TaskState>,
    error: Option<String>,
    filter: Option<serde_json::Value>,
    all: bool,
    reason: Option<String>,
}

impl Selection {
    /// Describes the selected tasks for the audit trail.
    fn shown(&self) -> String {
        let Self { reaction, document, states, error, filter, .. } = self;
        let parts = [
            reaction.as_ref().map(|reaction| format!("reaction {reaction}")),
            document.as_ref().map(|document| format!("document {document}")),
            (!states.is_empty()).then(|| format!("states {}", json!(states))),
            error.as_ref().map(|error| format!("error {error:?}")),
            filter.as_ref().map(|filter| format!("filter {filter}")),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "all tasks".to_owned() } else { parts.join(", ") }
    }
}

async fn retry<S: Backend>(State(shared): State<Shared<S>>, actor: Actor, content: Content) -> Answer {
    let selected: Selection = content.json_or_default()?;
    let (target, reason) = (selected.shown(), selected.reason.clone());
    let filter = selected.filter.as_ref().map(Filter::parse).transpose()?;
    let query = Query {
        reaction: selected.reaction,
        document: selected.document.map(DocumentId::new).transpose()?,
        states: selected.states.into_iter().collect(),
        error: selected.error,
        changed_before: None,
    };
    if query == Query::default() && filter.is_none() && !selected.all {
        return Err(Problem::invalid("the body selects no tasks; send a condition, or \"all\": true"));
    }
    let retried = shared.reacting.retry(query, filter.as_ref()).await?;
    if retried > 0 {
        let outcome = format!("{retried} to be run again");
        actor.did(&shared, "retry-tasks", &target, reason.as_deref(), &outcome).await;
    }
    json_of(&json!({ "retried": retried }))
}
