#!/bin/sh
# How Cargo compiles the crates of this workspace for fuzzing (RUSTC_WORKSPACE_WRAPPER): as its profile says, and after that with
# counters of branches that libFuzzer sees, as `cargo fuzz build --sanitizer none` has them; with every check that a test has; and
# no better than it takes to try some thousand inputs a second.
exec "$@" \
    -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
    -Copt-level=1 -Ccodegen-units=16 -Clto=off -Cdebug-assertions=on -Cdebuginfo=line-tables-only -Cstrip=none
