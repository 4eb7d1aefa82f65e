//! Preparing a collection for documents: creating it, or checking the existing one.

use bson::{Document, doc};
use leftfold::react::ExternalCollection;
use leftfold::{Error, Kind, Result};

use crate::connection::Base;
use crate::error::Failure;
use crate::schema::create;

impl Base {
    /// Creates the collection if it is missing. Fails if a view or another object has its name.
    pub(super) async fn prepare_contents(&self, collection: &ExternalCollection) -> Result<()> {
        self.run("create a collection in", create(&self.db, collection.as_str())).await?;
        let Some(kind) = self.run("list the collections of", self.other_kind(collection)).await? else {
            return Ok(());
        };
        let message = format!(
            "could not store documents in {} of {}: it is a {kind}; name another collection",
            collection.as_str(),
            self.place
        );
        Err(Error::new(Kind::Invalid, message))
    }

    /// Returns the kind of the object with this name, if it is not a collection.
    async fn other_kind(&self, plain: &ExternalCollection) -> Result<Option<String>, Failure> {
        let filter = doc! { "name": plain.as_str(), "type": { "$ne": "collection" } };
        let mut found = self.db.list_collections().filter(filter).await?;
        if !found.advance().await? {
            return Ok(None);
        }
        let found = Document::try_from(found.current())?;
        Ok(Some(found.get_str("type").unwrap_or_default().to_owned()))
    }
}
