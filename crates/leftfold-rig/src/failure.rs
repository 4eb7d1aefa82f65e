//! The reasons that end a run early.

/// The reason that ended a run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Leftfold broke its guarantees.
    #[error("{}", .0.join("\n"))]
    Violated(Vec<String>),
    /// The rig itself failed, so the run proves nothing.
    #[error("{0}")]
    Rig(String),
    /// A signal interrupted the run.
    #[error("interrupted; all processes were ended")]
    Interrupted,
}

impl Failure {
    /// Creates a failure of the rig. `doing` names the operation: "starting worker-1".
    pub(crate) fn rig(doing: impl std::fmt::Display, why: impl std::fmt::Display) -> Self {
        Self::Rig(format!("{doing}: {why}"))
    }
}

impl From<leftfold::Error> for Failure {
    fn from(error: leftfold::Error) -> Self {
        match error.kind() {
            // The stored data must be wrong.
            leftfold::Kind::Format => Self::Violated(vec![error.to_string()]),
            _ => Self::Rig(error.to_string()),
        }
    }
}

impl From<leftfold::Invalid> for Failure {
    fn from(invalid: leftfold::Invalid) -> Self {
        Self::Rig(invalid.to_string())
    }
}

impl From<leftfold_testbed::Error> for Failure {
    fn from(error: leftfold_testbed::Error) -> Self {
        Self::Rig(error.to_string())
    }
}
