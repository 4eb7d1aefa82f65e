//! The operations of the API. Each module declares its operations, and the [table] lists them all.
//! The routes and the `OpenAPI` document are generated from the table.

mod audit;
mod changes;
mod conflicts;
mod counters;
mod doctor;
mod documents;
mod events;
mod explanations;
mod extract;
mod health;
mod held;
mod log;
mod metrics;
mod openapi;
mod operation;
mod page;
mod parked;
mod place;
mod rebuilds;
mod rejected;
mod respond;
mod sse;
mod status;
mod streams;
mod table;
mod tasks;
mod verification;

use axum::response::Response;

pub(crate) use self::health::Ready;
use self::operation::Operation;
use self::page::{MAX_ITEMS, PAGE_BYTES, Paged, fill, page_limit};
pub(crate) use self::rebuilds::{Rebuilds, take_up as take_up_rebuilds};
use self::respond::{json_of, with_status, with_type};
pub(crate) use self::table::router;
use crate::problem::Problem;

type Answer = Result<Response, Problem>;
