use proptest::prelude::*;

use super::*;

#[test]
fn timestamps_are_rfc_3339() {
    let cases = [
        ("1970-01-01T00:00:00Z", Some(0)),
        ("2026-11-21T09:07:44Z", Some(1_795_252_064_000)),
        ("2026-11-21T09:07:44.123456Z", Some(1_795_252_064_123)),
        ("2026-11-21T10:07:44+01:00", Some(1_795_252_064_000)),
        ("1969-12-31T23:59:59.9999Z", Some(-1)),
        ("2026-11-21T09:07Z", None),
        ("2026-11-21T09:07:44Z[UTC]", None),
        ("2026-11-21", None),
        ("2026-11-21T09:07:44", None),
        ("2026-11-21 09:07:44Z", None),
        ("2026-13-01T00:00:00Z", None),
        ("", None),
        ("now", None),
    ];
    for (text, expected) in cases {
        let parsed = Timestamp::parse(text);
        assert_eq!(parsed.as_ref().ok().map(|time| time.0), expected, "{text}: {parsed:?}");
    }
    assert_eq!(Timestamp(1_795_252_064_000).to_string(), "2026-11-21T09:07:44Z");
    assert_eq!(Timestamp(1_795_252_064_120).to_string(), "2026-11-21T09:07:44.12Z");
    assert_eq!(Timestamp(i64::MAX).to_string(), "9223372036854775807ms");
}

/// Values and printed forms as Go's `time.ParseDuration` and `Duration.String` have them.
#[test]
fn durations_are_gos() {
    let cases = [
        ("0", Some((0, "0s"))),
        ("+0", Some((0, "0s"))),
        ("1h30m", Some((5_400_000, "1h30m0s"))),
        ("1.5h", Some((5_400_000, "1h30m0s"))),
        ("720h", Some((2_592_000_000, "720h0m0s"))),
        ("-1m", Some((-60_000, "-1m0s"))),
        ("100ms", Some((100, "100ms"))),
        ("1.5s", Some((1_500, "1.5s"))),
        (".5s", Some((500, "500ms"))),
        ("1.s", Some((1_000, "1s"))),
        ("1m1ms", Some((60_001, "1m0.001s"))),
        ("1ns", Some((1, "1ms"))),
        ("1µs", Some((1, "1ms"))),
        ("1μs", Some((1, "1ms"))),
        ("-1us", Some((-1, "-1ms"))),
        ("1s1h", Some((3_601_000, "1h0m1s"))),
        ("2562047h47m16.854s", Some((9_223_372_036_854, "2562047h47m16.854s"))),
        ("", None),
        ("-", None),
        ("1", None),
        ("s", None),
        (".s", None),
        ("1d", None),
        ("1 h", None),
        ("1h 30m", None),
        ("--1s", None),
        ("Never", None),
        ("9223372037s", None),
        ("99999999999999999999999999999999999999999999h", None),
    ];
    for (text, expected) in cases {
        let parsed = DurationMs::parse(text);
        let printed = parsed.as_ref().ok().map(|span| (span.0, span.to_string()));
        assert_eq!(printed, expected.map(|(ms, text)| (ms, text.to_owned())), "{text}: {parsed:?}");
    }
}

#[test]
fn errors_tell_malformed_from_out_of_range() {
    let message = |text| DurationMs::parse(text).unwrap_err().to_string();
    assert_eq!(message("9999999999h"), "duration \"9999999999h\" is out of range");
    assert_eq!(message("soon"), "duration \"soon\" is not a sequence of numbers with units (ns, us, ms, s, m, h)");
    assert_eq!(Timestamp::parse("x").unwrap_err().to_string(), "time \"x\" is not in RFC 3339 form");
}

#[test]
fn arithmetic_stops_at_the_ends() {
    let start = Timestamp::from_seconds(10);
    assert_eq!(start.saturating_add(DurationMs::from_seconds(5)), Timestamp(15_000));
    assert_eq!(start.saturating_sub(DurationMs::from_seconds(15)), Timestamp(-5_000));
    assert_eq!(start.since(Timestamp(4_000)), DurationMs(6_000));
    assert_eq!(Timestamp(i64::MAX).saturating_add(DurationMs(1)), Timestamp(i64::MAX));
    assert_eq!(Timestamp(i64::MIN).since(Timestamp(1)), DurationMs(i64::MIN));
    assert_eq!(DurationMs(1_999).as_seconds(), 1);
}

#[test]
fn both_are_strings_in_json() {
    let time: Timestamp = serde_json::from_str("\"2026-11-21T09:07:44Z\"").unwrap();
    assert_eq!(serde_json::to_string(&time).unwrap(), "\"2026-11-21T09:07:44Z\"");
    let span: DurationMs = serde_json::from_str("\"90m\"").unwrap();
    assert_eq!(serde_json::to_string(&span).unwrap(), "\"1h30m0s\"");
    assert!(serde_json::from_str::<DurationMs>("90").is_err());
}

proptest! {
    #[test]
    fn printed_durations_read_back(ms in -9_223_372_036_854i64..=9_223_372_036_854) {
        prop_assert_eq!(DurationMs::parse(&DurationMs(ms).to_string()), Ok(DurationMs(ms)));
    }

    #[test]
    fn printed_timestamps_read_back(ms in 0i64..253_402_300_000_000) {
        prop_assert_eq!(Timestamp::parse(&Timestamp(ms).to_string()), Ok(Timestamp(ms)));
    }

    #[test]
    fn no_text_panics(text in prop_oneof!["[0-9.hmsunµ+-]{0,60}", "\\PC{0,40}"]) {
        let span = DurationMs::parse(&text);
        prop_assert!(span.is_err() || span.unwrap().0.abs() <= 9_223_372_036_855);
        if let Ok(time) = Timestamp::parse(&text) {
            prop_assert_eq!(Timestamp::parse(&time.to_string()), Ok(time));
        }
    }
}
