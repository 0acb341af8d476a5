//! Progress bars: on stderr, on a terminal, and only for work that takes longer than a moment.

use std::time::{Duration, Instant};

use computerd_api::v1::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::printer::Printer;
use super::sanitize::sanitize;
use super::table::format_bytes;

/// Work that is done sooner shows no bar.
const DELAY: Duration = Duration::from_millis(500);

/// Longest part of a path that is shown.
const MAX_PATH_CHARS: usize = 40;

/// Shows the progress of long work.
#[derive(Debug)]
pub struct ProgressDisplay {
    can_show: bool,
    since: Instant,
    bar: Option<ProgressBar>,
}

impl ProgressDisplay {
    /// A display that begins now.
    pub fn new(printer: &Printer) -> Self {
        Self {
            can_show: printer.can_progress(),
            since: Instant::now(),
            bar: None,
        }
    }

    /// Shows how far the work is.
    pub fn update(&mut self, progress: &Progress) {
        if !self.can_show || self.since.elapsed() < DELAY {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
        });
        let (position, total) = match progress.bytes_total {
            Some(total) => (progress.bytes_done, Some(total)),
            None => (progress.entries_done, progress.entries_total),
        };
        let template = match total {
            Some(total) => {
                bar.set_length(total);
                "{prefix} [{bar:24}] {percent:>3}% {msg} {eta}"
            }
            None => "{spinner} {prefix} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(sanitize(progress.phase.as_bytes()));
        bar.set_message(describe(progress));
        bar.set_position(position);
    }

    /// Removes the bar.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn describe(progress: &Progress) -> String {
    let mut text = format!(
        "{} files, {}",
        progress.entries_done,
        format_bytes(progress.bytes_done)
    );
    if let Some(path) = &progress.path {
        let path = sanitize(path.as_bytes());
        let skip = path.chars().count().saturating_sub(MAX_PATH_CHARS);
        text.push_str(if skip > 0 { " …" } else { " " });
        text.extend(path.chars().skip(skip));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_has_counts_and_the_end_of_the_path() {
        let mut progress = Progress {
            entries_done: 3,
            bytes_done: 2048,
            ..Progress::default()
        };
        assert_eq!(describe(&progress), "3 files, 2.0 KiB");
        progress.path = Some(format!("{}\x1b/end", "d".repeat(60)).into());
        let text = describe(&progress);
        assert!(text.starts_with("3 files, 2.0 KiB …ddd"), "{text}");
        assert!(text.ends_with("\\x1b/end"), "{text}");
    }
}
