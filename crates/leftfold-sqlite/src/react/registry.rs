//! The registered reactions, each stored under a guard.

use leftfold::react::Registered;
use leftfold::{Error, Result};
use rusqlite::{Connection, params};

use crate::connection::{Ran, Tx, Work};
use crate::encoding::{json, text};
use crate::error::Failure;

/// Returns all reactions, by name.
pub(crate) fn all(file: &Connection) -> Result<Vec<Registered>, Failure> {
    let mut statement = file.prepare_cached("SELECT reaction FROM leftfold_reactions ORDER BY name")?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(json(row, 0)?);
    }
    Ok(all)
}

/// Returns one reaction.
pub(super) fn find(file: &Connection, name: &str) -> Result<Option<Registered>, Failure> {
    let mut statement = file.prepare_cached("SELECT reaction FROM leftfold_reactions WHERE name = ?1")?;
    let mut rows = statement.query([name])?;
    rows.next()?.map(|row| json(row, 0)).transpose()
}

pub(super) struct RegisterWork {
    pub(super) seen: Option<u64>,
    pub(super) reaction: Registered,
}

impl Work for RegisterWork {
    type Answer = Result<bool>;

    const DOING: &'static str = "register a reaction in";

    fn has_steps(&self) -> bool {
        false
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let Self { seen, reaction } = self;
        let (version, body) = (reaction.version.cast_signed(), text(reaction)?);
        let kept = match seen {
            None => {
                let sql = "INSERT INTO leftfold_reactions VALUES (?1, ?2, ?3) ON CONFLICT (name) DO NOTHING";
                tx.connection.prepare_cached(sql)?.execute(params![reaction.name, version, body])?
            }
            Some(seen) => {
                let sql = "UPDATE leftfold_reactions SET version = ?2, reaction = ?3 WHERE name = ?1 AND version = ?4";
                let values = params![reaction.name, version, body, seen.cast_signed()];
                tx.connection.prepare_cached(sql)?.execute(values)?
            }
        };
        Ok(Ran::Keep(Ok(kept == 1)))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}
