//! Columns without borders, as kubectl prints them.

use comfy_table::{Attribute, Cell, ContentArrangement, Table, presets};

/// An empty table.
pub(in crate::cli) fn new(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.iter().map(|heading| Cell::new(heading).add_attribute(Attribute::Bold)));
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table
}

/// Its lines.
pub(in crate::cli) fn text(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
