//! Idempotent writes: a request with an `Idempotency-Key` is processed once. The same request again
//! gets the first response, also after a crash.
//!
//! A hidden collection of the store records a request before it is processed, and its response
//! afterwards. Refused requests are removed again, so that clients can retry them. If a request
//! failed, or its process died, it is processed again if that is harmless. Otherwise the response
//! says that its outcome is unknown.

mod records;
mod route;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use self::records::AfterUnknown;
pub(crate) use self::route::{IdentifyingHeaders, Keyed, idempotency_key, keyed};
pub(crate) use self::store::KeyedRequests;
