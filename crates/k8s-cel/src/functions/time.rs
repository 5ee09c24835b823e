//! Durations and timestamps.
//!
//! Differs: `cel-types`. Time zones are UTC or a fixed offset (`+02:00`); a name of the time zone database is a
//! run-time error.

use super::Context;
use crate::error::EvalError;
use crate::value::Value;

type Outcome = Result<Value, EvalError>;

const NANO_PER_S: i128 = 1_000_000_000;
const S_PER_DAY: i128 = 86_400;

/// Go's `time.ParseDuration`, in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() || rest.len() > 200 {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = (rest.get(..end)?, rest.get(end..)?);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let unit: i128 = match tail.get(..unit_end)? {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => NANO_PER_S,
            "m" => 60 * NANO_PER_S,
            "h" => 3600 * NANO_PER_S,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok().filter(|value| *value < 1 << 64)? };
        total += whole * unit;
        // Digits beyond 18 are less than a nanosecond of any unit.
        let digits = fraction.get(..fraction.len().min(18))?;
        if !digits.is_empty() {
            let scale = 10i128.pow(u32::try_from(digits.len()).ok()?);
            total += digits.parse::<i128>().ok()? * unit / scale;
        }
        rest = tail.get(unit_end..)?;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

pub(crate) fn duration_to_string(nanos: i64) -> String {
    let magnitude = nanos.unsigned_abs();
    let (seconds, fraction) = (magnitude / 1_000_000_000, magnitude % 1_000_000_000);
    let sign = if nanos < 0 { "-" } else { "" };
    if fraction == 0 {
        return format!("{sign}{seconds}s");
    }
    format!("{sign}{seconds}.{}s", format!("{fraction:09}").trim_end_matches('0'))
}

/// Days since 1970 of a day of the proleptic Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of days since 1970.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * month_index + 2) / 5 + 1)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// RFC 3339, in nanoseconds since 1970.
pub(crate) fn parse_timestamp(text: &str) -> Option<i128> {
    let number = |from: usize, length: usize| {
        let part = text.get(from..from + length)?;
        if part.bytes().all(|byte| byte.is_ascii_digit()) { part.parse::<i64>().ok() } else { None }
    };
    let is = |at: usize, c: u8| text.as_bytes().get(at) == Some(&c);
    if !(is(4, b'-') && is(7, b'-') && is(10, b'T') && is(13, b':') && is(16, b':')) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let days_in_month = match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=12).contains(&month) || !(1..=days_in_month).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut nanos: i128 = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let length = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
        let digits = fraction.get(..length.min(9))?;
        if digits.is_empty() {
            return None;
        }
        nanos = format!("{digits:0<9}").parse().ok()?;
        rest = fraction.get(length..)?;
    }
    let offset = if rest == "Z" { 0 } else { parse_offset(rest)? };
    let seconds = i128::from(days_from_civil(year, month, day)) * S_PER_DAY
        + i128::from(hour * 3600 + minute * 60 + second)
        - i128::from(offset);
    Some(seconds * NANO_PER_S + nanos)
}

/// `+02:00`, in seconds.
fn parse_offset(text: &str) -> Option<i64> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    if hours.len() != 2 || minutes.len() != 2 {
        return None;
    }
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    if hours > 23 || minutes > 59 { None } else { Some(sign * (hours * 3600 + minutes * 60)) }
}

pub(crate) fn timestamp_to_string(nanos: i128) -> String {
    let parts = Parts::of(nanos, 0);
    let fraction = nanos.rem_euclid(NANO_PER_S);
    let fraction =
        if fraction == 0 { String::new() } else { format!(".{}", format!("{fraction:09}").trim_end_matches('0')) };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}Z",
        parts.year, parts.month, parts.day, parts.hour, parts.minute, parts.second
    )
}

struct Parts {
    year: i64,
    month: i64,
    day: i64,
    day_of_year: i64,
    day_of_week: i64,
    hour: i64,
    minute: i64,
    second: i64,
    millisecond: i64,
}

impl Parts {
    fn of(nanos: i128, offset: i64) -> Self {
        let seconds = nanos.div_euclid(NANO_PER_S) + i128::from(offset);
        let number = |value: i128| i64::try_from(value).unwrap_or_default();
        let (days, rest) = (number(seconds.div_euclid(S_PER_DAY)), number(seconds.rem_euclid(S_PER_DAY)));
        let (year, month, day) = civil_from_days(days);
        Self {
            year,
            month,
            day,
            day_of_year: days - days_from_civil(year, 1, 1),
            day_of_week: (days + 4).rem_euclid(7),
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            millisecond: number(nanos.rem_euclid(NANO_PER_S) / 1_000_000),
        }
    }
}

fn part(args: &[Value], function: &str, of_timestamp: fn(&Parts) -> i64) -> Outcome {
    let (nanos, offset) = match args {
        [Value::Timestamp(nanos)] => (nanos, 0),
        [Value::Timestamp(nanos), Value::String(zone)] => {
            let offset = match &**zone {
                "UTC" | "" => Some(0),
                zone if zone.starts_with(['+', '-']) => parse_offset(zone),
                zone => parse_offset(&format!("+{zone}")),
            };
            let unknown = || EvalError::invalid(format_args!("unknown time zone {zone}"));
            (nanos, offset.ok_or_else(unknown)?)
        }
        _ => return Err(EvalError::no_overload(function)),
    };
    Ok(Value::Int(of_timestamp(&Parts::of(*nanos, offset))))
}

/// A part that durations have too, in whole units.
fn either(args: &[Value], function: &str, of_timestamp: fn(&Parts) -> i64, of_duration: fn(i64) -> i64) -> Outcome {
    match args {
        [Value::Duration(nanos)] => Ok(Value::Int(of_duration(*nanos))),
        _ => part(args, function, of_timestamp),
    }
}

pub(crate) fn full_year(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, "getFullYear", |parts| parts.year)
}

pub(crate) fn month(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, "getMonth", |parts| parts.month - 1)
}

pub(crate) fn day_of_year(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, "getDayOfYear", |parts| parts.day_of_year)
}

pub(crate) fn day_of_month(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, "getDayOfMonth", |parts| parts.day - 1)
}

pub(crate) fn date(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, "getDate", |parts| parts.day)
}

pub(crate) fn day_of_week(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, "getDayOfWeek", |parts| parts.day_of_week)
}

pub(crate) fn hours(_: Context<'_>, args: &[Value]) -> Outcome {
    either(args, "getHours", |parts| parts.hour, |nanos| nanos / 3_600_000_000_000)
}

pub(crate) fn minutes(_: Context<'_>, args: &[Value]) -> Outcome {
    either(args, "getMinutes", |parts| parts.minute, |nanos| nanos / 60_000_000_000)
}

pub(crate) fn seconds(_: Context<'_>, args: &[Value]) -> Outcome {
    either(args, "getSeconds", |parts| parts.second, |nanos| nanos / 1_000_000_000)
}

pub(crate) fn milliseconds(_: Context<'_>, args: &[Value]) -> Outcome {
    either(args, "getMilliseconds", |parts| parts.millisecond, |nanos| nanos / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_go() {
        for (text, nanos) in [
            ("1h", Some(3_600_000_000_000)),
            ("-1.5s", Some(-1_500_000_000)),
            ("1m30s", Some(90_000_000_000)),
            ("0", Some(0)),
            ("1", None),
            ("", None),
            ("1.s", Some(1_000_000_000)),
            (".s", None),
            ("999999999h", None),
        ] {
            assert_eq!(parse_duration(text), nanos, "{text}");
        }
    }

    #[test]
    fn timestamps_round_trip() {
        for text in ["1970-01-01T00:00:00Z", "2024-02-29T23:59:59.5Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"] {
            assert_eq!(timestamp_to_string(parse_timestamp(text).unwrap()), text);
        }
        assert_eq!(parse_timestamp("1970-01-01T02:00:00+02:00"), Some(0));
        for text in ["2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z", "2024-01-01", "2024-01-01 00:00:00Z"] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }
}
