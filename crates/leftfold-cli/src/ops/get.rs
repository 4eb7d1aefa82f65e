//! `leftfold get`: a document, now, once an event is folded, or at an earlier time.

use leftfold::Sequencer;
use leftfold_terminal::{Exit, Failure, Location, Out};

use crate::args::{AwaitedEvent, DocumentArgs, GetArgs};
use crate::projections::{Projections, select_from};

pub(crate) async fn get<L: Location>(
    location: &L,
    projections: &Projections,
    args: GetArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let DocumentArgs { collection, id } = &args.document;
    let (document, missing) = if let Some(moment) = &args.at {
        let app = projections.open_with_code(location, "get --at").await?;
        select_from(&app, Some(collection))?;
        let missing = format!("no such document as of {moment}");
        (app.past(collection, id, moment).await?, missing)
    } else {
        let documents = projections.open(location).await?;
        documents.collections(Some(collection)).await?;
        let mut get = documents.get(collection, id);
        if let Some(event) = args.at_least {
            let bookmark = match event {
                AwaitedEvent::Bookmark(bookmark) => bookmark,
                AwaitedEvent::At(stream, revision) => {
                    let sequencer = Sequencer::new(documents.store().clone());
                    sequencer.logged(&stream, revision, args.timeout).await?
                }
            };
            get = get.at_least(bookmark).within(args.timeout);
        }
        (get.await?, "no such document; see why with `leftfold explain --why-not`".to_owned())
    };
    let Some(document) = document else {
        return Err(Failure::new(Exit::No, format!("reading {id:?} from {collection}: {missing}")));
    };
    out.value(&document)?;
    out.line(format_args!("{document:#}"))?;
    Ok(Exit::Done)
}
