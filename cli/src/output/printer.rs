//! The only way to the terminal: data to stdout, everything else to stderr.
//!
//! stdout is buffered and flushed by [`Printer::flush`] at the end of the verb. Used by one
//! thread.

use std::cell::RefCell;
use std::io::{self, BufRead, BufWriter, IsTerminal, Stdout, Write};

use computerd_api::v1::{ErrorBody, ErrorKind, OperationReference, PathText};
use serde::Serialize;

use super::color::{Palette, Role};
use super::json::envelope;
use super::sanitize::{sanitize, sanitize_text};
use crate::args::GlobalArgs;
use crate::env::Environment;
use crate::error::{CommandError, Result, general_hint};

/// Writes results and messages.
#[derive(Debug)]
pub struct Printer {
    stdout: RefCell<BufWriter<Stdout>>,
    /// Colours of stdout.
    pub palette: Palette,
    error_palette: Palette,
    is_stdout_terminal: bool,
    is_stderr_terminal: bool,
    is_quiet: bool,
    is_json: bool,
    can_progress: bool,
}

impl Printer {
    /// A printer for the streams of this process.
    pub fn new(arguments: &GlobalArgs, environment: &Environment) -> Self {
        let is_stdout_terminal = io::stdout().is_terminal();
        let is_stderr_terminal = io::stderr().is_terminal();
        Self {
            stdout: RefCell::new(BufWriter::with_capacity(1 << 16, io::stdout())),
            palette: Palette::choose(arguments.color, environment, is_stdout_terminal),
            error_palette: Palette::choose(arguments.color, environment, is_stderr_terminal),
            is_stdout_terminal,
            is_stderr_terminal,
            is_quiet: arguments.quiet,
            is_json: arguments.json,
            can_progress: is_stderr_terminal
                && !arguments.quiet
                && !arguments.json
                && !environment.no_progress
                && !environment.is_dumb_terminal,
        }
    }

    /// Whether results are JSON.
    pub fn is_json(&self) -> bool {
        self.is_json
    }

    /// Whether only results and errors are wanted.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Whether a progress bar may be drawn on stderr.
    pub fn can_progress(&self) -> bool {
        self.can_progress
    }

    /// Whether somebody can be asked.
    pub fn can_ask(&self) -> bool {
        io::stdin().is_terminal() && self.is_stderr_terminal && !self.is_json
    }

    /// Writes bytes to stdout.
    pub fn write(&self, bytes: impl AsRef<[u8]>) -> Result<()> {
        let written = self.stdout.borrow_mut().write_all(bytes.as_ref());
        written.map_err(|error| CommandError::output(&error))
    }

    /// Writes a line to stdout.
    pub fn line(&self, text: impl AsRef<[u8]>) -> Result<()> {
        self.write(text)?;
        self.write("\n")
    }

    /// Writes what is buffered.
    pub fn flush(&self) -> Result<()> {
        let flushed = self.stdout.borrow_mut().flush();
        flushed.map_err(|error| CommandError::output(&error))
    }

    /// Writes a JSON object with its envelope to stdout, as one line.
    pub fn json(&self, kind: &str, value: &impl Serialize) -> Result<()> {
        let value = envelope(kind, value).map_err(|error| {
            CommandError::new(ErrorKind::Internal, format!("encode the output: {error}"))
        })?;
        self.line(value.to_string())
    }

    /// A path for stdout: harmless on a terminal, exact elsewhere.
    pub fn path(&self, path: &PathText) -> Vec<u8> {
        if self.is_stdout_terminal {
            sanitize(path.as_bytes()).into_bytes()
        } else {
            path.as_bytes().to_vec()
        }
    }

    /// Content of files for stdout: harmless on a terminal, exact elsewhere.
    pub fn content(&self, bytes: &[u8]) -> Vec<u8> {
        if self.is_stdout_terminal {
            sanitize_text(bytes).into_bytes()
        } else {
            bytes.to_vec()
        }
    }

    /// Text in the style of `role` for stdout.
    pub fn paint(&self, role: Role, text: &str) -> String {
        self.palette.paint(role, text)
    }

    /// A message on stderr, unless quiet.
    pub fn note(&self, text: impl AsRef<str>) {
        if !self.is_quiet {
            self.message(text.as_ref());
        }
    }

    /// A warning on stderr.
    pub fn warn(&self, text: impl AsRef<str>) {
        let label = self.error_palette.paint(Role::Warning, "warning:");
        self.message(&format!("{label} {}", text.as_ref()));
    }

    /// The operation of a change and how to take it back, on stderr unless quiet.
    pub fn operation(&self, operation: Option<&OperationReference>) {
        if let (Some(operation), false) = (operation, self.is_json) {
            let undo = self.error_palette.paint(Role::Hint, &operation.undo);
            self.note(format!(
                "operation {}; take it back with: {undo}",
                operation.id
            ));
        }
    }

    /// An error with its hint, on stderr.
    pub fn error(&self, error: &CommandError) {
        let mut body = match error {
            CommandError::Failed(body) => body.clone(),
            CommandError::Usage { message, hint } => {
                ErrorBody::new(ErrorKind::InvalidInput, message).with_hint(hint)
            }
            CommandError::Declined => {
                self.message("nothing was changed");
                return;
            }
            CommandError::BrokenPipe => return,
        };
        let hint = body.hint.take();
        let hint = hint.unwrap_or_else(|| general_hint(body.kind).to_owned());
        if self.is_json {
            if let Ok(value) = envelope("error", &body.with_hint(hint)) {
                self.message(&value.to_string());
            }
            return;
        }
        let message = sanitize_text(body.message.as_bytes());
        let label = self.error_palette.paint(Role::Error, "error:");
        self.message(&format!("{label} {message}"));
        let label = self.error_palette.paint(Role::Hint, "hint:");
        self.message(&format!("\n{label} {}", sanitize_text(hint.as_bytes())));
    }

    /// Asks a question on stderr; `true` only after an explicit yes.
    pub fn ask(&self, question: &str) -> Result<bool> {
        let mut stderr = io::stderr().lock();
        let asked = write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush());
        asked.map_err(|error| CommandError::output(&error))?;
        let mut answer = String::new();
        io::stdin()
            .lock()
            .read_line(&mut answer)
            .map_err(|error| CommandError::io("read the answer", &error))?;
        Ok(matches!(
            answer.trim().to_ascii_lowercase().as_str(),
            "y" | "yes"
        ))
    }

    /// Bytes to stderr, for plans that are shown before a question.
    pub fn message_bytes(&self, bytes: &[u8]) {
        // Nothing can be done about a stderr that is gone.
        let _ = io::stderr().lock().write_all(bytes);
    }

    /// Colours of stderr.
    pub fn error_palette(&self) -> Palette {
        self.error_palette
    }

    fn message(&self, text: &str) {
        self.message_bytes(format!("{text}\n").as_bytes());
    }
}
