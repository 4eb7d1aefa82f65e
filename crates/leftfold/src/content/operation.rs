//! Operations: changes that do not depend on the document's state. Each has an id, so that a
//! repeated operation is applied once.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{canonical, splice};
use crate::documents::MAX_BODY_BYTES;
use crate::error::Invalid;
use crate::event::Revision;
use crate::json::Json;
use crate::mutant;
use crate::react::{Fields, Value};

/// The number of operations that a document remembers: those with the highest ids.
pub const REMEMBERED: usize = 32;

/// The maximum number of steps of an operation.
const STEPS: usize = 100;

/// The identity of an operation.
///
/// Ids grow, as those of a [`Clock`](crate::revision::Clock) do. A document remembers the highest
/// [32](REMEMBERED); whether a lower one was applied is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(u64);

impl OperationId {
    /// Checks the number: from 1 to 2⁶³ - 1.
    pub fn new(number: u64) -> Result<Self, Invalid> {
        if number == 0 || i64::try_from(number).is_err() {
            return Err(Invalid::new("operation id", &number.to_string(), "a number from 1 to 2⁶³ - 1"));
        }
        Ok(Self(number))
    }

    /// Returns the number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl TryFrom<Revision> for OperationId {
    type Error = Invalid;

    fn try_from(revision: Revision) -> Result<Self, Invalid> {
        Self::new(revision.0)
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The operations that a document remembers, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationIds(Vec<OperationId>);

/// The result of looking up an operation among the remembered ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recalled {
    /// The operation was not applied.
    New,
    /// The operation was applied.
    Applied,
    /// The operation is so old that the document no longer remembers whether it was applied.
    TooOld,
}

impl OperationIds {
    /// Restores the ids that a store kept, in any order.
    pub fn stored(ids: impl IntoIterator<Item = u64>) -> Self {
        let mut ids: Vec<_> = ids.into_iter().map(OperationId).collect();
        ids.sort_unstable();
        Self(ids)
    }

    /// Returns the ids, the lowest first.
    pub fn iter(&self) -> impl Iterator<Item = OperationId> {
        self.0.iter().copied()
    }

    /// Looks up an operation.
    pub fn recall(&self, id: OperationId) -> Recalled {
        if self.0.binary_search(&id).is_ok() {
            return Recalled::Applied;
        }
        // All forgotten ids are lower than the remembered ones.
        let is_too_old = self.0.len() >= REMEMBERED && self.0.first().is_some_and(|lowest| id < *lowest);
        mutant!(OldIsNew => return Recalled::New);
        if is_too_old { Recalled::TooOld } else { Recalled::New }
    }

    /// Remembers an operation, and forgets the lowest ones beyond the limit.
    pub fn remember(&mut self, id: OperationId) {
        if let Err(at) = self.0.binary_search(&id) {
            self.0.insert(at, id);
        }
        mutant!(HighestForgotten => self.0.truncate(REMEMBERED));
        let surplus = self.0.len().saturating_sub(REMEMBERED);
        self.0.drain(..surplus);
    }
}

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
    /// must be one that has a [`Version`](super::Version).
    pub fn step(mut self, path: &str, step: FieldOperation) -> Result<Self, Invalid> {
        check_path(path)?;
        if let FieldOperation::Push(value) | FieldOperation::Pull(value) | FieldOperation::Set(value) = &step
        {
            // The path adds an object for each name, and maybe the array.
            let levels = path.split('.').count() + usize::from(!matches!(step, FieldOperation::Set(_)));
            canonical::text_within(&value.as_str().parse()?, levels)?;
        }
        let is_part = |one: &str, other: &str| {
            one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if let Some((other, _)) =
            self.steps.iter().find(|(other, _)| is_part(path, other) || is_part(other, path))
        {
            let expected = format!("a field that is apart from {other}, which the operation changes, too");
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

    /// Returns the document with the operation applied. Fails if it can't be applied.
    pub fn apply(&self, document: &Json) -> Result<Json, Invalid> {
        let body = match splice::increased(document.as_str(), self.steps()) {
            Some(text) => Json::stored(text),
            None => self.apply_thoroughly(document)?,
        };
        let bytes = body.as_str().len();
        if bytes > MAX_BODY_BYTES {
            let expected = format!("a document of at most {MAX_BODY_BYTES} bytes, not {bytes}");
            return Err(Invalid::new("operation", &self.id.to_string(), expected));
        }
        Ok(body)
    }

    /// Applies the operation by parsing the whole document.
    pub(super) fn apply_thoroughly(&self, document: &Json) -> Result<Json, Invalid> {
        let mut value: Value = document.as_str().parse()?;
        for (path, step) in self.steps() {
            let (parents, name) = path.rsplit_once('.').map_or(("", path), |(parents, name)| (parents, name));
            let mut fields = fields_of(&mut value, path)?;
            for parent in parents.split('.').filter(|parent| !parent.is_empty()) {
                let inner = fields.iter_mut().find(|(field, _)| field == parent).map(|(_, value)| value);
                let missing =
                    || Invalid::new("path", path, format!("a field of an object: there is no {parent}"));
                fields = fields_of(inner.ok_or_else(missing)?, path)?;
            }
            let at = fields.iter().position(|(field, _)| field == name);
            step.apply(path, name, fields, at)?;
        }
        Ok(Json::stored(value.to_string()))
    }
}

fn fields_of<'v>(value: &'v mut Value, path: &str) -> Result<&'v mut Fields, Invalid> {
    match value {
        Value::Object(fields) => Ok(fields),
        other => {
            let found = shown(other);
            Err(Invalid::new("path", path, format!("a field of an object: what should have it is {found}")))
        }
    }
}

/// Returns a value as text for errors: the same in all stores, and shortened.
fn shown(value: &Value) -> String {
    const SHOWN: usize = 60;
    let text = canonical::text(value).unwrap_or_else(|_| value.to_string());
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

impl FieldOperation {
    fn apply(&self, path: &str, name: &str, fields: &mut Fields, at: Option<usize>) -> Result<(), Invalid> {
        let found = at.and_then(|at| fields.get_mut(at)).map(|(_, value)| value);
        let expected = |what: &str, found: Option<&Value>| {
            let found = found.map_or_else(|| "missing".to_owned(), shown);
            Err(Invalid::new("path", path, format!("{what}, which is {found}")))
        };
        match (self, found) {
            (Self::Set(value), Some(found)) => *found = value.as_str().parse()?,
            (Self::Set(value), None) => fields.push((name.to_owned(), value.as_str().parse()?)),
            (Self::Push(value), Some(Value::Array(values))) => values.push(value.as_str().parse()?),
            (Self::Pull(value), Some(Value::Array(values))) => {
                let value: Value = value.as_str().parse()?;
                values.retain(|one| *one != value);
            }
            (Self::Push(_) | Self::Pull(_), found) => return expected("an array", found.as_deref()),
            (Self::Increment(amount), Some(found)) => match added(found, *amount) {
                Some(sum) => *found = sum,
                None => return expected("a number that stays within its range", Some(found)),
            },
            (Self::Increment(_), None) => return expected("a number", None),
        }
        Ok(())
    }
}

/// Adds an amount to a number. Returns `None` if the value is not a number, or the sum is out of
/// range.
fn added(number: &Value, amount: Amount) -> Option<Value> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "that is what becomes of integers among floating-point numbers"
    )]
    let double = |number: i64| number as f64;
    let sum = match (number, amount) {
        (Value::Int32(number), Amount::Whole(amount)) => {
            Value::of_int(i64::from(*number).checked_add(amount)?)
        }
        // The sum has the narrowest type, so that programs without number widths can read it.
        (Value::Int64(number), Amount::Whole(amount)) => Value::of_int(number.checked_add(amount)?),
        (Value::Int32(number), Amount::Double(amount)) => Value::Double(f64::from(*number) + amount),
        (Value::Int64(number), Amount::Double(amount)) => Value::Double(double(*number) + amount),
        (Value::Double(number), Amount::Whole(amount)) => Value::Double(number + double(amount)),
        (Value::Double(number), Amount::Double(amount)) => Value::Double(number + amount),
        _ => return None,
    };
    match sum {
        Value::Double(sum) if !sum.is_finite() => None,
        sum => Some(sum),
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
        let expected = "the names of fields with dots between them, none a position in an array, none beginning with $, the first not with _";
        return Err(Invalid::new("path", path, expected));
    }
    Ok(())
}
