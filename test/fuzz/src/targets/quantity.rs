//! A quantity is read or refused, and prints as one of the same amount.

use model::Quantity;

pub(crate) fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(quantity) = Quantity::parse(&text) else { return };
    let printed = quantity.to_string();
    let again = Quantity::parse(&printed).unwrap_or_else(|error| panic!("{text} prints as {printed}: {error}"));
    assert_eq!(again.to_nano(), quantity.to_nano(), "{text} prints as {printed}");
}
