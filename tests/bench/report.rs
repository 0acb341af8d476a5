//! The page with the figures, and the figures of groups that were measured before.
//!
//! `benchmarks/figures.json` holds what the page is made of, so that one group can be measured
//! anew; `benchmarks/notes.md` is written by hand and ends the page.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::machine;
use crate::plot::{self, Plot};

/// Order of the groups on the page.
const GROUPS: [&str; 5] = ["filesystem", "commit", "growth", "history", "large-file"];

/// One table with what belongs to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Section {
    title: String,
    texts: Vec<String>,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    plots: Vec<(String, String)>,
    machine: String,
    date: String,
    #[serde(skip)]
    drawn: Vec<Plot>,
}

impl Section {
    pub(crate) fn new(title: &str, text: &str, columns: &[&str]) -> Self {
        let load = machine::load();
        Self {
            title: title.to_owned(),
            texts: [text.to_owned()]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            rows: Vec::new(),
            plots: Vec::new(),
            machine: format!("{} Load at the end: {load:.1}.", machine::describe()),
            date: today(),
            drawn: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.to_vec());
    }

    pub(crate) fn row_of(&mut self, name: &str, cells: impl Iterator<Item = String>) {
        self.rows
            .push(std::iter::once(name.to_owned()).chain(cells).collect());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.texts.push(text.to_owned());
    }

    pub(crate) fn plot(&mut self, plot: Plot) {
        self.plots
            .push((plot.name.to_owned(), plot.title.to_owned()));
        self.drawn.push(plot);
    }

    fn markdown(&self) -> String {
        let mut page = format!("## {}\n{}\n\n", self.title, self.texts.join("\n\n"));
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        page.push_str(&line(&self.columns));
        page.push_str(&line(&vec!["---".to_owned(); self.columns.len()]));
        for row in &self.rows {
            page.push_str(&line(row));
        }
        for (name, title) in &self.plots {
            page.push_str(&format!("\n![{title}](benchmarks/{name}.svg)\n"));
        }
        page.push_str(&format!("\nMeasured {}: {}\n", self.date, self.machine));
        page
    }
}

/// The page.
pub(crate) struct Report {
    path: PathBuf,
    directory: PathBuf,
    sections: BTreeMap<String, Section>,
}

impl Report {
    /// Takes over what was measured before.
    pub(crate) fn open(out: &Path) -> Result<Self> {
        let directory = out.join("benchmarks");
        fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
        let figures = directory.join("figures.json");
        let sections = if figures.exists() {
            serde_json::from_slice(&fs::read(&figures)?)
                .with_context(|| format!("read {}", figures.display()))?
        } else {
            BTreeMap::new()
        };
        Ok(Self {
            path: out.join("benchmarks.md"),
            directory,
            sections,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn set(&mut self, group: &str, section: Section) {
        self.sections.insert(group.to_owned(), section);
    }

    /// Writes page, plots and figures.
    pub(crate) fn write(&self) -> Result<()> {
        let mut page = "<!-- Made by `cargo run --release -p e2e --bin bench`; the notes at its end are \
                        benchmarks/notes.md. -->\n\n# Benchmarks\n\nReal programs on a real disk, release build. \
                        Whatever is compared was measured in turn in the same run; read ratios, not times.\n"
            .to_owned();
        for group in GROUPS {
            if let Some(section) = self.sections.get(group) {
                page.push_str(&format!("\n{}", section.markdown()));
                for plot in &section.drawn {
                    plot::draw(plot, &self.directory)?;
                }
            }
        }
        let notes = self.directory.join("notes.md");
        if notes.exists() {
            page.push_str(&format!("\n{}", fs::read_to_string(&notes)?));
        }
        fs::write(&self.path, page).with_context(|| format!("write {}", self.path.display()))?;
        let figures = serde_json::to_vec_pretty(&self.sections)?;
        fs::write(self.directory.join("figures.json"), figures)?;
        Ok(())
    }
}

pub(crate) fn seconds(time: f64) -> String {
    match time {
        time if time < 0.001 => format!("{:.0} µs", time * 1e6),
        time if time < 1.0 => format!("{:.1} ms", time * 1e3),
        time => format!("{time:.2} s"),
    }
}

pub(crate) fn milliseconds(time: f64) -> String {
    match time * 1000.0 {
        time if time < 10.0 => format!("{time:.2}"),
        time if time < 100.0 => format!("{time:.1}"),
        time => format!("{time:.0}"),
    }
}

pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.0} KiB", count as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.0} MiB", count as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", count as f64 / 1_073_741_824.0),
    }
}

/// A number with its thousands set off.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn today() -> String {
    let run = e2e::run(std::process::Command::new("date").args(["-u", "+%Y-%m-%d"]));
    run.stdout.trim().to_owned()
}
