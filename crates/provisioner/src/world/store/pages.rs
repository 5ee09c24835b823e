//! Reads a page of a list while it comes: each item is handed over as soon as its last byte is there.
//!
//! A page may be many megabytes, and most of that is nothing that anybody reads. So no page is ever held whole: its
//! text is cut into items here, which takes no more than counting brackets, and `serde_json` reads one item after the
//! other. What is around the items is kept with a `0` in the place of each, and read at the end; so whatever is no JSON
//! is found there, as if the page had been read in one piece.

mod name;

use kube::core::ApiResource;
use serde::Deserialize;

use self::name::Named;
use super::raw::RawObject;

/// The longest text of one item. The API server takes requests of 3 MiB at most.
const LONGEST_ITEM: usize = 16 << 20;
/// The longest text around the items.
const LONGEST_REST: usize = 16 << 20;
/// What stands for an item.
const PLACEHOLDER: u8 = b'0';

/// Why a page cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The connection ended, or the API server did.
    #[error("the list stops in the middle, after {bytes} bytes and {items} items")]
    Cut { bytes: u64, items: usize },
    #[error("this is not a list")]
    NoList(#[source] serde_json::Error),
    #[error("the list has more than {LONGEST_REST} bytes beside its items")]
    TooLong,
    /// An item without a name, so that it cannot be reported.
    #[error("item {number} of the page cannot be read and has no name: {problem}")]
    Item { number: usize, problem: String },
}

/// An item of a list.
#[derive(Debug)]
pub(super) enum Item {
    Read(RawObject),
    /// Only its metadata could be read; the rest has this problem.
    Unreadable(RawObject, String),
}

/// What a list says beside its items.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct End {
    /// Stands for the next page.
    pub(super) continue_token: Option<String>,
    pub(super) resource_version: Option<String>,
    pub(super) bytes: u64,
    pub(super) items: usize,
}

/// Cuts the text of a list into items. See the [module](self).
pub(super) struct PageReader {
    place: Place,
    brackets: Brackets,
    /// Whether the text of the list's last field's name, and the colon, say that its items follow.
    field: Field,
    /// The item that is being read, as far as it fits.
    item: Vec<u8>,
    longest_item: usize,
    rest: Vec<u8>,
    bytes: u64,
    items: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Around the items.
    Rest,
    /// Between two items.
    Items,
    /// In an object or list that is an item.
    Item,
    /// In an item that is a number or a word, and ends where something else begins.
    Word,
}

/// What was read in the list's own object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Other,
    /// A string that begins here in what is kept of the rest.
    Begun(usize),
    /// The string `items`.
    Items,
    /// And a colon.
    ItemsFollow,
}

/// How deep in brackets a text is.
#[derive(Debug, Default)]
struct Brackets {
    open: usize,
    in_string: bool,
    is_escaped: bool,
}

impl PageReader {
    pub(super) fn new() -> Self {
        Self {
            place: Place::Rest,
            brackets: Brackets::default(),
            field: Field::Other,
            item: Vec::new(),
            longest_item: LONGEST_ITEM,
            rest: Vec::new(),
            bytes: 0,
            items: 0,
        }
    }

    /// Reads on until an item is complete or the text is at its end. Says how much of the text was read, and which item
    /// is complete; if there is none, all was read.
    ///
    /// # Errors
    /// If this is not a list that can be read.
    pub(super) fn read(&mut self, text: &[u8], resource: &ApiResource) -> Result<(usize, Option<Item>), Error> {
        let mut read = 0;
        let mut is_complete = false;
        while !is_complete && let Some(left) = text.get(read..).filter(|left| !left.is_empty()) {
            let step;
            (step, is_complete) = match self.place {
                Place::Rest => (self.rest(left)?, false),
                Place::Items => self.between(left)?,
                Place::Item => self.item(left),
                Place::Word => self.word(left),
            };
            read += step;
        }
        self.bytes += read as u64;
        let item = if is_complete { Some(self.take(resource)?) } else { None };
        Ok((read, item))
    }

    /// What the list says beside its items, which must all have been read.
    ///
    /// # Errors
    /// That the list is not complete, or is none.
    pub(super) fn end(self) -> Result<End, Error> {
        if self.place != Place::Rest || self.brackets.open > 0 || self.rest.is_empty() {
            return Err(Error::Cut { bytes: self.bytes, items: self.items });
        }
        let around: Around = serde_json::from_slice(&self.rest).map_err(Error::NoList)?;
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let metadata = around.metadata.unwrap_or_default();
        Ok(End {
            continue_token: given(metadata.continue_token),
            resource_version: given(metadata.resource_version),
            bytes: self.bytes,
            items: self.items,
        })
    }

    /// Reads what is around the items, up to where these begin.
    fn rest(&mut self, text: &[u8]) -> Result<usize, Error> {
        let mut read = 0;
        while let Some(&byte) = text.get(read) {
            if self.brackets.in_string {
                let left = after(text, read);
                let length = self.brackets.string(left);
                self.keep(before(left, length))?;
                read += length;
                self.field = match self.field {
                    Field::Begun(start) if !self.brackets.in_string => {
                        if after(&self.rest, start) == b"\"items\"" {
                            Field::Items
                        } else {
                            Field::Other
                        }
                    }
                    field => field,
                };
                continue;
            }
            let begins_items = self.brackets.open == 1 && byte == b'[' && self.field == Field::ItemsFollow;
            self.field = match (byte, self.field) {
                (b' ' | b'\t' | b'\r' | b'\n', field) => field,
                (b':', Field::Items) => Field::ItemsFollow,
                (b'"', _) if self.brackets.open == 1 => Field::Begun(self.rest.len()),
                _ => Field::Other,
            };
            self.brackets.outside(byte);
            self.keep(&[byte])?;
            read += 1;
            if begins_items {
                self.place = Place::Items;
                break;
            }
        }
        Ok(read)
    }

    /// Reads what is between items, up to where one begins or the last has ended. A string is complete at once if all
    /// of it is there.
    fn between(&mut self, text: &[u8]) -> Result<(usize, bool), Error> {
        for (read, &byte) in text.iter().enumerate() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b',' => self.keep(&[byte])?,
                b']' | b'}' => {
                    self.place = Place::Rest;
                    return Ok((read, false));
                }
                b'{' | b'[' | b'"' => {
                    self.place = Place::Item;
                    self.keep(&[PLACEHOLDER])?;
                    return Ok((read, false));
                }
                _ => {
                    self.place = Place::Word;
                    self.keep(&[PLACEHOLDER])?;
                    return Ok((read, false));
                }
            }
        }
        Ok((text.len(), false))
    }

    /// Reads an item up to its last bracket or quote.
    fn item(&mut self, text: &[u8]) -> (usize, bool) {
        let mut read = 0;
        let mut is_complete = false;
        while !is_complete && let Some(&byte) = text.get(read) {
            if self.brackets.in_string {
                read += self.brackets.string(after(text, read));
            } else {
                self.brackets.outside(byte);
                read += 1;
            }
            // Two are open around every item: that of the list's object and that of its items.
            is_complete = self.brackets.open <= 2 && !self.brackets.in_string;
        }
        self.append(before(text, read));
        (read, is_complete)
    }

    fn word(&mut self, text: &[u8]) -> (usize, bool) {
        let ends = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b']' | b'}' | b'{' | b'[' | b'"');
        let end = text.iter().position(ends);
        let read = end.unwrap_or(text.len());
        self.append(before(text, read));
        (read, end.is_some())
    }

    fn keep(&mut self, text: &[u8]) -> Result<(), Error> {
        if self.rest.len() + text.len() > LONGEST_REST {
            return Err(Error::TooLong);
        }
        self.rest.extend_from_slice(text);
        Ok(())
    }

    /// Beyond the longest that it may be, an item is only followed to its end.
    fn append(&mut self, text: &[u8]) {
        // One byte more shows that it is too long.
        let room = (self.longest_item + 1).saturating_sub(self.item.len());
        self.item.extend_from_slice(before(text, room));
    }

    /// The item that is complete.
    fn take(&mut self, resource: &ApiResource) -> Result<Item, Error> {
        self.place = Place::Items;
        self.items += 1;
        let problem = if self.item.len() > self.longest_item {
            format!("it is longer than {} bytes", self.longest_item)
        } else {
            match RawObject::item_of_list(&self.item, resource) {
                Ok(object) => {
                    self.item.clear();
                    return Ok(Item::Read(object));
                }
                Err(error) => error.to_string(),
            }
        };
        let named = Named::of(&self.item);
        // It may be larger by far than the next.
        self.item = Vec::new();
        match named.object() {
            Some(object) => Ok(Item::Unreadable(object, problem)),
            None => Err(Error::Item { number: self.items, problem }),
        }
    }
}

impl Brackets {
    /// A byte that is in no string.
    fn outside(&mut self, byte: u8) {
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.open += 1,
            b'}' | b']' => self.open = self.open.saturating_sub(1),
            _ => {}
        }
    }

    /// How much of a text that is in a string belongs to it, the quote at its end included.
    fn string(&mut self, text: &[u8]) -> usize {
        let mut read = 0;
        if std::mem::take(&mut self.is_escaped) {
            read = 1;
        }
        while let Some(next) = memchr::memchr2(b'"', b'\\', after(text, read)) {
            let is_quote = text.get(read + next) == Some(&b'"');
            read += next + 1;
            if is_quote {
                self.in_string = false;
                return read;
            }
            // What follows a backslash means nothing, and may not be here yet.
            self.is_escaped = read == text.len();
            read += 1;
        }
        text.len()
    }
}

/// What of a text comes before a place; all of it if it ends sooner.
fn before(text: &[u8], end: usize) -> &[u8] {
    text.get(..end).unwrap_or(text)
}

/// What of a text comes from a place on.
fn after(text: &[u8], start: usize) -> &[u8] {
    text.get(start..).unwrap_or_default()
}

/// A list with placeholders for its items.
#[derive(Deserialize)]
struct Around {
    metadata: Option<Metadata>,
    /// Must be there, and may be null. An item here is one that was not found to be one.
    #[serde(rename = "items", deserialize_with = "Option::deserialize")]
    _items: Option<Vec<u8>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(rename = "continue")]
    continue_token: Option<String>,
    resource_version: Option<String>,
}

#[cfg(test)]
mod tests;
