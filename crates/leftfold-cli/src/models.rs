//! The read models that commands work with: those of a `leftfold.toml`, or the example's.

use std::path::Path;

use leftfold::doctor::{Examine, Finding};
use leftfold::{App, Collection, Leftfold, Projection as _, Sequences, Store};
use leftfold_script::Script;
use shopping_cart::{CartDetails, ClientSummary, DailyTotals, OpenCarts};

use crate::args;
use crate::daemon::{Config, FILE};
use crate::exit::{Exit, Failure};
use crate::place::{File, Named, Place};

/// The example's.
pub(crate) const COLLECTIONS: [&str; 4] = ["cart_details", "client_summary", "daily_totals", "open_carts"];

/// The file of the store, if none is named.
const STORE_FILE: &str = "leftfold.db";

pub(crate) enum Models {
    /// Those of the example, a small shop.
    Shop,
    /// Those that a file names. They are compiled when they are needed: who looks at what is held needs none.
    Scripts(Box<Config>),
}

impl Models {
    /// What the arguments are about: the file that `--config` names; else the store that `--store` names, with the example's read models; else
    /// the file that is here, if there is one.
    pub(crate) fn choose(args: &args::Store) -> Result<(Named, Self), Failure> {
        let Some(file) = Self::file(args) else { return Ok((Self::store(args), Self::Shop)) };
        let config = Config::read(file)?;
        Ok((config.place()?, Self::Scripts(Box::new(config))))
    }

    /// The file that the arguments are about, if it is one.
    pub(crate) fn file(args: &args::Store) -> Option<&Path> {
        match (&args.config, &args.named) {
            (Some(file), _) => Some(file),
            (None, None) => Some(Path::new(FILE)).filter(|file| file.is_file()),
            (None, Some(_)) => None,
        }
    }

    /// The store that the arguments are about, if no file is.
    pub(crate) fn store(args: &args::Store) -> Named {
        args.named.clone().unwrap_or_else(|| Named::File(File(STORE_FILE.into())))
    }

    /// Opens the store, or makes it; no worker runs.
    pub(crate) async fn open<P: Place>(&self, place: &P) -> Result<App<P::Store>, Failure> {
        self.on(place.open().await?).await
    }

    /// Opens the store, which must be there.
    pub(crate) async fn open_existing<P: Place>(&self, place: &P) -> Result<App<P::Store>, Failure> {
        self.on(place.open_existing().await?).await
    }

    async fn on<S: Store>(&self, store: S) -> Result<App<S>, Failure> {
        // Where there can be no log, nothing else is to be made.
        store.heads().await?;
        let app = Leftfold::on(store);
        let app = match self {
            Self::Shop => app
                .projection(CartDetails)
                .projection(ClientSummary)
                .projection(DailyTotals)
                .projection(OpenCarts),
            Self::Scripts(config) => config.scripts()?.into_iter().fold(app, Leftfold::projection),
        };
        Ok(app.open().await?)
    }

    /// Their names.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Self::Shop => COLLECTIONS.to_vec(),
            Self::Scripts(config) => config.projections.iter().map(|one| one.name.as_str()).collect(),
        }
    }

    /// Those that are meant: one that must be there, or all.
    pub(crate) fn named<'n>(&'n self, collection: Option<&'n str>) -> Result<Vec<&'n str>, Failure> {
        match collection {
            None => Ok(self.names()),
            Some(collection) => self.known(collection).map(|()| vec![collection]),
        }
    }

    /// Checks the name of one.
    pub(crate) fn known(&self, collection: &str) -> Result<(), Failure> {
        let names = self.names();
        if names.contains(&collection) {
            return Ok(());
        }
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let message = format!("no read model is named {collection:?}; there are: {there}");
        Err(Failure::new(Exit::Usage, message))
    }
}

/// Has a store looked over as it is, with the read models of scripts; else with the example's, which are not missed where they have never run.
pub(crate) async fn doctor<S>(store: S, scripts: Option<Vec<Script>>) -> Result<Vec<Finding>, Failure>
where
    S: Store + Sequences + Examine,
{
    let mut app = Leftfold::on(store.clone());
    if let Some(scripts) = scripts {
        return Ok(scripts.into_iter().fold(app, Leftfold::projection).doctor().await?);
    }
    let has_run = async |name: &str| -> Result<bool, Failure> {
        Ok(store.generations(&Collection::new(name)?).await?.revision > 0)
    };
    if has_run(CartDetails.name()).await? {
        app = app.projection(CartDetails);
    }
    if has_run(ClientSummary.name()).await? {
        app = app.projection(ClientSummary);
    }
    if has_run(DailyTotals.name()).await? {
        app = app.projection(DailyTotals);
    }
    if has_run(OpenCarts.name()).await? {
        app = app.projection(OpenCarts);
    }
    Ok(app.doctor().await?)
}
