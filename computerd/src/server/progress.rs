//! Progress of long work as JSON lines.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use computerd_api::v1::{Event, Progress as Report};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::mpsc::Sender;
use workspace_store::progress::Progress;

/// Least time between two lines.
const INTERVAL: Duration = Duration::from_millis(50);

/// Sends progress to the client. Lines that the client is too slow for are left out; when it is
/// gone the work is cancelled.
#[derive(Debug)]
pub struct ProgressLines {
    sender: Sender<Bytes>,
    state: Mutex<(Report, Instant)>,
}

impl ProgressLines {
    /// Lines to this client.
    pub fn new(sender: Sender<Bytes>) -> Self {
        Self {
            sender,
            state: Mutex::new((Report::default(), Instant::now())),
        }
    }

    /// Begins another part of the work.
    pub fn phase(&self, name: &str) {
        let mut state = self.state.lock();
        state.0 = Report {
            phase: name.to_owned(),
            ..Report::default()
        };
        state.1 = Instant::now();
        self.send(&state.0);
    }

    /// Changes the report and sends it if it is time.
    pub fn update(&self, change: impl FnOnce(&mut Report)) {
        let mut state = self.state.lock();
        change(&mut state.0);
        if state.1.elapsed() >= INTERVAL {
            state.1 = Instant::now();
            self.send(&state.0);
        }
    }

    fn send(&self, report: &Report) {
        let event: Event<()> = Event::Progress(report.clone());
        let _ = self.sender.try_send(line(&event));
    }
}

impl Progress for ProgressLines {
    fn entry(&self, path: &[u8], bytes: u64) {
        self.update(|report| {
            report.entries_done += 1;
            report.bytes_done += bytes;
            report.path = Some(path.into());
        });
    }

    fn is_cancelled(&self) -> bool {
        self.sender.is_closed()
    }
}

/// One line of a streamed answer.
pub fn line<T: Serialize>(event: &Event<T>) -> Bytes {
    let mut text = serde_json::to_vec(event).unwrap_or_else(|error| {
        tracing::error!(%error, "encode a line of an answer");
        br#"{"type":"error","error":{"kind":"internal","message":"encode the answer"}}"#.to_vec()
    });
    text.push(b'\n');
    text.into()
}
