//! Idempotent writes: a request with an `Idempotency-Key` is processed once. The same request again
//! gets the first response, also after a crash.

mod records;
mod route;
#[cfg(test)]
mod tests;

pub(crate) use self::route::{Once, idempotency_key, once};
