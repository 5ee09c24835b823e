use proptest::prelude::*;

use super::*;

#[test]
fn read_exactly_or_not_at_all() {
    let cases = [
        ("0", Ok(0)),
        ("0.0832", Ok(83_200_000)),
        (".5", Ok(500_000_000)),
        ("-1.5", Ok(-1_500_000_000)),
        ("+2", Ok(2_000_000_000)),
        ("8.32e-2", Ok(83_200_000)),
        ("0.000000001", Ok(1)),
        ("0.1230000000000", Ok(123_000_000)),
        ("9223372036.854775807", Ok(i64::MAX)),
        ("0.0000000001", Err("price \"0.0000000001\" is finer than a nano-dollar")),
        ("9223372036.854775808", Err("price \"9223372036.854775808\" is out of range")),
        ("1e2000000000", Err("price \"1e2000000000\" is out of range")),
        ("", Err("price \"\" is not a decimal number")),
        (".", Err("price \".\" is not a decimal number")),
        ("1,5", Err("price \"1,5\" is not a decimal number")),
        ("NaN", Err("price \"NaN\" is not a decimal number")),
        ("1e", Err("price \"1e\" is not a decimal number")),
        ("10%", Err("price \"10%\" is not a decimal number")),
    ];
    for (text, expected) in cases {
        let price = PriceNanoUsdPerHour::parse(text).map(|price| price.0).map_err(|error| error.to_string());
        assert_eq!(price, expected.map_err(str::to_owned), "{text}");
    }
}

#[test]
fn rounded_to_the_nearest_nano_dollar() {
    let cases = [
        ("0.25600000000000006", 256_000_000),
        ("0.0000000005", 1),
        ("0.00000000049999", 0),
        ("-0.0000000005", -1),
        ("0.0000000015", 2),
        ("1e-10", 0),
        ("9e-10", 1),
        ("5e-2000000000", 0),
        ("0.123456789499999999", 123_456_789),
        ("0.999999999999", 1_000_000_000),
    ];
    for (text, expected) in cases {
        assert_eq!(PriceNanoUsdPerHour::parse_rounded(text), Ok(PriceNanoUsdPerHour(expected)), "{text}");
    }
}

#[test]
fn printed_with_the_places_it_has() {
    let cases = [
        (0, "$0.00/h"),
        (83_200_000, "$0.0832/h"),
        (1_500_000_000, "$1.50/h"),
        (-1, "-$0.000000001/h"),
        (i64::MIN, "-$9223372036.854775808/h"),
    ];
    for (nano, expected) in cases {
        assert_eq!(PriceNanoUsdPerHour(nano).to_string(), expected);
    }
    assert_eq!(format!("{:.4}", PriceNanoUsdPerHour(1_234_567_891)), "$1.2345/h");
    assert_eq!(format!("{:.0}", PriceNanoUsdPerHour(1_234_567_891)), "$1/h");
}

#[test]
fn people_read_four_places_where_these_tell_enough() {
    let price = PriceNanoUsdPerHour;
    assert_eq!(short(price(0)), "$0.0000/h");
    assert_eq!(short(price(10_490_855)), "$0.0104/h");
    assert_eq!(short(price(999_999)), "$0.000999999/h");
    let both = |a, b| short_apart(price(a), price(b));
    assert_eq!(both(10_490_855, 105_000_000), ("$0.0104/h".to_owned(), "$0.1050/h".to_owned()));
    assert_eq!(both(10_490_855, 10_490_856), ("$0.010490855/h".to_owned(), "$0.010490856/h".to_owned()));
    assert_eq!(both(10_490_855, 10_490_855), ("$0.0104/h".to_owned(), "$0.0104/h".to_owned()));
}

#[test]
fn arithmetic_does_not_wrap_around() {
    let most = PriceNanoUsdPerHour(i64::MAX);
    assert_eq!(most.checked_add(PriceNanoUsdPerHour(1)), None);
    assert_eq!(most.checked_mul(2), None);
    assert_eq!(PriceNanoUsdPerHour(i64::MIN).checked_sub(PriceNanoUsdPerHour(1)), None);
    assert_eq!(most.saturating_add(most), most);
    assert_eq!(PriceNanoUsdPerHour(2).checked_mul(3), Some(PriceNanoUsdPerHour(6)));
}

proptest! {
    #[test]
    fn printed_prices_read_back(nano: i64) {
        let printed = PriceNanoUsdPerHour(nano).to_string().replace('$', "");
        prop_assert_eq!(PriceNanoUsdPerHour::parse(printed.trim_end_matches("/h")), Ok(PriceNanoUsdPerHour(nano)));
    }

    #[test]
    fn no_text_panics(text in "[0-9.eE+-]{0,200}") {
        let exact = PriceNanoUsdPerHour::parse(&text);
        let rounded = PriceNanoUsdPerHour::parse_rounded(&text);
        prop_assert!(exact.is_err() || exact == rounded);
    }
}
