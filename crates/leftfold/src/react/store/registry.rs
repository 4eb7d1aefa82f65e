//! The registrations of reactions, shared by all processes.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::documents::DocumentSource;
use crate::event::DocumentId;

/// The registration of a reaction, shared by all planners and runners.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registered {
    /// Its name.
    pub name: String,
    /// A number that differs after each change.
    pub version: u64,
    /// The place of its documents; `None` if it reacts to events or to time only.
    pub on: Option<DocumentSource>,
    /// The filter and the watched values as text, as far as they can be described.
    pub definition: String,
    /// The latest version of its code.
    pub code: u32,
    /// `true` if no worker may claim its tasks.
    pub paused: bool,
    /// The reason for the pause, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_because: Option<String>,
    /// The time until which no worker may claim its tasks.
    pub throttled: Option<Timestamp>,
    /// The progress of a comparison of all documents; `None` if none is under way.
    pub comparing: Option<Comparing>,
}

/// The progress of a comparison of all documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Comparing {
    /// The comparison has not begun.
    #[default]
    ToBegin,
    /// All documents up to this one are compared.
    Documents(DocumentId),
    /// All documents are compared, and the tasks up to this one: some may no longer have a
    /// document.
    Tasks(DocumentId),
}
