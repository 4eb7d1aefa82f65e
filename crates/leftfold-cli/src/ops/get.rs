//! `leftfold get`: a document, now, once an event is folded, or at an earlier time.

use leftfold::Sequencer;
use serde_json::Value;

use crate::args::{self, Event};
use crate::exit::{Exit, Failure};
use crate::models::Models;
use crate::output::Out;
use crate::place::Place;

pub(crate) async fn get<P: Place>(
    place: &P,
    models: &Models,
    args: args::Get,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let args::Document { collection, id, .. } = &args.document;
    models.known(collection)?;
    let app = models.open_existing(place).await?;
    let (document, missing) = if let Some(moment) = &args.at {
        let missing = format!("as of {moment} there was no such document");
        (app.past(collection, id, moment).await?, missing)
    } else {
        let mut get = app.get_as::<Value>(collection, id);
        if let Some(event) = args.at_least {
            let bookmark = match event {
                Event::Bookmark(bookmark) => bookmark,
                Event::At(stream, revision) => {
                    let sequencer = Sequencer::new(app.store().clone());
                    sequencer.logged(&stream, revision, args.timeout).await?
                }
            };
            get = get.at_least(bookmark).within(args.timeout);
        }
        (get.await?, "there is no such document; `leftfold explain --why-not` says why".to_owned())
    };
    let Some(document) = document else {
        return Err(Failure::new(Exit::No, format!("reading {id:?} from {collection}: {missing}")));
    };
    out.value(&document)?;
    out.line(format_args!("{document:#}"))?;
    Ok(Exit::Done)
}
