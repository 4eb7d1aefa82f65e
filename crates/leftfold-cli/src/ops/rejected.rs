//! `leftfold rejected`: messages that are not events.

use leftfold::sequence::Rejected;
use leftfold::{IngestAnswer, Sequencer, Sequences};
use leftfold_sources::{Resubmitted, resubmit};
use leftfold_terminal::{Exit, Failure, Location, Out, shorten, table, thousands, time};
use serde_json::{Value, json};

use super::audit;
use crate::args::{DeleteArgs, IdArgs, ResubmitArgs};

const PAGE: usize = 100;

pub(crate) async fn list_rejected<L: Location>(location: &L, out: &mut Out) -> Result<Exit, Failure> {
    let store = location.open_existing().await?;
    let mut rows = table(["id", "source", "since", "bytes", "reason"], &[3]);
    let mut after = None;
    loop {
        let page = store.rejected(after, PAGE).await?;
        after = page.last().map(Rejected::id);
        for rejected in &page {
            out.element(&in_json(rejected))?;
            rows.add_row([
                rejected.id().chars().take(12).collect(),
                rejected.source.clone(),
                time(rejected.since),
                thousands(rejected.content.len() as u64),
                shorten(&rejected.reason, 100),
            ]);
        }
        if page.len() < PAGE {
            break;
        }
    }
    out.end_of_list()?;
    if rows.is_empty() {
        out.line("no message was rejected")?;
    } else {
        out.line(rows)?;
    }
    Ok(Exit::Done)
}

pub(crate) async fn show_rejected<L: Location>(
    location: &L,
    args: &IdArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let store = location.open_existing().await?;
    let rejected = one(&store, &args.id).await?;
    out.value(&in_json(&rejected))?;
    out.line(format_args!("{} from {}, {}", rejected.id(), rejected.source, time(rejected.since)))?;
    out.line(format_args!("  {}", rejected.reason))?;
    for (name, value) in &rejected.attributes {
        out.line(format_args!("  {name}: {}", shorten(value, 200)))?;
    }
    out.line(String::from_utf8_lossy(&rejected.content))?;
    Ok(Exit::Done)
}

pub(crate) async fn resubmit_rejected<L: Location>(
    location: &L,
    args: &ResubmitArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let store = location.open_existing().await?;
    let id = one(&store, &args.id.id).await?.id();
    let mapping = args.mapping.clone().map(|mapping| *mapping).unwrap_or_default();
    let (became, result) = match resubmit(&Sequencer::new(store.clone()), &id, &mapping, args.policy.into())
        .await?
    {
        Resubmitted::NotThere => ("gone", "another process has resubmitted or deleted it".to_owned()),
        Resubmitted::StillRejected(invalid) => ("rejected", format!("still no event: {invalid}")),
        Resubmitted::Answered(answer) => match answer {
            IngestAnswer::Appended(bookmark) => ("appended", format!("appended at {bookmark}")),
            IngestAnswer::Duplicate(bookmark) => ("duplicate", format!("already in the log at {bookmark}")),
            IngestAnswer::Held { waiting_for } => {
                ("held", format!("held until revision {waiting_for} arrives"))
            }
            IngestAnswer::Stale { last } => ("stale", format!("older than revision {last}, and dropped")),
            IngestAnswer::Conflict(why) => {
                ("conflict", format!("a conflict: {why}; see `leftfold conflicts list`"))
            }
            IngestAnswer::Refused(refusal) => ("refused", refusal.to_string()),
        },
    };
    if !matches!(became, "gone" | "rejected" | "refused") {
        audit::record(&store, "resubmit-rejected", &id, args.reason.reason.as_deref(), became).await?;
    }
    out.value(&json!({ "id": id, "became": became, "said": result }))?;
    out.line(format_args!("{id}: {result}"))?;
    Ok(if matches!(became, "rejected" | "refused" | "gone") { Exit::No } else { Exit::Done })
}

pub(crate) async fn delete_rejected<L: Location>(
    location: &L,
    args: &DeleteArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let store = location.open_existing().await?;
    let id = one(&store, &args.id.id).await?.id();
    let is_done = store.forget(&id).await?;
    if is_done {
        audit::record(&store, "forget-rejected", &id, args.reason.reason.as_deref(), "deleted").await?;
    }
    out.value(&json!({ "id": id, "forgotten": is_done }))?;
    out.line(format_args!("{id}: deleted"))?;
    Ok(if is_done { Exit::Done } else { Exit::No })
}

/// Returns the message whose id begins with `id`.
async fn one(store: &impl Sequences, id: &str) -> Result<Rejected, Failure> {
    // Ids are ordered. An id follows right after its prefix, and a whole id right after all but its
    // last letter.
    let before = id.get(..id.len().min(31)).unwrap_or_default();
    let mut page = store.rejected(Some(before.to_owned()), 17).await?;
    page.retain(|rejected| rejected.id().starts_with(id));
    match (page.pop(), page.len()) {
        (Some(rejected), 0) => Ok(rejected),
        (None, _) => {
            let message = format!("no rejected message has the id {id}; see `leftfold rejected list`");
            Err(Failure::new(Exit::No, message))
        }
        _ => Err(Failure::new(
            Exit::Usage,
            format!("the ids of several messages begin with {id}; give more of the id"),
        )),
    }
}

fn in_json(rejected: &Rejected) -> Value {
    json!({
        "id": rejected.id(), "source": rejected.source, "reason": rejected.reason, "since": rejected.since,
        "attributes": rejected.attributes, "bytes": rejected.content.len(),
        "text": String::from_utf8(rejected.content.clone()).ok(), "content": rejected.content,
    })
}
