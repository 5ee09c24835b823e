use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

#[test]
fn the_last_beginning_of_a_schedule() {
    // 2026-11-25 is a Wednesday.
    let now = "2026-11-25T10:17:42Z";
    for (schedule, expected) in [
        ("* * * * *", "2026-11-25T10:17:00Z"),
        ("17 10 * * *", "2026-11-25T10:17:00Z"),
        ("18 10 * * *", "2026-11-24T10:18:00Z"),
        ("*/15 * * * *", "2026-11-25T10:15:00Z"),
        ("5/20 * * * *", "2026-11-25T10:05:00Z"),
        ("50/5 9-17 * * *", "2026-11-25T09:55:00Z"),
        ("0 9-17/4 * * *", "2026-11-25T09:00:00Z"),
        ("0 22 * * 1-5", "2026-11-24T22:00:00Z"),
        ("0 0 * * SUN", "2026-11-22T00:00:00Z"),
        ("0 0 * * 0", "2026-11-22T00:00:00Z"),
        ("0 0 ? * sat,SUN", "2026-11-22T00:00:00Z"),
        ("0 0 1 * *", "2026-11-01T00:00:00Z"),
        ("0 0 31 * *", "2026-10-31T00:00:00Z"),
        ("0 0 29 Feb *", "2024-02-29T00:00:00Z"),
        // Either kind of day will do where both are given.
        ("0 0 13 * fri", "2026-11-20T00:00:00Z"),
        ("0 0 24 * fri", "2026-11-24T00:00:00Z"),
        // A step of two is given; `*/1` is not.
        ("0 0 */2 * fri", "2026-11-25T00:00:00Z"),
        ("0 0 */1 * fri", "2026-11-20T00:00:00Z"),
        ("0 0 *-9 * fri", "2026-11-20T00:00:00Z"),
        ("0,,30 10 * * *", "2026-11-25T10:00:00Z"),
        ("+7 10 * * *", "2026-11-25T10:07:00Z"),
        ("  0   9 * * * ", "2026-11-25T09:00:00Z"),
        ("@hourly", "2026-11-25T10:00:00Z"),
        ("@daily", "2026-11-25T00:00:00Z"),
        ("@midnight", "2026-11-25T00:00:00Z"),
        ("@weekly", "2026-11-22T00:00:00Z"),
        ("@monthly", "2026-11-01T00:00:00Z"),
        ("@yearly", "2026-01-01T00:00:00Z"),
        ("@annually", "2026-01-01T00:00:00Z"),
    ] {
        let begin = Schedule::parse(schedule).unwrap().last_begin(at(now));
        assert_eq!(begin.map(|begin| begin.to_string()).as_deref(), Some(expected), "{schedule}");
    }
    for never in ["0 0 30 feb *", "0 0 31 4,6,9,11 *", ", 0 * * *"] {
        assert_eq!(Schedule::parse(never).unwrap().last_begin(at(now)), None, "{never}");
    }
}

#[test]
fn what_is_no_schedule_is_refused_with_the_field_and_the_part() {
    for (text, expected) in [
        ("", "has 0 fields, not 5"),
        ("* * * *", "has 4 fields, not 5"),
        ("0 * * * * *", "has 6 fields, not 5"),
        ("@every 1h", "macro \"@every 1h\" is not known"),
        ("@Daily", "macro \"@Daily\" is not known"),
        ("60 * * * *", "minute: \"60\" is not within 0 to 59"),
        ("* 24 * * *", "hour: \"24\" is not within 0 to 23"),
        ("* * 0 * *", "day of month: \"0\" is not within 1 to 31"),
        ("* * * 13 *", "month: \"13\" is not within 1 to 12"),
        ("* * * * 7", "day of week: \"7\" is not within 0 to 6"),
        ("* * * * fri-mon", "day of week: \"fri-mon\" is not within 0 to 6"),
        ("* * * mon *", "month: \"mon\" is not a number, a name or a range"),
        ("1-2-3 * * * *", "minute: \"1-2-3\" is not a number, a name or a range"),
        ("1/2/3 * * * *", "minute: \"1/2/3\" is not a number, a name or a range"),
        ("-5 * * * *", "minute: \"-5\" is not a number, a name or a range"),
        ("1-x * * * *", "minute: \"1-x\" is not a number, a name or a range"),
        ("*/0 * * * *", "minute: \"*/0\" has a step of zero"),
        ("*/-1 * * * *", "minute: \"*/-1\" is not a number, a name or a range"),
        ("99999999999 * * * *", "minute: \"99999999999\" is not a number, a name or a range"),
        ("* * * * L", "day of week: \"L\" is not a number, a name or a range"),
    ] {
        assert_eq!(Schedule::parse(text).unwrap_err().to_string(), expected, "{text}");
    }
}

/// A field of a schedule with the values that it stands for, written down without the parser.
fn field(min: u32, max: u32) -> impl Strategy<Value = (String, Vec<u32>, bool)> {
    let values = (min..=max, min..=max, 1..=max);
    (0..5, values).prop_map(move |(form, (a, b, step))| {
        let (low, high) = (a.min(b), a.max(b));
        let every = |from: u32, to: u32, step: u32| (from..=to).filter(|it| (it - from).is_multiple_of(step)).collect();
        match form {
            0 => ("*".to_owned(), every(min, max, 1), true),
            1 => (a.to_string(), vec![a], false),
            2 => (format!("{low}-{high}"), every(low, high, 1), false),
            3 => (format!("*/{step}"), every(min, max, step), step == 1),
            _ => (format!("{low}-{high}/{step},{b}"), [every(low, high, step), vec![b]].concat(), false),
        }
    })
}

proptest! {
    /// Against a walk back minute by minute.
    #[test]
    fn the_last_beginning_is_the_first_minute_that_matches_on_the_way_back(
        minute in field(0, 59),
        hour in field(0, 23),
        day in field(1, 31),
        month in field(1, 12),
        weekday in field(0, 6),
        now in 0i64..4_000_000_000,
    ) {
        let text = [&minute.0, &hour.0, &day.0, &month.0, &weekday.0].map(String::as_str).join(" ");
        let schedule = Schedule::parse(&text).unwrap();
        let now = Timestamp::from_seconds(now);
        // Two months, so that the test ends.
        const MINUTES: i64 = 60 * 24 * 60;
        let matches = |minute_ago: i64| {
            let time = Timestamp((now.0 / 60_000 - minute_ago) * 60_000);
            let civil = Offset::UTC.to_datetime(jiff::Timestamp::from_millisecond(time.0).unwrap());
            let is = |field: &(String, Vec<u32>, bool), value: i8| field.1.contains(&u32::try_from(value).unwrap());
            let (by_day, by_weekday) =
                (is(&day, civil.day()), is(&weekday, civil.date().weekday().to_sunday_zero_offset()));
            let is_day = if day.2 || weekday.2 { by_day && by_weekday } else { by_day || by_weekday };
            let does = is_day && is(&minute, civil.minute()) && is(&hour, civil.hour()) && is(&month, civil.month());
            does.then_some(time)
        };
        let expected = (0..MINUTES).find_map(matches);
        let found = schedule.last_begin(now);
        match expected {
            Some(_) => prop_assert_eq!(found, expected, "{}", text),
            None => prop_assert!(found.is_none_or(|found| found.0 <= now.0 - (MINUTES - 1) * 60_000), "{}", text),
        }
    }
}
