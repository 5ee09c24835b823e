use num_bigint::BigInt;
use proptest::prelude::*;

use super::*;

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Each line: text, canonical form, `Value()`, `MilliValue()` as `k8s.io/apimachinery` 0.36.3 gives them, or `error`.
/// Lines where Go caps, wraps around or misrounds negative numbers are not in it; see the tests below.
#[test]
fn parsing_printing_and_rounding_agree_with_go() {
    let or_out_of_range = |value: Result<i64, Error>| match value {
        Ok(value) => value.to_string(),
        Err(error) => {
            assert_eq!(error, Error::OutOfRange);
            "out of range".to_owned()
        }
    };
    let mut count = 0;
    for line in include_str!("go_cases.tsv").lines() {
        let text = line.split('\t').next().unwrap();
        let ours = match Quantity::parse(text) {
            Ok(quantity) => {
                let (value, milli) = (or_out_of_range(quantity.value()), or_out_of_range(quantity.milli_value()));
                format!("{text}\t{quantity}\t{value}\t{milli}")
            }
            Err(_) => format!("{text}\terror"),
        };
        assert_eq!(ours, line);
        count += 1;
    }
    assert!(count > 400, "only {count} cases");
}

#[test]
fn what_go_caps_or_stores_unbounded_is_an_error() {
    for text in ["8Ei", "9Ei", "10E", "9223372036854775808", "9007199254740992Ki", "1e19", "1e100", "-8Ei", "-1e19"] {
        assert_eq!(Quantity::parse(text), Err(Error::TooLarge { text: text.to_owned() }), "{text}");
    }
    assert_eq!(quantity("9223372036854775807").value(), Ok(i64::MAX));
    assert_eq!(quantity("-9223372036854775807").value(), Ok(-i64::MAX));
    // Rounding up to the nano-unit must not lead beyond the limit either.
    assert!(Quantity::parse("9223372036854775807.0000000001").is_err());
}

#[test]
fn hostile_exponents_and_lengths_are_errors() {
    for text in ["1e101", "1e-101", "0e101", "1e2147483648", "1e-2147483649", "1e99999999999999999999999"] {
        assert_eq!(Quantity::parse(text), Err(Error::ExponentOutOfRange { text: text.to_owned() }), "{text}");
    }
    let long = "1".repeat(MAX_LEN + 1);
    assert_eq!(Quantity::parse(&long), Err(Error::TooLong { len: MAX_LEN + 1 }));
    let fine = format!("0.{}1", "0".repeat(MAX_LEN - 3));
    assert_eq!(quantity(&fine).to_nano(), 1);
    assert_eq!(quantity(&"0".repeat(MAX_LEN)), Quantity::ZERO);
}

#[test]
fn negative_fractions_round_away_from_zero() {
    // Go rounds these up or down depending on how it happens to store them.
    assert_eq!(quantity("-0.1Ki").value(), Ok(-103));
    assert_eq!(quantity("-1.1n").to_nano(), -2);
    assert_eq!(quantity("-1.5").value(), Ok(-2));
}

#[test]
fn errors_name_text_and_reason() {
    let message = |text| Quantity::parse(text).unwrap_err().to_string();
    assert_eq!(message(""), "quantity is empty");
    assert_eq!(message("1.2.3"), "quantity \"1.2.3\" is not a number with an optional suffix");
    assert_eq!(message("1Gb"), "quantity \"1Gb\" has unknown suffix \"Gb\"");
    assert_eq!(message("9Ei"), "quantity \"9Ei\" exceeds 2^63-1");
    assert_eq!(message("1e999"), "quantity \"1e999\" has an exponent beyond ±100");
}

#[test]
fn equality_and_order_go_by_value() {
    assert_eq!(quantity("1Ki"), quantity("1024"));
    assert!(quantity("1Ki") > quantity("1k"));
    assert!(quantity("-1") < quantity("1n"));
}

#[test]
fn a_sum_is_printed_like_its_first_part_that_is_not_zero() {
    let sum = |a, b| quantity(a).checked_add(quantity(b)).unwrap().to_string();
    assert_eq!(sum("1Gi", "1073741824"), "2Gi");
    assert_eq!(sum("1073741824", "1Gi"), "2147483648");
    assert_eq!(sum("0", "1Gi"), "1Gi");
    assert_eq!(quantity("0").checked_sub(quantity("1Gi")).unwrap().to_string(), "-1Gi");
    assert_eq!(quantity("9223372036854775807").checked_add(quantity("1n")), Err(Error::OutOfRange));
}

#[test]
fn json_holds_strings_and_takes_numbers_too() {
    let read = |json| serde_json::from_str::<Quantity>(json);
    assert_eq!(read("\"1.5Gi\"").unwrap(), quantity("1536Mi"));
    assert_eq!(read("\" 2 \"").unwrap(), quantity("2"));
    assert_eq!(read("2").unwrap(), quantity("2"));
    assert_eq!(read("-2").unwrap(), quantity("-2"));
    assert_eq!(read("0.25").unwrap(), quantity("250m"));
    assert_eq!(read("null").unwrap(), Quantity::ZERO);
    assert!(read("1e300").is_err());
    assert!(read("18446744073709551615").is_err());
    assert!(read("true").is_err());
    assert!(read("\"\"").is_err());
    assert_eq!(serde_json::to_string(&quantity("1024Mi")).unwrap(), "\"1Gi\"");
}

/// 10^exponent.
fn ten(exponent: usize) -> BigInt {
    BigInt::from(10).pow(u32::try_from(exponent).unwrap())
}

/// Suffixes as a power of two and a power of ten.
const SUFFIXES: [(&str, u32, i32); 22] = [
    ("", 0, 0),
    ("n", 0, -9),
    ("u", 0, -6),
    ("m", 0, -3),
    ("k", 0, 3),
    ("M", 0, 6),
    ("G", 0, 9),
    ("T", 0, 12),
    ("P", 0, 15),
    ("E", 0, 18),
    ("Ki", 10, 0),
    ("Mi", 20, 0),
    ("Gi", 30, 0),
    ("Ti", 40, 0),
    ("Pi", 50, 0),
    ("Ei", 60, 0),
    ("e0", 0, 0),
    ("e-12", 0, -12),
    ("E+7", 0, 7),
    ("e30", 0, 30),
    ("e-30", 0, -30),
    ("e100", 0, 100),
];

/// The value in nano-units by big integers: digits × 2^p × 10^(e + 9 − places), rounded up in magnitude.
fn reference_nano(whole: &str, fraction: &str, power: u32, exponent: i32) -> BigInt {
    let digits: BigInt = format!("0{whole}{fraction}").parse().unwrap();
    let scaled = digits * BigInt::from(2).pow(power);
    let shift = i64::from(exponent) + 9 - fraction.len() as i64;
    let places = usize::try_from(shift.unsigned_abs()).unwrap();
    if shift >= 0 { scaled * ten(places) } else { (scaled + ten(places) - 1) / ten(places) }
}

fn any_nano() -> impl Strategy<Value = i128> {
    prop_oneof![
        (-MAX_NANO..=MAX_NANO),
        (-2_000_000_000i128..2_000_000_000),
        (-5000i128..5000).prop_map(|units| units * NANO_PER_UNIT),
        (-5000i128..5000).prop_map(|kibi| kibi * 1024 * 1024 * NANO_PER_UNIT),
        (MAX_NANO - 10..=MAX_NANO),
    ]
}

fn any_quantity() -> impl Strategy<Value = Quantity> {
    let format = prop_oneof![Just(Format::DecimalSi), Just(Format::BinarySi), Just(Format::DecimalExponent)];
    (any_nano(), format).prop_map(|(nano, format)| Quantity::from_nano(nano, format).unwrap())
}

fn away_from_zero(nano: i128, unit: i128) -> BigInt {
    let magnitude: BigInt = (BigInt::from(nano.abs()) + unit - 1) / unit;
    if nano < 0 { -magnitude } else { magnitude }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn parsed_value_equals_big_integers(
        negative: bool,
        whole in "[0-9]{1,25}",
        fraction in "[0-9]{0,25}",
        suffix in 0..SUFFIXES.len(),
    ) {
        let (suffix, power, exponent) = SUFFIXES[suffix];
        let text = format!("{}{whole}.{fraction}{suffix}", if negative { "-" } else { "" });
        let magnitude = reference_nano(&whole, &fraction, power, exponent);
        match Quantity::parse(&text) {
            Ok(quantity) => {
                prop_assert_eq!(BigInt::from(quantity.to_nano().abs()), magnitude);
                prop_assert!(quantity.is_zero() || (quantity.sign() < 0) == negative);
            }
            Err(error) => {
                prop_assert_eq!(error, Error::TooLarge { text });
                prop_assert!(magnitude > BigInt::from(MAX_NANO));
            }
        }
    }

    #[test]
    fn rounded_values_equal_big_integers(quantity in any_quantity()) {
        let nano = quantity.to_nano();
        prop_assert_eq!(BigInt::from(quantity.value().unwrap()), away_from_zero(nano, NANO_PER_UNIT));
        let milli = away_from_zero(nano, NANO_PER_MILLI);
        prop_assert_eq!(quantity.milli_value().ok(), i64::try_from(milli).ok());
    }

    #[test]
    fn printed_form_reads_back_as_the_same_value_and_form(quantity in any_quantity()) {
        let text = quantity.to_string();
        let back = Quantity::parse(&text).unwrap();
        prop_assert_eq!(back.to_nano(), quantity.to_nano());
        // A binary quantity that no suffix fits (5000) is read back as a decimal one, in Go too.
        prop_assert!(back.to_string() == text || (quantity.format() == Format::BinarySi && !text.ends_with('i')));
    }

    #[test]
    fn sums_and_differences_equal_big_integers(a in any_quantity(), b in any_quantity()) {
        let check = |result: Result<Quantity, Error>, expected: BigInt| match result {
            Ok(result) => BigInt::from(result.to_nano()) == expected,
            Err(_) => *expected.magnitude() > *BigInt::from(MAX_NANO).magnitude(),
        };
        prop_assert!(check(a.checked_add(b), BigInt::from(a.to_nano()) + b.to_nano()));
        prop_assert!(check(a.checked_sub(b), BigInt::from(a.to_nano()) - b.to_nano()));
        prop_assert_eq!(a.cmp(&b), BigInt::from(a.to_nano()).cmp(&BigInt::from(b.to_nano())));
    }

    #[test]
    fn no_text_panics_or_leaves_the_range(text in prop_oneof!["[0-9.+eEinumkKMGTP-]{0,140}", "\\PC{0,20}"]) {
        if let Ok(quantity) = Quantity::parse(&text) {
            prop_assert!(quantity.to_nano().abs() <= MAX_NANO);
            prop_assert_eq!(Quantity::parse(&quantity.to_string()), Ok(quantity));
        }
    }
}

#[test]
fn amounts_for_people_have_few_digits_and_are_rounded_to_the_safe_side() {
    let check = |text: &str, up: &str, down: &str| {
        let quantity = Quantity::parse(text).unwrap();
        assert_eq!((quantity.readable(Rounding::Up).as_str(), quantity.readable(Rounding::Down).as_str()), (up, down));
    };
    check("974858Mi", "953Gi", "952Gi");
    check("16374Mi", "16Gi", "15.9Gi");
    check("8182Mi", "8182Mi", "8182Mi");
    check("1536Gi", "1536Gi", "1536Gi");
    check("10000001Ki", "9.54Gi", "9.53Gi");
    check("1048575Ki", "1024Mi", "1023Mi");
    check("0", "0", "0");
    check("7900m", "7900m", "7900m");
    check("255900m", "255.9", "255.9");
    check("100k", "100000", "100000");
}
