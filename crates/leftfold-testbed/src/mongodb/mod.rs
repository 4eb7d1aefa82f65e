//! Private MongoDB servers.

mod binary;
mod kind;
mod member;
mod server;

pub use self::binary::fetch;
pub use self::server::Server;
