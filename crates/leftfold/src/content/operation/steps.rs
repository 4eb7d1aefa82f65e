//! An operation: steps on fields, each with its path.

use serde::Serialize;

use super::OperationId;
use crate::content::version;
use crate::error::Invalid;
use crate::json::Json;

/// The maximum number of steps of an operation.
const STEPS: usize = 100;

/// A number to add; a negative one subtracts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// A whole number.
    Whole(i64),
    /// A floating-point number.
    Double(f64),
}

impl From<i32> for Amount {
    fn from(amount: i32) -> Self {
        Self::Whole(amount.into())
    }
}

impl From<i64> for Amount {
    fn from(amount: i64) -> Self {
        Self::Whole(amount)
    }
}

impl From<f64> for Amount {
    fn from(amount: f64) -> Self {
        Self::Double(amount)
    }
}

/// A change of one field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldOperation {
    /// Adds to a number, which must exist.
    Increment(Amount),
    /// Appends a value to an array, which must exist.
    Push(Json),
    /// Removes all values equal to this one from an array, which must exist.
    Pull(Json),
    /// Sets a field to this value. Its parent must exist.
    Set(Json),
}

/// A change of some fields, applied as a whole, once.
///
/// ```
/// use leftfold::content::{Operation, OperationId};
/// use leftfold::revision::Clock;
///
/// let ids = Clock::new();
/// let sell = Operation::new(OperationId::try_from(ids.next())?)
///     .increment("stock", -1)?
///     .push("sold_to", &"ann")?;
/// # assert_eq!(sell.steps().count(), 2);
/// # Ok::<(), leftfold::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    id: OperationId,
    steps: Vec<(String, FieldOperation)>,
}

impl Operation {
    /// Creates an operation without steps.
    pub fn new(id: OperationId) -> Self {
        Self { id, steps: Vec::new() }
    }

    /// Adds to a number, which must exist.
    pub fn increment(self, path: &str, amount: impl Into<Amount>) -> Result<Self, Invalid> {
        let amount = amount.into();
        if let Amount::Double(number) = amount
            && !number.is_finite()
        {
            return Err(Invalid::new("amount", &number.to_string(), "a finite number"));
        }
        self.step(path, FieldOperation::Increment(amount))
    }

    /// Appends a value to an array, which must exist.
    pub fn push(self, path: &str, value: &impl Serialize) -> Result<Self, Invalid> {
        self.step(path, FieldOperation::Push(Json::of(value)?))
    }

    /// Removes all values equal to this one from an array, which must exist. Numbers are equal by
    /// numeric value; objects must have their fields in the same order.
    pub fn pull(self, path: &str, value: &impl Serialize) -> Result<Self, Invalid> {
        self.step(path, FieldOperation::Pull(Json::of(value)?))
    }

    /// Sets a field to this value. Its parent must exist.
    pub fn set(self, path: &str, value: &impl Serialize) -> Result<Self, Invalid> {
        self.step(path, FieldOperation::Set(Json::of(value)?))
    }

    /// Adds a step. Two steps must not change the same field, nor a field and a part of it. A value
    /// must be one that has a [`Version`](crate::content::Version).
    pub fn step(mut self, path: &str, step: FieldOperation) -> Result<Self, Invalid> {
        check_path(path)?;
        if let FieldOperation::Push(value) | FieldOperation::Pull(value) | FieldOperation::Set(value) = &step
        {
            // The path adds an object for each name, and maybe the array.
            let levels = path.split('.').count() + usize::from(!matches!(step, FieldOperation::Set(_)));
            version::text_within(&value.as_str().parse()?, levels)?;
        }
        let is_part = |one: &str, other: &str| {
            one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if let Some((other, _)) =
            self.steps.iter().find(|(other, _)| is_part(path, other) || is_part(other, path))
        {
            let expected = format!("a field outside of {other}, which another step changes");
            return Err(Invalid::new("path", path, expected));
        }
        if self.steps.len() == STEPS {
            return Err(Invalid::new("operation", &self.id.to_string(), format!("at most {STEPS} steps")));
        }
        self.steps.push((path.to_owned(), step));
        Ok(self)
    }

    /// Returns the id.
    pub fn id(&self) -> OperationId {
        self.id
    }

    /// Returns the steps, each with its path.
    pub fn steps(&self) -> impl Iterator<Item = (&str, &FieldOperation)> {
        self.steps.iter().map(|(path, step)| (path.as_str(), step))
    }
}

/// Checks a path. It names a field of the document or of an object in it. Array positions are
/// rejected, because an operation does not know the array's state.
fn check_path(path: &str) -> Result<(), Invalid> {
    let is_position = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let fits =
        |name: &str| !name.is_empty() && !name.starts_with('$') && !is_position(name) && !name.contains('\0');
    let first = path.split('.').next().unwrap_or_default();
    if path.len() > 1_000 || !path.split('.').all(fits) || first.starts_with('_') {
        let expected = "names of fields, separated by dots; no array position, no name that begins with $, no _ at the start";
        return Err(Invalid::new("path", path, expected));
    }
    Ok(())
}
