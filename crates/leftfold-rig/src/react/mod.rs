//! Reactions in processes that are killed: some only plan, some only run, some do both.

mod check;
mod effect_file;
mod failed;
mod handlers;
mod item_writer;
mod reactor;

pub(crate) use self::check::{Done, Reports, check};
pub(crate) use self::effect_file::Effect;
pub(crate) use self::failed::{is_unreadable, may_fail, outline};
pub(crate) use self::handlers::{GARBLED, HOLD, ITEM, ITEMS, LARGE, MAX_RETRY_DELAY, POISON, summary};
pub(crate) use self::item_writer::{Item, ItemKind, ItemWriter};
pub(crate) use self::reactor::{onlooker, react};
