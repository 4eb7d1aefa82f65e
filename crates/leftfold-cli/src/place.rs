//! The location of a store: a file or a MongoDB database. **Displayed URLs never contain a user or
//! a password.**

use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;

use leftfold_sqlite::Sqlite;

use crate::exit::{Exit, Failure};

/// The store that `--store` names.
#[derive(Clone, Debug)]
pub(crate) enum Named {
    File(File),
    #[cfg(feature = "mongodb")]
    MongoDb(MongoDb),
    /// A store of an unknown kind. Its error is reported on use: an error of the argument parser
    /// would show everything that was typed.
    Unknown(String),
}

impl From<OsString> for Named {
    fn from(named: OsString) -> Self {
        let Some(text) = named.to_str() else { return Self::File(File(named.into())) };
        if let Some(path) = text.strip_prefix("sqlite:") {
            return Self::File(File(path.into()));
        }
        // Accept a URL with a missing slash, too. The driver reports the error.
        if ["mongodb:", "mongodb+srv:"].iter().any(|scheme| text.starts_with(scheme)) {
            #[cfg(feature = "mongodb")]
            return Self::MongoDb(MongoDb(text.to_owned()));
            #[cfg(not(feature = "mongodb"))]
            return Self::Unknown(format!(
                "opening {}: this program was built without MongoDB; build it with the feature `mongodb`",
                shown(text)
            ));
        }
        if text.contains("://") {
            return Self::Unknown(format!(
                "opening {}: no such store is known; name a file, as shop.db or sqlite:shop.db, or a database, as \
                 mongodb://localhost/shop",
                shown(text)
            ));
        }
        Self::File(File(named.into()))
    }
}

/// A location of stores of one kind.
pub(crate) trait Place: Clone + fmt::Display + Send + Sync + 'static {
    type Store: leftfold::Store
        + leftfold::Sequences
        + leftfold::react::ReactionStore
        + leftfold::inspect::doctor::Examine;

    /// `true` if all users of the store are on this machine.
    const IS_LOCAL: bool;

    /// Opens the store, and creates missing parts.
    async fn open(&self) -> Result<Self::Store, Failure>;

    /// Opens the store, which must exist.
    async fn open_existing(&self) -> Result<Self::Store, Failure>;

    /// Opens the store, which must exist, without creating missing parts.
    async fn open_untouched(&self) -> Result<Self::Store, Failure> {
        self.open_existing().await
    }

    /// Returns the argument that names the store to another process of this program.
    fn argument(&self) -> OsString;
}

/// A SQLite file.
#[derive(Clone, Debug)]
pub(crate) struct File(pub(crate) PathBuf);

impl Place for File {
    type Store = Sqlite;

    const IS_LOCAL: bool = true;

    async fn open(&self) -> Result<Sqlite, Failure> {
        Ok(Sqlite::open(&self.0).await?)
    }

    async fn open_existing(&self) -> Result<Sqlite, Failure> {
        // SQLite would turn an empty file into a new store.
        let fault = match self.0.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => Some("there is no such file"),
            Ok(found) if found.is_file() && found.len() == 0 => Some("the file is empty"),
            _ => None,
        };
        match fault {
            None => self.open().await,
            Some(fault) => {
                let message = format!(
                    "opening {self}: {fault}; name another with --store, or make one with `leftfold serve` or \
                     `leftfold demo --store {self}`"
                );
                Err(Failure::new(Exit::Store, message))
            }
        }
    }

    fn argument(&self) -> OsString {
        // A path may look like a URL. One that is not UTF-8 does not.
        self.0.to_str().map_or_else(|| self.0.clone().into(), |path| format!("sqlite:{path}").into())
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

/// A MongoDB database, by its URL.
#[cfg(feature = "mongodb")]
#[derive(Clone)]
pub(crate) struct MongoDb(String);

#[cfg(feature = "mongodb")]
impl Place for MongoDb {
    type Store = leftfold_mongodb::Mongo;

    const IS_LOCAL: bool = false;

    async fn open(&self) -> Result<Self::Store, Failure> {
        Ok(leftfold_mongodb::Mongo::connect(&self.0).await?)
    }

    async fn open_existing(&self) -> Result<Self::Store, Failure> {
        Ok(leftfold_mongodb::Mongo::options().existing().connect(&self.0).await?)
    }

    async fn open_untouched(&self) -> Result<Self::Store, Failure> {
        Ok(leftfold_mongodb::Mongo::options().untouched().connect(&self.0).await?)
    }

    fn argument(&self) -> OsString {
        OsString::from(&self.0)
    }
}

#[cfg(feature = "mongodb")]
impl fmt::Display for MongoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

#[cfg(feature = "mongodb")]
impl fmt::Debug for MongoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns a URL without secrets: user and password are before the last `@`, and the options may
/// contain more.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
    let rest = rest.trim_start_matches('/');
    let (user, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("…@", rest));
    let (rest, options) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?…"));
    format!("{scheme}://{user}{rest}{options}")
}

/// Removes the secrets of URLs from a text.
pub(crate) fn without_secrets(text: &str) -> String {
    // The example in error messages is not a secret.
    const EXAMPLE: &str = "user:password";
    let ends = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`');
    let mut safe = String::with_capacity(text.len());
    for word in text.split_inclusive(ends) {
        let parts = word.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?)));
        match parts {
            Some((scheme, (user, rest))) if user != EXAMPLE => safe.extend([scheme, "://…@", rest]),
            _ => safe.push_str(word),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_file_unless_it_is_a_url() {
        for (named, path) in
            [("shop.db", "shop.db"), ("sqlite:a b", "a b"), ("C:\\shop", "C:\\shop"), ("", "")]
        {
            match Named::from(OsString::from(named)) {
                Named::File(file) => assert_eq!(file.0, PathBuf::from(path)),
                other => panic!("{named} is {other:?}"),
            }
        }
        for named in ["postgres://ann:secret@host/shop", "MONGODB://ann:secret@host/shop"] {
            match Named::from(OsString::from(named)) {
                Named::Unknown(why) => assert!(why.contains("://…@host/shop: no such store"), "{why}"),
                other => panic!("{named} is {other:?}"),
            }
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        let cases = [
            ("mongodb://localhost/shop", "mongodb://localhost/shop"),
            ("mongodb://ann:secret@a:1,b:2/shop?replicaSet=rs0", "mongodb://…@a:1,b:2/shop?…"),
            ("mongodb+srv://ann@host/?tlsCertificateKeyFilePassword=secret", "mongodb+srv://…@host/?…"),
            ("mongodb://ann:se/cr@et?@host", "mongodb://…@host"),
            ("mongodb:/ann:secret@host", "mongodb://…@host"),
        ];
        for (url, expected) in cases {
            assert_eq!(shown(url), expected);
            #[cfg(feature = "mongodb")]
            assert!(!format!("{:?}", Named::from(OsString::from(url))).contains("secret"), "{url}");
        }
    }

    #[test]
    fn what_was_typed_is_repeated_without_secrets() {
        let said =
            without_secrets("unexpected argument 'mongodb://ann:secret@host/shop' found\n mail ann@host");
        assert_eq!(said, "unexpected argument 'mongodb://…@host/shop' found\n mail ann@host");
    }
}
