//! Plots with logarithmic axes, as SVG.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

const SIZE: (u32, u32) = (760, 420);
const COLORS: [RGBColor; 7] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xff, 0x7f, 0x0e),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xd6, 0x27, 0x28),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0x8c, 0x56, 0x4b),
    RGBColor(0x17, 0xbe, 0xcf),
];

/// One line of a plot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Line {
    pub(crate) fn new(name: &str, x: &[f64], y: &[f64]) -> Self {
        Self {
            name: name.to_owned(),
            points: x.iter().copied().zip(y.iter().copied()).collect(),
        }
    }
}

/// A plot; `name` is that of its file.
#[derive(Debug, Clone)]
pub(crate) struct Plot {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// Draws it into `directory`.
pub(crate) fn draw(plot: &Plot, directory: &Path) -> Result<()> {
    let path = directory.join(format!("{}.svg", plot.name));
    let points = || plot.lines.iter().flat_map(|line| line.points.iter());
    let range = |pick: fn(&(f64, f64)) -> f64| {
        let least = points().map(pick).fold(f64::MAX, f64::min);
        let greatest = points().map(pick).fold(f64::MIN_POSITIVE, f64::max);
        // A line that does not grow shall look like one.
        (least.max(1e-3) / 2.0, greatest * 3.0)
    };
    let (x, y) = (range(|point| point.0), range(|point| point.1));
    let failed = |error: &dyn std::fmt::Display| anyhow!("draw {}: {error}", path.display());
    let area = SVGBackend::new(&path, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(|error| failed(&error))?;
    let mut chart = ChartBuilder::on(&area)
        .caption(plot.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((x.0..x.1).log_scale(), (y.0..y.1).log_scale())
        .map_err(|error| failed(&error))?;
    chart
        .configure_mesh()
        .x_desc(plot.x)
        .y_desc(plot.y)
        .light_line_style(WHITE)
        .draw()
        .map_err(|error| failed(&error))?;
    for (line, color) in plot.lines.iter().zip(COLORS.iter().cycle()) {
        let style = color.stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(3))
            .map_err(|error| failed(&error))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.2))
        .draw()
        .map_err(|error| failed(&error))?;
    area.present().map_err(|error| failed(&error))?;
    Ok(())
}
