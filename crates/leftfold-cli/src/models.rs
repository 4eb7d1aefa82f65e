//! The read models that commands work with: those of a `leftfold.toml`, or the example's.

use std::path::Path;

use leftfold::inspect::doctor::{Examine, Finding};
use leftfold::{App, Collection, Leftfold, Projection as _, Sequences, Store};
use leftfold_script::Script;
use shopping_cart::{CartDetails, ClientSummary, DailyTotals, OpenCarts};

use crate::args;
use crate::daemon::{Config, FILE};
use crate::exit::{Exit, Failure};
use crate::place::{File, Named, Place};

/// The read models of the example.
pub(crate) const COLLECTIONS: [&str; 4] = ["cart_details", "client_summary", "daily_totals", "open_carts"];

/// The default file of the store.
const STORE_FILE: &str = "leftfold.db";

pub(crate) enum Models {
    /// The read models of the example, a small shop.
    Shop,
    /// The read models that a file names. They are compiled on demand, because commands such as
    /// `held` need none.
    Scripts(Box<Config>),
}

impl Models {
    /// Chooses the store and the read models. `--config` takes precedence over `--store`, which
    /// comes with the example's read models. Without both, the file in this directory applies, if
    /// any.
    pub(crate) fn choose(args: &args::Store) -> Result<(Named, Self), Failure> {
        let Some(file) = Self::file(args) else { return Ok((Self::store(args), Self::Shop)) };
        let config = Config::read(file)?;
        Ok((config.place()?, Self::Scripts(Box::new(config))))
    }

    /// Returns the file that the arguments select, if any.
    pub(crate) fn file(args: &args::Store) -> Option<&Path> {
        match (&args.config, &args.named) {
            (Some(file), _) => Some(file),
            (None, None) => Some(Path::new(FILE)).filter(|file| file.is_file()),
            (None, Some(_)) => None,
        }
    }

    /// Returns the store that the arguments select, if no file applies.
    pub(crate) fn store(args: &args::Store) -> Named {
        args.named.clone().unwrap_or_else(|| Named::File(File(STORE_FILE.into())))
    }

    /// Opens the store, or creates it; no worker runs.
    pub(crate) async fn open<P: Place>(&self, place: &P) -> Result<App<P::Store>, Failure> {
        self.on(place.open().await?).await
    }

    /// Opens the store, which must exist.
    pub(crate) async fn open_existing<P: Place>(&self, place: &P) -> Result<App<P::Store>, Failure> {
        self.on(place.open_existing().await?).await
    }

    async fn on<S: Store>(&self, store: S) -> Result<App<S>, Failure> {
        // If the log can't be opened, create nothing else.
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

    /// Returns the names of the read models.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Self::Shop => COLLECTIONS.to_vec(),
            Self::Scripts(config) => config.projections.iter().map(|one| one.name.as_str()).collect(),
        }
    }

    /// Returns the selected read models: one that must exist, or all.
    pub(crate) fn named<'n>(&'n self, collection: Option<&'n str>) -> Result<Vec<&'n str>, Failure> {
        match collection {
            None => Ok(self.names()),
            Some(collection) => self.known(collection).map(|()| vec![collection]),
        }
    }

    /// Checks that a read model exists.
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

/// Examines a store without changing it, with the read models of scripts. Without scripts it uses
/// those of the example that have run.
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
