//! `leftfold get`: a document, now, once an event is folded, or as it was.

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
    if let Some(moment) = &args.at {
        return match app.past(collection, id, moment).await? {
            Some(document) => show(&document, out),
            None => {
                let message =
                    format!("reading {id:?} from {collection}: as of {moment} there was no such document");
                Err(Failure::new(Exit::No, message))
            }
        };
    }
    let mut get = app.get_as::<Value>(collection, id);
    if let Some(event) = args.at_least {
        let token = match event {
            Event::Token(token) => token,
            Event::At(stream, revision) => {
                let sequencer = Sequencer::new(app.store().clone());
                sequencer.logged(&stream, revision, args.timeout).await?
            }
        };
        get = get.at_least(token).within(args.timeout);
    }
    let Some(document) = get.await? else {
        let message = format!("reading {id:?} from {collection}: there is no such document");
        return Err(Failure::new(Exit::No, message));
    };
    show(&document, out)
}

fn show(document: &Value, out: &mut Out) -> Result<Exit, Failure> {
    out.value(document)?;
    out.line(format_args!("{document:#}"))?;
    Ok(Exit::Done)
}
