//! `leftfold tasks`: finished and pending tasks of reactions.

use leftfold::DocumentId;
use leftfold::react::{
    Query, ReactionStore, Reactor, ReactorHandle, Registered, State, Suspicion, Task, TaskKey,
};
use leftfold_terminal::{Exit, Failure, Location, Out, count, shorten, table, thousands, time};
use serde_json::json;

use super::audit;
use crate::args::{ReactionArgs, RetryTasksArgs, TaskArgs, TaskListArgs, TaskSelection};

const PAGE: usize = 500;

/// Returns a handle on the reactions of a store; none runs here.
async fn open<L: Location>(location: &L) -> Result<ReactorHandle<L::Store>, Failure> {
    on(location.open_existing().await?).await
}

async fn on<S: ReactionStore>(store: S) -> Result<ReactorHandle<S>, Failure> {
    Ok(Reactor::on(store).plans(false).start().await?)
}

fn query(selected: &TaskSelection) -> Result<Query, Failure> {
    let document = selected.document.as_ref().map(DocumentId::new).transpose()?;
    Ok(Query {
        reaction: selected.reaction.clone(),
        document,
        states: selected.state.iter().map(|state| (*state).into()).collect(),
        error: selected.error.clone(),
        changed_before: None,
    })
}

pub(crate) async fn list_tasks<L: Location>(
    location: &L,
    args: &TaskListArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let reacting = open(location).await?;
    let query = query(&args.selected)?;
    let mut rows = table(["reaction", "document", "state", "due", "attempts", "last error"], &[4]);
    let (mut after, mut left) = (None, args.limit);
    while left > 0 {
        let page = reacting.tasks(query.clone(), after, PAGE.min(left)).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.key.clone());
        left -= page.len();
        for task in &page {
            out.element(task)?;
            rows.add_row([
                task.key.reaction.clone(),
                task.key.document.to_string(),
                named(task.state).to_owned(),
                task.due.map(time).unwrap_or_default(),
                thousands(task.attempts.into()),
                shorten(task.error.as_deref().unwrap_or_default(), 60),
            ]);
        }
    }
    out.end_of_list()?;
    if rows.is_empty() {
        out.line("no such tasks")?;
    } else {
        out.line(rows)?;
    }
    Ok(Exit::Done)
}

pub(crate) async fn count_tasks<L: Location>(location: &L, out: &mut Out) -> Result<Exit, Failure> {
    let reacting = open(location).await?;
    let (registered, depths) = (reacting.reactions().await?, reacting.depths().await?);
    let header = ["reaction", "pending", "running", "done", "stale", "failed", "oldest due"];
    let (mut rows, mut notes) = (table(header, &[1, 2, 3, 4, 5]), Vec::new());
    for Registered { name, on, paused, paused_because, throttled, comparing, .. } in &registered {
        let depth = depths.get(name).cloned().unwrap_or_default();
        let number = |state: State| depth.states.get(&state).copied().unwrap_or(0);
        out.element(&json!({
            "reaction": name, "on": on.as_ref().map(ToString::to_string), "states": depth.states,
            "oldest_due": depth.oldest_due, "paused": paused, "paused_because": paused_because,
            "throttled": throttled, "comparing": comparing,
        }))?;
        rows.add_row([
            name.clone(),
            thousands(number(State::Pending)),
            thousands(number(State::Running) + number(State::Changed)),
            thousands(number(State::Done)),
            thousands(number(State::Stale)),
            thousands(number(State::Failed)),
            depth.oldest_due.map(time).unwrap_or_default(),
        ]);
        let note = match (paused, throttled, comparing) {
            (true, ..) => paused_because.as_ref().map_or("paused".to_owned(), |why| format!("paused: {why}")),
            (_, Some(until), _) => format!("throttled until {}", time(*until)),
            (.., Some(_)) => "comparing all documents".to_owned(),
            _ => continue,
        };
        notes.push(format!("{name}: {note}"));
    }
    out.end_of_list()?;
    if registered.is_empty() {
        return Ok(out.line("no reactions").map(|()| Exit::Done)?);
    }
    out.line(rows)?;
    for note in notes {
        out.line(note)?;
    }
    Ok(Exit::Done)
}

pub(crate) async fn show_task<L: Location>(
    location: &L,
    args: &TaskArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let reacting = open(location).await?;
    let key = TaskKey { reaction: args.reaction.clone(), document: DocumentId::new(&args.document)? };
    let Some(task) = reacting.task(key).await? else {
        let message =
            format!("{} has no task for {}; see `leftfold tasks list`", args.reaction, args.document);
        return Err(Failure::new(Exit::No, message));
    };
    out.value(&task)?;
    let Task {
        key, state, attempts, generation, epoch, since, due, error, watched, history, suspicion, ..
    } = &task;
    out.line(format_args!("{} for {}: {}", key.reaction, key.document, named(*state)))?;
    out.line(format_args!(
        "  since {}, {}, state {generation}, claim {epoch}",
        time(*since),
        count((*attempts).into(), "attempt")
    ))?;
    if let Some(due) = due {
        out.line(format_args!("  due {}", time(*due)))?;
    }
    if let Some(error) = error {
        out.line(format_args!("  {error}"))?;
    }
    let company = match suspicion {
        Suspicion::None => None,
        Suspicion::Many => Some("with at most 64 suspects"),
        Suspicion::Few => Some("with at most 8 suspects"),
        Suspicion::Alone => Some("alone"),
    };
    if let Some(company) = company {
        out.line(format_args!("  a suspect, because its process died; it runs {company}"))?;
    }
    out.line(format_args!("  watched: {}", shorten(watched.as_str(), 200)))?;
    for run in history {
        let error = run.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
        out.line(format_args!(
            "  {} {:?} after {} ms{error}",
            time(run.at),
            run.outcome,
            thousands(run.millis)
        ))?;
    }
    Ok(Exit::Done)
}

pub(crate) async fn retry_tasks<L: Location>(
    location: &L,
    args: &RetryTasksArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let query = query(&args.selected)?;
    if query == Query::default() && args.filter.is_none() && !args.all {
        return Err(Failure::new(
            Exit::Usage,
            "retrying: no tasks are selected; select some, or all with --all",
        ));
    }
    let target = selected(&args.selected);
    let store = location.open_existing().await?;
    let retried = on(store.clone()).await?.retry(query, args.filter.as_deref()).await?;
    if retried > 0 {
        let outcome = format!("{} will run again", count(retried, "task"));
        audit::record(&store, "retry-tasks", &target, args.reason.reason.as_deref(), &outcome).await?;
    }
    out.value(&json!({ "retried": retried }))?;
    out.line(format_args!("{} will run again", count(retried, "task")))?;
    Ok(Exit::Done)
}

pub(crate) async fn pause_reaction<L: Location>(
    location: &L,
    args: &ReactionArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    set_paused(location, args, true, out).await
}

pub(crate) async fn resume_reaction<L: Location>(
    location: &L,
    args: &ReactionArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    set_paused(location, args, false, out).await
}

async fn set_paused<L: Location>(
    location: &L,
    args: &ReactionArgs,
    pauses: bool,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let store = location.open_existing().await?;
    let reacting = on(store.clone()).await?;
    let (action, outcome) = if pauses {
        reacting.pause(&args.reaction).await?;
        ("pause-reaction", "paused")
    } else {
        reacting.resume(&args.reaction).await?;
        ("resume-reaction", "resumed")
    };
    audit::record(&store, action, &args.reaction, args.reason.reason.as_deref(), outcome).await?;
    out.value(&json!({ "reaction": args.reaction, "paused": pauses }))?;
    let result = if pauses { "paused; no run begins until it is resumed" } else { "resumed" };
    out.line(format_args!("{}: {result}", args.reaction))?;
    Ok(Exit::Done)
}

/// Describes the selected tasks for the audit trail.
fn selected(selected: &TaskSelection) -> String {
    let TaskSelection { reaction, state, error, document, .. } = selected;
    let states: Vec<_> = state.iter().map(|state| named((*state).into())).collect();
    let parts = [
        reaction.as_ref().map(|reaction| format!("reaction {reaction}")),
        document.as_ref().map(|document| format!("document {document}")),
        (!states.is_empty()).then(|| format!("state {}", states.join(" or "))),
        error.as_ref().map(|error| format!("error {error:?}")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "all tasks".to_owned() } else { parts.join(", ") }
}

fn named(state: State) -> &'static str {
    match state {
        State::Pending => "pending",
        State::Running => "running",
        State::Changed => "running, and changed",
        State::Done => "done",
        State::Stale => "stale",
        State::Failed => "failed",
    }
}
