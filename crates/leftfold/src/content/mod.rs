//! Versions of documents by their content: the same content has the same version,
//! in every store and for every writer.
//!
//! A [`Version`] is the SHA-256 of a document's canonical text. That is JSON by [RFC 8785], so that
//! any language can compute it: no spaces, fields sorted by name, numbers as short as possible. For
//! content that goes beyond JSON:
//!
//! | content | canonical text |
//! | --- | --- |
//! | a whole number of any width, also `5.0` | its digits, all of them up to 64 bits |
//! | a date, an object id and other types of BSON | canonical extended JSON, such as `{"$date":{"$numberLong":"1000"}}` |
//! | a decimal number that is not whole | `{"$numberDecimal":"15E-1"}`, without trailing zeros |
//! | `NaN`, infinity, a duplicate field, more than 100 levels | none: it has no version |
//!
//! The format is stable: the tests have vectors that check it.
//!
//! | module | purpose |
//! | --- | --- |
//! | `version` | the version of a document |
//! | `operation` | changes that do not depend on the document's state |
//! | `store` | the interface of stores |
//! | `versioned` | documents of one type: reads, guarded writes, operations |
//!
//! [RFC 8785]: https://www.rfc-editor.org/rfc/rfc8785

mod operation;
mod store;
mod version;
mod versioned;

pub use operation::{Amount, FieldOperation, Operation, OperationId, OperationIds, REMEMBERED, Recalled};
pub use store::{ContentGuard, ContentWrite, Contents, Operated, Stored, Wrote};
pub use version::{Counted, Version, canonical};
pub use versioned::{Current, Versioned, WriteAnswer};
