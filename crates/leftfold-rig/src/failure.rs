//! Why a run ended early.

/// What ended it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Promises are broken.
    #[error("{}", .0.join("\n"))]
    Violated(Vec<String>),
    /// The rig could not do its own work, so that nothing is proved.
    #[error("{0}")]
    Rig(String),
    /// Somebody wants it to end.
    #[error("interrupted; all processes are ended")]
    Interrupted,
}

impl Failure {
    /// `doing` says what was being done: "starting worker-1".
    pub(crate) fn rig(doing: impl std::fmt::Display, why: impl std::fmt::Display) -> Self {
        Self::Rig(format!("{doing}: {why}"))
    }
}

impl From<leftfold::Error> for Failure {
    fn from(error: leftfold::Error) -> Self {
        match error.kind() {
            // What is stored can't be right.
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
