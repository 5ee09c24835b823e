//! Random devices and selectors.
//!
//! Most texts are built by types, so that they compile; some have a wrong type planted in them, a token removed,
//! doubled or exchanged, or are nested and chained up to the limits.

use serde_json::{Value, json};

use seeded_random::Random;

/// A case: a device, a text, gates.
pub(crate) fn case(random: &mut Random, name: &str) -> Value {
    let features = match random.below(6) {
        0 => json!(["DRAConsumableCapacity"]),
        1 => json!([]),
        2 => json!(["DRAListTypeAttributes"]),
        _ => json!(["DRAConsumableCapacity", "DRAListTypeAttributes"]),
    };
    json!({"device": device(random), "name": name, "expr": expression(random), "features": features})
}

const DOMAINS: [&str; 4] = ["gpu.example.com", "dra.net", "resource.kubernetes.io", "no.such"];
const STRINGS: [&str; 10] =
    ["", "gpu", "nic", "A100-SXM4-40GB", "pci0000:01", "10.0.0.5", "x/y.z", "a-b-c", "äöü", "550.90.07"];
const VERSIONS: [&str; 6] = ["1.0.0", "1.2.3", "1.2.3-rc.1", "550.90.7", "1.2.3+build", "0.0.0"];
/// As the API server writes them.
const QUANTITIES: [&str; 8] = ["0", "1", "1500m", "4Gi", "40Gi", "100G", "1e3", "-2"];
/// As people may write them in selectors.
const AMOUNTS: [&str; 8] = ["3000m", "1.0", "0m", "1.5Ki", "100Ti", "1Pi", "999999999999999999", "0.5"];

fn device(random: &mut Random) -> Value {
    let mut attributes = serde_json::Map::new();
    for id in ["type", "index", "ready", "version", "numa", "name"] {
        if random.one_in(5) {
            continue;
        }
        let value = match (id, random.below(8)) {
            (_, 0) => json!({ "strings": [random.pick(&STRINGS), random.pick(&STRINGS)] }),
            (_, 1) => json!({ "ints": [random.below(4), random.below(4)] }),
            (_, 2) if id == "numa" => json!({ "versions": [random.pick(&VERSIONS)] }),
            ("index" | "numa", _) => json!({ "int": random.below(5) }),
            ("ready", _) => json!({ "bool": random.one_in(2) }),
            ("version", _) => json!({ "version": random.pick(&VERSIONS) }),
            _ => json!({ "string": random.pick(&STRINGS) }),
        };
        let domain = *random.pick(&["", "", "dra.net/", "resource.kubernetes.io/"]);
        attributes.insert(format!("{domain}{id}"), value);
    }
    let mut capacity = serde_json::Map::new();
    for id in ["memory", "cores"] {
        if !random.one_in(4) {
            capacity.insert(id.to_owned(), json!({ "value": random.pick(&QUANTITIES) }));
        }
    }
    json!({
        "driver": "gpu.example.com", "attributes": attributes, "capacity": capacity,
        "allowMultipleAllocations": *random.pick(&[json!(true), json!(false), Value::Null]),
    })
}

fn expression(random: &mut Random) -> String {
    match random.below(12) {
        0 => spoiled(random),
        1 => extreme(random),
        2 => of(random, Kind::Any, 3, &mut Vec::new()),
        _ => {
            let depth = 1 + random.below(4);
            of(random, Kind::Bool, depth, &mut Vec::new())
        }
    }
}

/// A text with something wrong in it.
fn spoiled(random: &mut Random) -> String {
    let text = of(random, Kind::Bool, 3, &mut Vec::new());
    let chars: Vec<char> = text.chars().collect();
    let at = random.below(chars.len());
    let plant = *random.pick(&["(", ")", "'", ".", "?", "1", " + ", "nope", "[", "\\", "!", "-", "&&", "in", "`", "{"]);
    let (before, after) = chars.split_at(at);
    let (before, after): (String, String) = (before.iter().collect(), after.iter().collect());
    match random.below(3) {
        0 => format!("{before}{}", after.chars().skip(1).collect::<String>()),
        1 => format!("{before}{plant}{after}"),
        _ => format!("{before}{plant}{}", after.chars().skip(1).collect::<String>()),
    }
}

/// A text at the edge of what is allowed.
fn extreme(random: &mut Random) -> String {
    let count = *random.pick(&[2, 50, 123, 124, 125, 126, 247, 248, 249, 250, 251, 252]);
    match random.below(8) {
        0 => format!("{}true{}", "(".repeat(count), ")".repeat(count)),
        1 => format!("{}1 > 0", "1 + ".repeat(count)),
        2 => format!("{}true", "true || ".repeat(count)),
        3 => format!("{}true", "!".repeat(count)),
        4 => format!("{}false", "true ? true : ".repeat(count)),
        5 => format!("{{'a': 1}}{}", ".a".repeat(count)),
        6 => {
            // Upstream takes seconds for the deepest, which is no reason to wait for it all the time.
            let count = if random.one_in(50) { count } else { count.min(60) };
            format!("{}1{} == []", "[".repeat(count), "]".repeat(count))
        }
        _ => format!("1{} == 1", " * 1".repeat(count)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    String,
    Quantity,
    Version,
    Strings,
    Ints,
    /// An attribute.
    Any,
    Double,
}

fn quoted(random: &mut Random) -> String {
    format!("'{}'", random.pick(&STRINGS))
}

fn attributes(random: &mut Random) -> String {
    let dot = if random.one_in(20) { "." } else { "" };
    format!("{dot}device.attributes['{}']", random.pick(&DOMAINS))
}

/// A variable's name; now and then one that hides something.
fn variable(random: &mut Random, names: &[(String, Kind)]) -> String {
    if random.one_in(40) {
        return random.pick(&["device", "int", "net", "sets"]).to_string();
    }
    format!("v{}", names.len())
}

/// Something of a type that nothing tells.
fn open(random: &mut Random) -> String {
    random.pick(&["[][0]", "{}.a", "[].first().value()", "optional.none().value()"]).to_string()
}

fn attribute(random: &mut Random) -> String {
    let id = *random.pick(&["type", "index", "ready", "version", "numa", "name", "nope"]);
    let map = attributes(random);
    match random.below(6) {
        0 => format!("{map}['{id}']"),
        1 => format!("{map}.?{id}.orValue({})", quoted(random)),
        2 => format!("{map}[?'{id}'].value()"),
        _ => format!("{map}.{id}"),
    }
}

fn capacity(random: &mut Random) -> String {
    let id = *random.pick(&["memory", "cores", "nope"]);
    format!("device.capacity['gpu.example.com'].{id}")
}

/// An expression that has a type, or is an attribute instead.
fn of(random: &mut Random, kind: Kind, depth: usize, names: &mut Vec<(String, Kind)>) -> String {
    if depth > 0 && random.one_in(12) {
        return format!("({})", of(random, kind, depth - 1, names));
    }
    // A variable of the type, an attribute in its place, or a choice.
    let known: Vec<_> = names.iter().filter(|(_, of)| *of == kind).map(|(name, _)| name.clone()).collect();
    if !known.is_empty() && random.one_in(2) {
        return random.pick(&known).clone();
    }
    if kind != Kind::Double && random.one_in(6) {
        return attribute(random);
    }
    if random.one_in(80) {
        return open(random);
    }
    if depth > 1 && random.one_in(14) {
        let condition = of(random, Kind::Bool, depth - 2, names);
        return format!(
            "({condition} ? {} : {})",
            of(random, kind, depth - 1, names),
            of(random, kind, depth - 1, names)
        );
    }
    if depth > 1 && random.one_in(14) {
        let bound = *random.pick(&[Kind::Int, Kind::String, Kind::Any, Kind::Strings]);
        let value = of(random, bound, depth - 2, names);
        let name = variable(random, names);
        names.push((name.clone(), bound));
        let body = of(random, kind, depth - 1, names);
        names.pop();
        return format!("cel.bind({name}, {value}, {body})");
    }
    if depth == 0 {
        return leaf(random, kind);
    }
    match kind {
        Kind::Bool => boolean(random, depth - 1, names),
        Kind::Int => integer(random, depth - 1, names),
        Kind::String => string(random, depth - 1, names),
        Kind::Quantity => quantity(random, depth - 1, names),
        Kind::Version => format!("semver({})", of(random, Kind::String, depth - 1, names)),
        Kind::Strings => strings(random, depth - 1, names),
        Kind::Ints => integers(random, depth - 1, names),
        Kind::Any => attribute(random),
        Kind::Double => match random.below(3) {
            0 => format!("{}.asApproximateFloat()", of(random, Kind::Quantity, depth - 1, names)),
            1 => format!("double({})", of(random, Kind::Int, depth - 1, names)),
            _ => leaf(random, kind),
        },
    }
}

fn leaf(random: &mut Random, kind: Kind) -> String {
    match kind {
        Kind::Bool => match random.below(6) {
            0 => "true".to_owned(),
            1 => "false".to_owned(),
            2 => "device.allowMultipleAllocations".to_owned(),
            3 => format!("'{}' in device.attributes", random.pick(&DOMAINS)),
            4 => format!("has({}.index)", attributes(random)),
            _ => format!("device.driver == '{}'", random.pick(&DOMAINS)),
        },
        Kind::Int => random.pick(&["0", "1", "2", "-3", "7", "9223372036854775807", "0x1F"]).to_string(),
        Kind::String => {
            if random.one_in(4) {
                "device.driver".to_owned()
            } else {
                quoted(random)
            }
        }
        Kind::Quantity => {
            if random.one_in(2) {
                capacity(random)
            } else {
                let amounts = if random.one_in(2) { &QUANTITIES } else { &AMOUNTS };
                format!("quantity('{}')", random.pick(amounts))
            }
        }
        Kind::Version => format!("semver('{}')", random.pick(&VERSIONS)),
        Kind::Strings => random.pick(&["['a', 'b']", "[]", "['gpu', 'nic', 'gpu']", "['x']"]).to_string(),
        Kind::Ints => random.pick(&["[1, 2, 3]", "[0]", "[3, 1, 2, 1]"]).to_string(),
        Kind::Any => attribute(random),
        Kind::Double => random.pick(&["0.5", "1.0", "-2.25", "1e3"]).to_string(),
    }
}

fn boolean(random: &mut Random, depth: usize, names: &mut Vec<(String, Kind)>) -> String {
    let mut of = |random: &mut Random, kind| of(random, kind, depth, names);
    match random.below(30) {
        0..=3 => format!("{} && {}", of(random, Kind::Bool), of(random, Kind::Bool)),
        4..=7 => format!("{} || {}", of(random, Kind::Bool), of(random, Kind::Bool)),
        8 => format!("!({})", of(random, Kind::Bool)),
        9..=12 => {
            let kind = *random.pick(&[
                Kind::Int,
                Kind::String,
                Kind::Quantity,
                Kind::Version,
                Kind::Bool,
                Kind::Any,
                Kind::Strings,
                Kind::Ints,
                Kind::Double,
            ]);
            let right = if random.one_in(12) { Kind::String } else { kind };
            let operator = *random.pick(&["==", "==", "!="]);
            format!("{} {operator} {}", of(random, kind), of(random, right))
        }
        13..=15 => {
            let kind = *random.pick(&[Kind::Int, Kind::String, Kind::Double, Kind::Any, Kind::Bool]);
            let right = if random.one_in(8) { Kind::Double } else { kind };
            let operator = *random.pick(&["<", "<=", ">", ">="]);
            format!("{} {operator} {}", of(random, kind), of(random, right))
        }
        16..=17 => {
            let function = *random.pick(&["startsWith", "endsWith", "contains"]);
            format!("{}.{function}({})", of(random, Kind::String), of(random, Kind::String))
        }
        18 => {
            let pattern = *random.pick(&["^[a-z]+$", "A100", "\\\\d+", "(", "[0-9]+GB", ".*", "a|b", "(?i)GPU"]);
            format!("{}.matches('{pattern}')", of(random, Kind::String))
        }
        19 => {
            let kind = *random.pick(&[Kind::Quantity, Kind::Version]);
            let function = *random.pick(&["isGreaterThan", "isLessThan"]);
            format!("{}.{function}({})", of(random, kind), of(random, kind))
        }
        20 => format!("{} in {}", of(random, Kind::String), of(random, Kind::Strings)),
        21 => format!("{} in {}", of(random, Kind::Int), of(random, Kind::Ints)),
        22 => format!("{}.includes({})", attribute(random), of(random, Kind::String)),
        23 => format!("is{}({})", random.pick(&["Quantity", "Semver", "IP", "CIDR", "URL"]), of(random, Kind::String)),
        24 => {
            let function = *random.pick(&["contains", "intersects", "equivalent"]);
            format!("sets.{function}({}, {})", of(random, Kind::Strings), of(random, Kind::Strings))
        }
        25 => format!("{}.isSorted()", of(random, *[Kind::Ints, Kind::Strings].get(depth % 2).unwrap_or(&Kind::Ints))),
        _ => quantified(random, depth, names),
    }
}

fn quantified(random: &mut Random, depth: usize, names: &mut Vec<(String, Kind)>) -> String {
    let (range, kind) = match random.below(5) {
        0 => (of(random, Kind::Strings, depth, names), Kind::String),
        1 => (of(random, Kind::Ints, depth, names), Kind::Int),
        2 => ("device.attributes".to_owned(), Kind::String),
        3 => (attributes(random), Kind::String),
        _ => (attribute(random), Kind::Any),
    };
    let name = variable(random, names);
    names.push((name.clone(), kind));
    let two = random.one_in(5);
    let second = format!("w{}", names.len());
    if two {
        names.push((second.clone(), Kind::Any));
    }
    let body = of(random, Kind::Bool, depth, names);
    if two {
        names.pop();
    }
    names.pop();
    let (function, variables) = if two {
        (*random.pick(&["all", "exists", "existsOne"]), format!("{name}, {second}"))
    } else {
        (*random.pick(&["all", "exists", "exists_one", "exists"]), name)
    };
    format!("{range}.{function}({variables}, {body})")
}

fn integer(random: &mut Random, depth: usize, names: &mut Vec<(String, Kind)>) -> String {
    let mut of = |random: &mut Random, kind| of(random, kind, depth, names);
    match random.below(12) {
        0..=2 => {
            let operator = *random.pick(&["+", "-", "*", "/", "%"]);
            format!("({} {operator} {})", of(random, Kind::Int), of(random, Kind::Int))
        }
        3 => format!("-{}", of(random, Kind::Any)),
        4 => format!(
            "size({})",
            of(random, *[Kind::String, Kind::Strings, Kind::Any].get(depth % 3).unwrap_or(&Kind::Any))
        ),
        5 => format!("{}.size()", of(random, Kind::Strings)),
        6 => format!("{}.compareTo({})", of(random, Kind::Quantity), of(random, Kind::Quantity)),
        7 => format!("{}.{}()", of(random, Kind::Version), random.pick(&["major", "minor", "patch"])),
        8 => format!(
            "{}.{}({})",
            of(random, Kind::String),
            random.pick(&["indexOf", "lastIndexOf"]),
            of(random, Kind::String)
        ),
        9 => format!("{}.{}()", of(random, Kind::Ints), random.pick(&["sum", "min", "max"])),
        10 => format!(
            "int({})",
            of(random, *[Kind::String, Kind::Double, Kind::Any].get(depth % 3).unwrap_or(&Kind::Any))
        ),
        _ => format!("{}.asInteger()", of(random, Kind::Quantity)),
    }
}

fn string(random: &mut Random, depth: usize, names: &mut Vec<(String, Kind)>) -> String {
    let mut of = |random: &mut Random, kind| of(random, kind, depth, names);
    match random.below(13) {
        11 => {
            let verb = *random.pick(&["s", "s", "d", "x", "X", "o", "b", "f", ".2f", "%", "q"]);
            let kind = *random.pick(&[
                Kind::Int,
                Kind::String,
                Kind::Bool,
                Kind::Double,
                Kind::Any,
                Kind::Strings,
                Kind::Quantity,
                Kind::Version,
            ]);
            format!("'<%{verb}>'.format([{}])", of(random, kind))
        }
        0 => format!("{} + {}", of(random, Kind::String), of(random, Kind::String)),
        1 => format!("{}.{}()", of(random, Kind::String), random.pick(&["lowerAscii", "upperAscii", "trim"])),
        2 => format!("{}.replace({}, {})", of(random, Kind::String), quoted(random), of(random, Kind::String)),
        3 => format!("{}.substring({})", of(random, Kind::String), of(random, Kind::Int)),
        4 => format!("{}.substring({}, {})", of(random, Kind::String), random.below(3), of(random, Kind::Int)),
        5 => format!("{}.charAt({})", of(random, Kind::String), of(random, Kind::Int)),
        6 => format!(
            "string({})",
            of(random, *[Kind::Int, Kind::Bool, Kind::Double, Kind::Any].get(depth % 4).unwrap_or(&Kind::Int))
        ),
        7 => format!("{}.find('[0-9]+')", of(random, Kind::String)),
        8 => format!("{}.join({})", of(random, Kind::Strings), quoted(random)),
        9 => format!("{}[{}]", of(random, Kind::Strings), of(random, Kind::Int)),
        _ => format!("'%s-%d'.format([{}, {}])", of(random, Kind::String), of(random, Kind::Int)),
    }
}

fn quantity(random: &mut Random, depth: usize, names: &mut Vec<(String, Kind)>) -> String {
    let mut of = |random: &mut Random, kind| of(random, kind, depth, names);
    match random.below(4) {
        0 => format!("quantity({})", of(random, Kind::String)),
        1 => format!("{}.add({})", of(random, Kind::Quantity), of(random, Kind::Quantity)),
        2 => format!("{}.sub({})", of(random, Kind::Quantity), of(random, Kind::Int)),
        _ => leaf(random, Kind::Quantity),
    }
}

fn strings(random: &mut Random, depth: usize, names: &mut Vec<(String, Kind)>) -> String {
    match random.below(8) {
        0 => format!("{}.split({})", of(random, Kind::String, depth, names), quoted(random)),
        1 => format!("{}.findAll('[a-z]+')", of(random, Kind::String, depth, names)),
        2 => format!("[{}, {}]", of(random, Kind::String, depth, names), of(random, Kind::String, depth, names)),
        3 => format!("{} + {}", of(random, Kind::Strings, depth, names), of(random, Kind::Strings, depth, names)),
        4 => format!("{}.{}()", of(random, Kind::Strings, depth, names), random.pick(&["distinct", "sort", "reverse"])),
        5 => format!("[{}, ?{}.?name]", of(random, Kind::Any, depth, names), attributes(random)),
        6 => {
            let range = of(random, Kind::Strings, depth, names);
            let name = variable(random, names);
            names.push((name.clone(), Kind::String));
            let body = of(random, Kind::Bool, depth, names);
            names.pop();
            format!("{range}.filter({name}, {body})")
        }
        _ => {
            let range = of(random, Kind::Ints, depth, names);
            let name = variable(random, names);
            names.push((name.clone(), Kind::Int));
            let body = of(random, Kind::String, depth, names);
            names.pop();
            format!("{range}.map({name}, {body})")
        }
    }
}

fn integers(random: &mut Random, depth: usize, names: &mut Vec<(String, Kind)>) -> String {
    let mut of = |random: &mut Random, kind| of(random, kind, depth, names);
    match random.below(6) {
        0 => format!("[{}, {}]", of(random, Kind::Int), of(random, Kind::Int)),
        1 => format!("{}.slice({}, {})", of(random, Kind::Ints), random.below(2), random.below(4)),
        // 1.36 makes the whole list before it counts its cost: a large one ends the process that asks.
        2 => format!("lists.range(({}) % 100)", of(random, Kind::Int)),
        3 => format!("[{}, {}].flatten()", of(random, Kind::Ints), of(random, Kind::Ints)),
        4 => format!("{}.{}()", of(random, Kind::Ints), random.pick(&["distinct", "sort", "reverse"])),
        _ => format!("{} + {}", of(random, Kind::Ints), of(random, Kind::Ints)),
    }
}
