use kube::core::{GroupVersionKind, ObjectList};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pods() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods")
}

/// Of no kind of which anything but managed fields is passed over.
fn things() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Thing"), "things")
}

/// What is read of a text that comes in these pieces.
fn read_with(
    mut reader: PageReader,
    pieces: &[&[u8]],
    resource: &ApiResource,
) -> Result<(Vec<Result<Value, String>>, End), Error> {
    let mut items = Vec::new();
    for piece in pieces {
        let mut left = *piece;
        while !left.is_empty() {
            let (read, item) = reader.read(left, resource)?;
            assert!(read == left.len() || item.is_some(), "{read} bytes of {} were read", left.len());
            left = &left[read..];
            items.extend(item.map(|item| match item {
                Item::Read(object) => Ok(object.json),
                Item::Unreadable(object, problem) => Err(format!("{}: {problem}", object.name())),
            }));
        }
    }
    Ok((items, reader.end()?))
}

fn read(pieces: &[&[u8]], resource: &ApiResource) -> Result<(Vec<Result<Value, String>>, End), Error> {
    read_with(PageReader::new(), pieces, resource)
}

/// What kube's own types make of the whole text.
fn read_at_once(text: &[u8]) -> serde_json::Result<(Vec<Value>, Option<String>, Option<String>)> {
    let list: ObjectList<RawObject> = serde_json::from_slice(text)?;
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let items = list.items.into_iter().map(|item| item.json).collect();
    Ok((items, given(list.metadata.continue_), given(list.metadata.resource_version)))
}

/// With everything in strings that looks like the end of something.
const SAMPLE: &str = r#" {"kind": "items", "apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"a\"[{","items":["no"],
    "remainingItemCount":2}, "items" :
  [ {"metadata":{"name":"a","managedFields":[{"x":"}"}],"annotations":{"b":"}]\\","c":"\"}","d":"\\\\","é":"ü\u005d🦀"}},"items":[{}]},
 {},[],{"spec":[[],[{"items":[1,{"items":[]}]}]]} , 7,null , "}]", "", -1.5e3,true,{"metadata":{"name":"last"}}
  ] , "more":{"items":[[1]]} }
"#;

#[test]
fn a_list_is_read_the_same_wherever_it_is_cut() {
    let text = SAMPLE.as_bytes();
    let (expected, continue_token, resource_version) = read_at_once(text).unwrap();
    assert_eq!(expected.len(), 11);
    let expected: Vec<_> = expected.into_iter().map(Ok).collect();
    let bytes = text.len() as u64;
    let end = End { continue_token, resource_version, bytes, items: expected.len() };
    let expected = (expected, end);
    assert_eq!(read(&[text], &things()).unwrap(), expected);
    for first in 0..text.len() {
        let (one, rest) = text.split_at(first);
        assert_eq!(read(&[one, rest], &things()).unwrap(), expected, "cut at {first}");
        for second in (0..rest.len()).step_by(41) {
            let (two, three) = rest.split_at(second);
            assert_eq!(read(&[one, two, three], &things()).unwrap(), expected, "cut at {first} and {second} after it");
        }
    }
    let single: Vec<&[u8]> = text.chunks(1).collect();
    assert_eq!(read(&single, &things()).unwrap(), expected);
}

#[test]
fn an_item_is_told_with_its_last_byte() {
    let mut reader = PageReader::new();
    let text = br#"{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}],"metadata":{}}"#;
    let mut told = Vec::new();
    for (at, byte) in text.iter().enumerate() {
        if let (_, Some(Item::Read(object))) = reader.read(&[*byte], &things()).unwrap() {
            told.push((at, object.metadata.name.unwrap()));
        }
    }
    let last_of = |name: &str| {
        let text = std::str::from_utf8(text).unwrap();
        text.find(&format!("{name:?}}}}}")).unwrap() + name.len() + 3
    };
    assert_eq!(told, [(last_of("a"), "a".to_owned()), (last_of("b"), "b".to_owned())]);
}

#[test]
fn a_list_that_stops_anywhere_is_an_error() {
    let whole = SAMPLE.trim();
    for end in 0..whole.len() {
        match read(&[&whole.as_bytes()[..end]], &things()) {
            Err(Error::Cut { bytes, .. }) => assert_eq!(bytes, end as u64),
            other => panic!("cut at {end}: {other:?}"),
        }
    }
    assert!(read(&[whole.as_bytes()], &things()).is_ok());
    let error = read(&[&whole.as_bytes()[..whole.len() - 60]], &things()).unwrap_err();
    assert!(error.to_string().starts_with("the list stops in the middle, after "), "{error}");
}

#[test]
fn a_broken_item_is_told_by_name_and_the_others_are_read() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for (broken, expected) in [
        (r#"{"metadata":{"namespace":"n","name":"b"},"spec":{"c":tru}}"#.to_owned(), "n/b: expected"),
        (r#"{"metadata":{"name":"b"},"spec":{"c" 1}}"#.to_owned(), "b: expected `:`"),
        (r#"{"metadata":{"name":"b","d":"\q"}}"#.to_owned(), "b: invalid escape"),
        (format!(r#"{{"spec":{deep},"metadata":{{"namespace":"n","name":"b"}}}}"#), "n/b: recursion limit"),
    ] {
        let text = format!(
            r#"{{"items":[{{"metadata":{{"name":"a"}}}},{broken},{{"metadata":{{"name":"c"}}}}],"metadata":{{}}}}"#
        );
        let (items, end) = read(&[text.as_bytes()], &things()).unwrap();
        assert_eq!(items.len(), 3);
        assert_eq!(
            [&items[0], &items[2]],
            [&Ok(json!({"metadata":{"name":"a"}})), &Ok(json!({"metadata":{"name":"c"}}))]
        );
        let problem = items[1].as_ref().unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
        assert_eq!(end.items, 3);
    }
}

#[test]
fn a_broken_item_without_a_name_is_an_error_of_the_list() {
    for broken in ["{\"spec\":tru}", "tru", "01", "{\"metadata\":{\"name\":7}, \"spec\":}", "\"\u{1}\""] {
        let text = format!(r#"{{"items":[{{}},{broken},{{}}],"metadata":{{}}}}"#);
        let error = read(&[text.as_bytes()], &things()).unwrap_err();
        assert!(
            error.to_string().starts_with("item 2 of the page cannot be read and has no name: "),
            "{broken}: {error}"
        );
    }
}

#[test]
fn what_is_no_list_is_an_error() {
    for text in [
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure"}"#,
        "[]",
        "{}",
        "7",
        "<html>",
        r#"{"items":{}}"#,
        r#"{"items":[{}{}]}"#,
        r#"{"items":[{},]}"#,
        r#"{"items":[,{}]}"#,
        r#"{"items":[{}}}"#,
        r#"{"items":[7 8]}"#,
        r#"{"items":[{}],}"#,
        r#"{"items":[{}]} {}"#,
        r#"{"items":[{}],"items":[{}]}"#,
        r#"{"items":[{}]"metadata":{}}"#,
        // Nobody writes it like this, and its items would be lost.
        r#"{"\u0069tems":[{"metadata":{"name":"a"}}]}"#,
    ] {
        assert!(matches!(read(&[text.as_bytes()], &things()), Err(Error::NoList(_))), "{text}");
    }
    let empty = read(&[br#"{"items":null,"metadata":{"resourceVersion":"1"}}"#], &things()).unwrap();
    assert_eq!((empty.0.len(), empty.1.resource_version.as_deref()), (0, Some("1")));
}

#[test]
fn an_item_that_is_too_long_is_told_by_name_and_the_others_are_read() {
    let reader = || PageReader { longest_item: 100, ..PageReader::new() };
    let of_length = |first: &str, length: usize| {
        let empty = format!(r#"{{{first}"spec":""}}"#);
        format!("{}{}\"}}", empty.trim_end_matches("\"}"), "x".repeat(length - empty.len()))
    };
    let list = |middle: &str| format!(r#"{{"items":[{{}},{middle},{{"metadata":{{"name":"c"}}}}],"metadata":{{}}}}"#);
    let named = r#""metadata":{"namespace":"n","name":"b"},"#;
    let (items, _) = read_with(reader(), &[list(&of_length(named, 100)).as_bytes()], &things()).unwrap();
    assert!(items.iter().all(Result::is_ok), "{items:?}");
    for length in [101, 102, 5000] {
        let text = list(&of_length(named, length));
        for pieces in [vec![text.as_bytes()], text.as_bytes().chunks(7).collect()] {
            let (items, _) = read_with(reader(), &pieces, &things()).unwrap();
            assert_eq!(items[1], Err("n/b: it is longer than 100 bytes".to_owned()));
            assert_eq!((items.len(), &items[2]), (3, &Ok(json!({"metadata":{"name":"c"}}))));
        }
    }
    let error = read_with(reader(), &[list(&of_length("", 101)).as_bytes()], &things()).unwrap_err();
    let expected = "item 2 of the page cannot be read and has no name: it is longer than 100 bytes";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn what_is_around_the_items_cannot_grow_for_ever() {
    let mut reader = PageReader::new();
    reader.read(br#"{"kind":""#, &things()).unwrap();
    let piece = vec![b'x'; 1 << 20];
    let failed = (0..=LONGEST_REST >> 20).find(|_| reader.read(&piece, &things()).is_err());
    assert_eq!(failed, Some((LONGEST_REST >> 20) - 1));
}

#[test]
fn of_an_item_of_a_list_of_pods_no_more_is_read_than_of_a_watched_pod() {
    let spec = json!({"containers": [{"name": "a", "image": "b", "env": []}], "nodeName": "c", "securityContext": {}});
    let metadata = json!({"name": "d", "managedFields": [1]});
    let item = json!({"metadata": metadata, "spec": spec, "status": {"phase": "Running", "podIP": "1"}});
    let text = format!(r#"{{"items":[{item}],"metadata":{{}}}}"#);
    let (items, _) = read(&[text.as_bytes()], &pods()).unwrap();
    let watched = item.to_string().replacen('{', r#"{"kind":"Pod","apiVersion":"v1","#, 1);
    let mut watched = serde_json::from_str::<RawObject>(&watched).unwrap().json;
    watched.as_object_mut().unwrap().retain(|field, _| field != "kind" && field != "apiVersion");
    assert_eq!(items, [Ok(watched)]);
    assert_eq!(items[0].as_ref().unwrap()["spec"], json!({"containers": [{"name": "a"}], "nodeName": "c"}));
    let (items, _) = read(&[text.as_bytes()], &things()).unwrap();
    assert_eq!(items[0].as_ref().unwrap()["spec"], spec);
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("items".to_owned()),
        4 => Just("metadata".to_owned()),
        3 => "[\\[\\]{}:,\"\\\\ a0é🦀\n]{0,6}",
        1 => any::<String>(),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((any_text(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A list, with its fields in this order and more around them.
fn any_list() -> impl Strategy<Value = String> {
    let fields =
        (prop::collection::vec(any_json(), 0..6), any_json(), any::<Option<u32>>(), any::<bool>(), any::<bool>());
    fields.prop_map(|(items, other, token, items_first, is_pretty)| {
        let metadata = json!({"resourceVersion": "1", "continue": token.map(|it| it.to_string())});
        let text = |json: &Value| match is_pretty {
            true => serde_json::to_string_pretty(json).unwrap(),
            false => json.to_string(),
        };
        let (items, metadata, other) = (text(&Value::from(items)), text(&metadata), text(&other));
        match items_first {
            true => format!(r#"{{"items":{items},"kind":"L","other":{other},"metadata":{metadata}}}"#),
            false => format!(r#"{{"kind":"L","other":{other},"metadata":{metadata},"items":{items}}}"#),
        }
    })
}

proptest! {
    #[test]
    fn what_is_read_in_pieces_equals_what_is_read_at_once(list in any_list(), cuts in prop::collection::vec(1usize..40, 1..20)) {
        let mut pieces = Vec::new();
        let mut left = list.as_bytes();
        for length in cuts.iter().cycle() {
            let (piece, rest) = left.split_at((*length).min(left.len()));
            pieces.push(piece);
            left = rest;
            if left.is_empty() {
                break;
            }
        }
        let (expected, continue_token, resource_version) = read_at_once(list.as_bytes()).unwrap();
        let (items, end) = read(&pieces, &things()).unwrap();
        prop_assert_eq!(items, expected.into_iter().map(Ok).collect::<Vec<_>>());
        prop_assert_eq!(end.continue_token, continue_token);
        prop_assert_eq!(end.resource_version, resource_version);
        prop_assert_eq!(end.bytes, list.len() as u64);
    }

    /// Whatever is broken: both see it, or neither does. An item that tells its name is the exception.
    #[test]
    fn what_is_no_json_is_found(list in any_list(), at in any::<prop::sample::Index>(), by in "[\\[\\]{}:,\"\\\\ 0a]") {
        let mut text = list.into_bytes();
        let at = at.index(text.len());
        text[at] = by.as_bytes()[0];
        // Who passes over a string need not look at its characters.
        prop_assume!(std::str::from_utf8(&text).is_ok());
        match (read(&[&text], &things()), read_at_once(&text)) {
            (Ok((items, _)), Ok((expected, ..))) => {
                prop_assert_eq!(items, expected.into_iter().map(Ok).collect::<Vec<_>>());
            }
            (Ok((items, _)), Err(error)) => prop_assert!(items.iter().any(Result::is_err), "only at once: {}", error),
            (Err(error), Ok(_)) => prop_assert!(false, "only in pieces: {}", error),
            (Err(_), Err(_)) => {}
        }
    }
}
