//! The log: `<store>/log/computerd.log`, and stderr with `--foreground`. Never contents of files.
//!
//! `KURA_LOG` filters (`debug`, `computerd=trace,info` …). The file is renamed to `.1` at a start
//! when it has grown beyond [`MAX_LOG_BYTES`].

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// A log that is longer is put aside at the next start.
pub const MAX_LOG_BYTES: u64 = 16 << 20;

/// Begins to log for this process.
pub fn start(path: &Path, is_foreground: bool) {
    let filter = EnvFilter::try_from_env("KURA_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(LogWriter {
            path: path.to_owned(),
            is_foreground,
        })
        .finish();
    // A second call in one process (tests) keeps the first subscriber.
    let _ = tracing::subscriber::set_global_default(subscriber);
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, "panic");
    }));
}

/// Puts a log aside that has grown too long.
pub fn rotate(path: &Path) {
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > MAX_LOG_BYTES) {
        let mut old = path.as_os_str().to_owned();
        old.push(".1");
        if let Err(error) = std::fs::rename(path, &old) {
            tracing::warn!(%error, "put the log aside");
        }
    }
}

struct LogWriter {
    path: PathBuf,
    is_foreground: bool,
}

/// Where one line goes. The file is opened for each line: the keeper lives for months, and other
/// processes rename the file under it.
struct Line {
    file: Option<File>,
    is_foreground: bool,
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line {
            file: OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&self.path)
                .ok(),
            is_foreground: self.is_foreground,
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_foreground {
            let _ = io::stderr().write_all(bytes);
        }
        if let Some(file) = &mut self.file {
            file.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
