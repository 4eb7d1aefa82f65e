//! Numbers of different types, compared by their numeric value.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// A decimal number of up to 34 digits (`Decimal128`).
#[derive(Clone, Copy, Debug)]
pub struct Decimal(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    NaN,
    Infinity { negative: bool },
    Finite { negative: bool, digits: u128, exponent: i32 },
}

const MAX_DIGITS: u32 = 34;
/// The exponents of all numbers that can be stored, however they are written.
const EXPONENTS: std::ops::RangeInclusive<i32> = -6_176..=6_111;

impl Decimal {
    /// Returns whether it is not a number.
    pub fn is_nan(self) -> bool {
        matches!(self.0, Kind::NaN)
    }

    /// Returns whether it is a number and not infinite.
    pub fn is_finite(self) -> bool {
        matches!(self.0, Kind::Finite { .. })
    }

    /// Returns the same number without trailing zeros.
    #[must_use]
    pub fn reduced(self) -> Self {
        let Kind::Finite { negative, mut digits, mut exponent } = self.0 else { return self };
        while digits != 0 && digits.is_multiple_of(10) {
            digits /= 10;
            exponent += 1;
        }
        if digits == 0 {
            exponent = 0;
        }
        Self(Kind::Finite { negative: negative && digits != 0, digits, exponent })
    }

    /// Returns it as an integer, if it is one.
    fn whole(self) -> Option<i64> {
        let Kind::Finite { exponent, .. } = self.reduced().0 else { return None };
        if exponent >= 0 { self.truncated() } else { None }
    }

    fn truncated(self) -> Option<i64> {
        let Kind::Finite { negative, digits, exponent } = self.0 else { return None };
        let power = 10_u128.checked_pow(exponent.unsigned_abs());
        let whole = match (exponent >= 0, power) {
            _ if digits == 0 => 0,
            (true, power) => digits.checked_mul(power?)?,
            (false, power) => power.map_or(0, |power| digits / power),
        };
        let whole = i128::try_from(whole).ok()?;
        i64::try_from(if negative { -whole } else { whole }).ok()
    }
}

impl FromStr for Decimal {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text)
            .map(Self)
            .ok_or_else(|| Error::new("decimal number", text, "up to 34 digits, such as -1.50 or 2E+3"))
    }
}

fn parse(text: &str) -> Option<Kind> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let negative = text.starts_with('-');
    match unsigned.to_ascii_lowercase().as_str() {
        "nan" => return Some(Kind::NaN),
        "inf" | "infinity" => return Some(Kind::Infinity { negative }),
        _ => {}
    }
    let (number, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse().ok()?),
        None => (unsigned, 0_i32),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut digits = 0_u128;
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    for digit in whole.chars().chain(fraction.chars()) {
        digits = digits.checked_mul(10)?.checked_add(digit.to_digit(10)?.into())?;
    }
    let mut exponent = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    while digits != 0
        && digits.is_multiple_of(10)
        && (digits >= 10_u128.pow(MAX_DIGITS) || exponent < *EXPONENTS.start())
    {
        digits /= 10;
        exponent += 1;
    }
    if digits == 0 {
        exponent = exponent.clamp(*EXPONENTS.start(), *EXPONENTS.end());
    }
    let fits = digits < 10_u128.pow(MAX_DIGITS) && EXPONENTS.contains(&exponent);
    fits.then_some(Kind::Finite { negative, digits, exponent })
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = |negative| if negative { "-" } else { "" };
        match self.0 {
            Kind::NaN => f.write_str("NaN"),
            Kind::Infinity { negative } => write!(f, "{}Infinity", sign(negative)),
            Kind::Finite { negative, digits, exponent: 0 } => write!(f, "{}{digits}", sign(negative)),
            Kind::Finite { negative, digits, exponent } => {
                write!(f, "{}{digits}E{exponent:+}", sign(negative))
            }
        }
    }
}

/// A number of any type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Int(i64),
    Double(f64),
    Decimal(Decimal),
}

/// One more than the greatest 64-bit integer, which a floating-point number can hold exactly.
const BEYOND: f64 = 9_223_372_036_854_775_808.0;

impl Number {
    pub(crate) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Int(one), Self::Int(other)) => one.cmp(&other),
            (Self::Int(one), Self::Double(other)) => compare_to_double(one, other),
            (Self::Double(one), Self::Int(other)) => compare_to_double(other, one).reverse(),
            (Self::Double(one), Self::Double(other)) => {
                one.partial_cmp(&other).unwrap_or_else(|| other.is_nan().cmp(&one.is_nan()))
            }
            (one, other) => one.magnitude().compare(&other.magnitude()),
        }
    }

    /// Returns it as an integer if it is a whole number of any type.
    pub(crate) fn whole(self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(number),
            Self::Double(number) if number.fract() == 0.0 => self.truncated(),
            Self::Double(_) => None,
            Self::Decimal(number) => number.whole(),
        }
    }

    pub(crate) fn truncated(self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(number),
            Self::Double(number) => whole(number),
            Self::Decimal(number) => number.truncated(),
        }
    }

    fn magnitude(self) -> Magnitude {
        match self {
            Self::Int(number) => Magnitude::of(number < 0, &number.unsigned_abs().to_string(), 0),
            Self::Decimal(Decimal(Kind::Finite { negative, digits, exponent })) => {
                Magnitude::of(negative, &digits.to_string(), exponent)
            }
            Self::Double(number) if number.is_finite() => {
                let text = format!("{:.*e}", usize::from(MORE_DIGITS), number.abs());
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let exponent = exponent.parse().unwrap_or(0) - i32::from(MORE_DIGITS);
                Magnitude::of(number < 0.0, &digits.replace('.', ""), exponent)
            }
            Self::Double(number) if !number.is_nan() => Magnitude::infinite(number < 0.0),
            Self::Decimal(Decimal(Kind::Infinity { negative })) => Magnitude::infinite(negative),
            Self::Double(_) | Self::Decimal(_) => Magnitude { side: -2, exponent: 0, digits: String::new() },
        }
    }
}

/// The number of digits after the first that write every floating-point number exactly.
const MORE_DIGITS: u16 = 766;

/// A number in a form that compares with numbers of other types.
struct Magnitude {
    /// The sign. `NaN` is below all others.
    side: i8,
    /// The exponent of the first digit.
    exponent: i32,
    /// The digits without leading and trailing zeros.
    digits: String,
}

impl Magnitude {
    /// Creates a number of these digits, the last of which has this exponent.
    fn of(negative: bool, digits: &str, exponent: i32) -> Self {
        let digits = digits.trim_start_matches('0');
        let side = if digits.is_empty() { 0 } else { Self::infinite(negative).side };
        let more = i32::try_from(digits.len()).unwrap_or(i32::MAX);
        let exponent = if side == 0 { 0 } else { exponent.saturating_add(more) };
        Self { side, exponent, digits: digits.trim_end_matches('0').to_owned() }
    }

    fn infinite(negative: bool) -> Self {
        Self { side: if negative { -1 } else { 1 }, exponent: i32::MAX, digits: String::new() }
    }

    fn compare(&self, other: &Self) -> Ordering {
        let size = (self.exponent, &self.digits).cmp(&(other.exponent, &other.digits));
        self.side.cmp(&other.side).then(if self.side < 0 { size.reverse() } else { size })
    }
}

/// Returns the integer part, if an integer can hold it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the number is within the range, and only its fraction is lost"
)]
fn whole(number: f64) -> Option<i64> {
    (-BEYOND..BEYOND).contains(&number).then_some(number as i64)
}

/// Compares exactly, without converting the integer to a floating-point number, which may change
/// it.
fn compare_to_double(int: i64, double: f64) -> Ordering {
    match whole(double) {
        Some(whole) => {
            int.cmp(&whole).then_with(|| 0.0.partial_cmp(&double.fract()).unwrap_or(Ordering::Equal))
        }
        None if double >= BEYOND => Ordering::Less,
        None => Ordering::Greater,
    }
}
