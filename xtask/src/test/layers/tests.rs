use std::path::Path;

use super::table::room;
use super::*;

const KWOK: &str = "cloudprovider_kwok";

/// A planner with rooms `low` and `high`, and a controller with two controllers.
const TABLE: Table<'_> = Table {
    crates: &[
        ("model", &[]),
        ("planner", &[&["model::names"]]),
        ("provisioner", &[&["model", "planner"]]),
        ("dovetail", &[]),
    ],
    rooms: &[
        ("planner", &[room("low", &["a", "b"], &[]), room("high", &["c", "c::d"], &["low"])]),
        ("provisioner", &[room("world", &["world"], &[]), room("controllers::*", &["controllers::*"], &["world"])]),
    ],
    together: &[],
    exceptions: &[],
};

/// The faults of files, each with its crate, its module and its text.
fn faults_with(table: &Table<'_>, files: &[(&str, &str, &str)]) -> Vec<String> {
    let mut sources = Sources::default();
    for (name, module, text) in files {
        let path = module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let file = format!("{name}/{module}.rs");
        sources.add(name, text, path, Path::new(&file)).unwrap();
    }
    sources.leave_out_tests();
    table.faults(&arrows(&sources))
}

fn faults(files: &[(&str, &str, &str)]) -> Vec<String> {
    faults_with(&TABLE, files)
}

const PLANNER: [(&str, &str, &str); 4] = [
    ("planner", "", "mod a; mod b; mod c; pub use c::Plan;"),
    ("planner", "a", "pub struct A;"),
    ("planner", "b", "pub struct B;"),
    ("planner", "c", "pub struct Plan; pub mod d { pub fn e() {} }"),
];

/// What is wrong if module `b` of the planner has this text.
fn with_b(text: &str) -> Vec<String> {
    let mut files = PLANNER;
    files[2].2 = text;
    faults(&files)
}

#[test]
fn an_arrow_that_the_table_has_passes() {
    let mut files = PLANNER;
    files[3].2 = "use crate::a::A; use super::b; pub struct Plan; fn f() -> b::B { crate::b::B }";
    assert!(faults(&files).is_empty());
    assert!(with_b("use crate::a::A; use self::inner::X; mod inner { pub struct X; }").is_empty(), "within a room");
}

#[test]
fn an_arrow_upwards_is_found_with_its_line_however_it_is_written() {
    let upward = [
        "\nuse crate::c::Plan;",
        "\nuse crate::{a::A, c::{Plan as P}};",
        "\nuse super::c;",
        "\nuse crate::Plan;",
        "\nfn f() -> crate::c::Plan { todo() }",
        "\nfn f() { assert!(g(crate::c::d::e())); }",
        "\nfn f() { let x = X { ..super::c::d::e() }; }",
        "\npub(crate) use crate::c::*;",
    ];
    for text in upward {
        let found = with_b(text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].starts_with("planner/b.rs:2: planner::low may not use planner::high: "), "{}", found[0]);
    }
}

#[test]
fn an_imported_module_is_followed_where_it_is_used() {
    let found = with_b("use crate::c;\nfn f() { c::d::e() }");
    assert_eq!(found.len(), 2);
    assert!(found[1].starts_with("planner/b.rs:2: "), "{}", found[1]);
}

#[test]
fn tests_comments_strings_and_fields_are_no_arrows() {
    let harmless = [
        "#[cfg(test)]\nmod tests { use crate::c::Plan; }",
        "#[cfg(test)] use crate::{c::Plan, a::A};\npub struct B;",
        "struct S { #[cfg(test)] plan: crate::c::Plan, other: u8 }",
        "/// [`crate::c::Plan`]\nfn f() { let x = \"crate::c\"; } // crate::c::Plan",
        "fn f() { x.c::<u8>(); <T as U>::c::d(); }",
    ];
    for text in harmless {
        assert!(with_b(text).is_empty(), "{text}");
    }
    assert_eq!(with_b("#[cfg(test)] const N: u8 = 1;\nuse crate::c::Plan;").len(), 1, "what follows counts again");
}

#[test]
fn files_of_modules_for_tests_are_left_out() {
    let root = ("planner", "", "mod b; mod c; #[cfg(test)] pub(crate) mod fixture;");
    let found = faults(&[root, ("planner", "c", ""), ("planner", "fixture", "use crate::c; use tokio::x;")]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_controller_that_imports_another_is_told_where_to_put_it() {
    let of = |module, text| ("provisioner", module, text);
    let root = of("", "mod world; mod controllers;");
    let both = of("controllers", "pub mod x; pub mod y;");
    let found =
        faults(&[root, both, of("world", ""), of("controllers::x", "use super::y::run;"), of("controllers::y", "")]);
    assert_eq!(
        found,
        [
            "provisioner/controllers::x.rs:1: provisioner::controllers::x may not use provisioner::controllers::y: what two controllers need goes to `world`"
        ]
    );
    let own = of("controllers::x", "mod z { use super::super::x; use crate::world; }");
    assert!(faults(&[root, both, of("world", ""), own]).is_empty());
}

#[test]
fn a_crate_uses_of_another_only_what_its_row_names() {
    let model =
        [("model", "", "pub mod names; pub mod pod; pub use pod::Pod;"), ("model", "names", ""), ("model", "pod", "")];
    let with = |text| faults(&[&model[..], &[("planner", "a", text)]].concat());
    assert!(with("use model::names::Uid;").is_empty());
    assert_eq!(with("use model::pod::Pod;").len(), 1);
    assert_eq!(with("fn f(pod: model::Pod) {}").len(), 1, "by a second name");
    let found = faults(&[&model[..], &[("other", "a", "use model::names;")]].concat());
    assert!(found[0].contains("crate other is not in the table"), "{found:?}");
}

#[test]
fn a_provider_is_named_in_its_crate_and_in_the_one_table_of_providers() {
    let kwok =
        [(KWOK, "", "pub mod catalogue;"), (KWOK, "catalogue", "use crate::node; pub fn all() {}"), (KWOK, "node", "")];
    let at = |name, module, text| {
        faults(&[&kwok[..], &[(name, "", "mod providers; mod cli;"), (name, module, text)]].concat())
    };
    assert!(at("dovetail", "providers", "use cloudprovider_kwok::catalogue;").is_empty());
    let found = at("dovetail", "cli", "use cloudprovider_kwok::catalogue;\nfn f() { catalogue::all() }");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[1].starts_with("dovetail/cli.rs:2: dovetail::cli names a provider: "), "{}", found[1]);
}

#[test]
fn rooms_without_a_row_may_use_each_other_but_not_in_a_circle() {
    let root = ("model", "", "mod x; mod y; pub use x::X;");
    let x = ("model", "x", "use crate::y::Y; pub struct X;");
    assert!(faults(&[root, x, ("model", "y", "")]).is_empty());
    let circle = [root, x, ("model", "y", "use crate::X;")];
    let found = faults(&circle);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("model::x, model::y use each other in a circle"), "{}", found[0]);
    let together = Table { together: &[("model", &["x", "y"])], ..TABLE };
    assert!(faults_with(&together, &circle).is_empty());
    let gone = faults_with(&together, &[root, x, ("model", "y", "")]);
    assert!(gone[0].contains("are not exactly a circle any more"), "{gone:?}");
}

#[test]
fn an_exception_lets_its_arrow_pass_and_is_asked_for_when_that_is_gone() {
    const UPWARD: Exception = Exception { reason: "a test", arrows: &[("planner::low", "planner::high")], cycles: &[] };
    let table = Table { exceptions: &[UPWARD], ..TABLE };
    let mut files = PLANNER;
    files[2].2 = "use crate::c::Plan;";
    assert!(faults_with(&table, &files).is_empty());
    let gone = faults_with(&table, &PLANNER);
    assert_eq!(gone, ["planner::low no longer uses planner::high: take the exception out of the table"]);
    let many = Table {
        exceptions: &[const { Exception { reason: "", arrows: &[], cycles: &[] } }; MOST_EXCEPTIONS + 1],
        ..TABLE
    };
    let expected = format!("the table has {} exceptions, {MOST_EXCEPTIONS} are allowed", MOST_EXCEPTIONS + 1);
    assert_eq!(faults_with(&many, &PLANNER), [expected]);
}

#[test]
fn the_rooms_of_the_table_are_in_order_and_use_only_those_before_them() {
    for (name, rooms) in ROOMS {
        for (index, room) in rooms.iter().enumerate() {
            let before = |used: &&str| rooms[..index].iter().any(|room| room.name == *used);
            assert!(room.uses.iter().all(before), "{name}::{}", room.name);
        }
    }
}
