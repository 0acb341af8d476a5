//! Tables without borders, columns two spaces apart.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A table in the making.
#[derive(Debug)]
pub struct TextTable {
    table: Table,
}

impl TextTable {
    /// A table with the titles of its columns.
    pub fn new(titles: &[&str]) -> Self {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(titles.iter().copied());
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Self { table }
    }

    /// Aligns the column `index` to the right.
    #[must_use]
    pub fn right(mut self, index: usize) -> Self {
        if let Some(column) = self.table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        self
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.table.add_row(cells);
    }

    /// The lines, without spaces at their ends.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for line in self.table.lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A size for people: three digits and a binary unit.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value < 99.95);
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new(&["NAME", "SIZE"]).right(1);
        table.row(["demo".into(), "7".into()]);
        table.row(["longer-name".into(), "1234".into()]);
        assert_eq!(
            table.render(),
            "NAME         SIZE\ndemo            7\nlonger-name  1234\n"
        );
    }

    #[test]
    fn sizes_have_binary_units() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (200 * 1024, "200 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(format_bytes(bytes), text);
        }
    }
}
