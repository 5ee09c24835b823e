//! When a schedule in cron's syntax begins, in UTC.
//!
//! What is read, and what it means, is what Karpenter's library makes of it (`ParseStandard` of robfig/cron v3):
//! five fields, minute, hour, day of month, month, day of week; each a list of `*` or `?`, numbers and ranges, with
//! steps (`5/10` is `5-59/10`); names of months and of days of the week, in any case; Sunday is 0 and never 7. If both
//! kinds of day are given either will do, else both have to; a step of two or more counts as given. The macros are
//! `@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, `@midnight` and `@hourly`.
//!
//! Left out: `@every` and time zones, which the CRD does not admit.

use jiff::civil::Date;
use jiff::tz::Offset;
use model::Timestamp;

/// Every schedule that ever begins does so once in eight years: on a 29 February beside a year without one.
const MOST_DAYS: usize = 9 * 366;

/// When something begins, by the minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    minutes: Field,
    hours: Field,
    days: Field,
    months: Field,
    weekdays: Field,
}

/// Why a text is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// Not five fields.
    #[error("has {0} fields, not 5")]
    FieldCount(usize),
    /// Begins with `@` and is none of the macros.
    #[error("macro {0:?} is not known")]
    Macro(String),
    /// Not a number, a name, or a range of them.
    #[error("{field}: {text:?} is not a number, a name or a range")]
    Malformed {
        /// Which field.
        field: &'static str,
        /// The part of its list.
        text: String,
    },
    /// Beyond what the field can be, or a range that ends before it begins.
    #[error("{field}: {text:?} is not within {min} to {max}")]
    OutOfRange {
        /// Which field.
        field: &'static str,
        /// The part of its list.
        text: String,
        /// The least that it can be.
        min: u32,
        /// The most.
        max: u32,
    },
    /// A step of zero.
    #[error("{field}: {text:?} has a step of zero")]
    Step {
        /// Which field.
        field: &'static str,
        /// The part of its list.
        text: String,
    },
}

/// Values of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Field {
    /// Bit `n` stands for value `n`.
    bits: u64,
    /// Whether it says `*` or `?`, without a step or by one.
    is_any: bool,
}

impl Field {
    fn contains(self, value: u32) -> bool {
        1u64.checked_shl(value).is_some_and(|bit| self.bits & bit != 0)
    }

    /// The greatest value up to that one.
    fn last_up_to(self, value: u32) -> Option<u32> {
        (0..=value).rev().find(|&value| self.contains(value))
    }
}

/// What a field can be.
struct Bounds {
    name: &'static str,
    min: u32,
    max: u32,
    /// Names of the values from `min` on.
    names: &'static [&'static str],
}

const MINUTE: Bounds = Bounds { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: Bounds = Bounds { name: "hour", min: 0, max: 23, names: &[] };
const DAY: Bounds = Bounds { name: "day of month", min: 1, max: 31, names: &[] };
const MONTH: Bounds = Bounds {
    name: "month",
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAY: Bounds =
    Bounds { name: "day of week", min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

impl Bounds {
    fn read(&self, text: &str) -> Result<Field, Error> {
        let mut field = Field::default();
        // Empty parts of a list mean nothing, as in the library.
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let more = self.part(part)?;
            field.bits |= more.bits;
            field.is_any |= more.is_any;
        }
        Ok(field)
    }

    /// `*`, `n`, `n-m`, and each with `/step`.
    fn part(&self, part: &str) -> Result<Field, Error> {
        let malformed = || Error::Malformed { field: self.name, text: part.to_owned() };
        let mut halves = part.split('/');
        let (range, step) = (halves.next().unwrap_or_default(), halves.next());
        if halves.next().is_some() {
            return Err(malformed());
        }
        let mut ends = range.split('-');
        let (low, high) = (ends.next().unwrap_or_default(), ends.next());
        let is_any = matches!(low, "*" | "?");
        let (first, last) = if is_any {
            (self.min, self.max)
        } else if ends.next().is_some() {
            return Err(malformed());
        } else {
            let first = self.value(low).ok_or_else(malformed)?;
            (first, high.map_or(Some(first), |high| self.value(high)).ok_or_else(malformed)?)
        };
        let step_by: u32 = step.map_or(Ok(1), str::parse).map_err(|_| malformed())?;
        let last = if step.is_some() && high.is_none() { self.max } else { last };
        if first < self.min || last > self.max || first > last {
            let (min, max) = (self.min, self.max);
            return Err(Error::OutOfRange { field: self.name, text: part.to_owned(), min, max });
        }
        let Some(step) = usize::try_from(step_by).ok().filter(|step| *step > 0) else {
            return Err(Error::Step { field: self.name, text: part.to_owned() });
        };
        let bits = (first..=last).step_by(step).fold(0, |bits, value| bits | 1 << value);
        Ok(Field { bits, is_any: is_any && step_by == 1 })
    }

    fn value(&self, text: &str) -> Option<u32> {
        let named = self.names.iter().zip(self.min..).find(|(name, _)| name.eq_ignore_ascii_case(text));
        named.map(|(_, value)| value).or_else(|| text.parse().ok())
    }
}

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// Names the field and the part of it that cannot be read.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let text = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ if text.starts_with('@') => return Err(Error::Macro(text.to_owned())),
            _ => text,
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(Error::FieldCount(fields.len()));
        };
        Ok(Self {
            minutes: MINUTE.read(minutes)?,
            hours: HOUR.read(hours)?,
            days: DAY.read(days)?,
            months: MONTH.read(months)?,
            weekdays: WEEKDAY.read(weekdays)?,
        })
    }

    /// The last time that it began up to `now`, both by the minute; `None` if it never begins, such as on 30 February.
    pub(crate) fn last_begin(&self, now: Timestamp) -> Option<Timestamp> {
        let now = jiff::Timestamp::from_millisecond(now.0).ok().map(|now| Offset::UTC.to_datetime(now))?;
        let mut date = now.date();
        // Later than the last minute of a day there is none.
        let (mut hour, mut minute) = (number(now.hour()), number(now.minute()));
        for _ in 0..MOST_DAYS {
            if self.is_on(date)
                && let Some(time) = self.last_time_up_to(hour, minute)
            {
                let (hour, minute) = (i8::try_from(time.0).ok()?, i8::try_from(time.1).ok()?);
                let begin = Offset::UTC.to_timestamp(date.at(hour, minute, 0, 0)).ok()?;
                return Some(Timestamp(begin.as_millisecond()));
            }
            date = date.yesterday().ok()?;
            (hour, minute) = (HOUR.max, MINUTE.max);
        }
        None
    }

    fn is_on(&self, date: Date) -> bool {
        let by_day = self.days.contains(number(date.day()));
        let by_weekday = self.weekdays.contains(number(date.weekday().to_sunday_zero_offset()));
        let is_day = if self.days.is_any || self.weekdays.is_any { by_day && by_weekday } else { by_day || by_weekday };
        is_day && self.months.contains(number(date.month()))
    }

    /// The last hour and minute of a day up to these.
    fn last_time_up_to(&self, hour: u32, minute: u32) -> Option<(u32, u32)> {
        let in_hour = self.hours.contains(hour).then(|| self.minutes.last_up_to(minute)).flatten();
        in_hour.map(|minute| (hour, minute)).or_else(|| {
            let hour = self.hours.last_up_to(hour.checked_sub(1)?)?;
            Some((hour, self.minutes.last_up_to(MINUTE.max)?))
        })
    }
}

/// Parts of dates and times are never below zero.
fn number(part: i8) -> u32 {
    u32::try_from(part).unwrap_or_default()
}

#[cfg(test)]
mod tests;
