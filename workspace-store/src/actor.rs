//! Who changed something: principal, process, container, run and step, as far as it is known.
//!
//! Encoding, version 1 (in lists of changes and in the journal of a mount): principal, a byte of
//! flags for what follows, process (pid, start, name, words of the command line, ancestors),
//! container, run, step. Texts are what people are shown: bytes that are not UTF-8 were replaced.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::object::codec::{Input, write_bytes, write_number};

const VERSION: u8 = 1;
const HAS_PROCESS: u8 = 1;
const HAS_CONTAINER: u8 = 2;
const HAS_RUN: u8 = 4;
const HAS_STEP: u8 = 8;

/// Who changed something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Actor {
    /// Principal of the mount's session, or who asked.
    pub principal: String,
    /// The process; `None` if nobody knows.
    pub process: Option<Process>,
    /// Id of the container that the process was in.
    pub container: Option<String>,
    /// The execution it belonged to.
    pub run: Option<String>,
    /// The numbered part of that execution.
    pub step: Option<u64>,
}

/// A process of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// Its id in the daemon's pid namespace.
    pub pid: u32,
    /// When it began, in milliseconds since the epoch (to about 10); 0 if unknown.
    pub started_ms: u64,
    /// Name of the program, as the kernel keeps it (15 bytes); empty if unknown.
    pub name: String,
    /// Command line; empty if unknown.
    pub command: Vec<String>,
    /// Its ancestors, nearest first: pid and name.
    pub ancestors: Vec<(u32, String)>,
}

impl Process {
    /// The command line as one text for people; the program's name if it isn't known.
    pub fn command_text(&self) -> String {
        if !self.command.is_empty() {
            self.command.join(" ")
        } else if !self.name.is_empty() {
            self.name.clone()
        } else {
            format!("unknown process {}", self.pid)
        }
    }
}

impl Actor {
    /// Somebody of whom only the principal is known.
    pub fn of_principal(principal: impl Into<String>) -> Self {
        Self {
            principal: principal.into(),
            ..Self::default()
        }
    }

    /// Its encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut output = vec![VERSION];
        self.encode(&mut output);
        output
    }

    /// Reads [`Actor::to_bytes`].
    ///
    /// # Errors
    /// `Corrupt` if it is malformed, `Incompatible` if it is newer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut input = Input::open(bytes, "description of a process")?;
        let actor = Self::decode(&mut input)?;
        input.finish()?;
        Ok(actor)
    }

    pub(crate) fn encode(&self, output: &mut Vec<u8>) {
        let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
        write_bytes(output, self.principal.as_bytes());
        output.push(
            flag(self.process.is_some(), HAS_PROCESS)
                | flag(self.container.is_some(), HAS_CONTAINER)
                | flag(self.run.is_some(), HAS_RUN)
                | flag(self.step.is_some(), HAS_STEP),
        );
        if let Some(process) = &self.process {
            write_number(output, u64::from(process.pid));
            write_number(output, process.started_ms);
            write_bytes(output, process.name.as_bytes());
            write_number(output, process.command.len() as u64);
            for word in &process.command {
                write_bytes(output, word.as_bytes());
            }
            write_number(output, process.ancestors.len() as u64);
            for (pid, name) in &process.ancestors {
                write_number(output, u64::from(*pid));
                write_bytes(output, name.as_bytes());
            }
        }
        for text in [&self.container, &self.run].into_iter().flatten() {
            write_bytes(output, text.as_bytes());
        }
        if let Some(step) = self.step {
            write_number(output, step);
        }
    }

    pub(crate) fn decode(input: &mut Input<'_>) -> Result<Self> {
        let principal = text(input)?;
        let flags = input.byte()?;
        if flags & !(HAS_PROCESS | HAS_CONTAINER | HAS_RUN | HAS_STEP) != 0 {
            return Err(input.error("unknown parts of an actor"));
        }
        let process = if flags & HAS_PROCESS == 0 {
            None
        } else {
            Some(Process {
                pid: input.number_u32()?,
                started_ms: input.number()?,
                name: text(input)?,
                command: {
                    let count = input.count()?;
                    (0..count).map(|_| text(input)).collect::<Result<_>>()?
                },
                ancestors: {
                    let count = input.count()?;
                    (0..count)
                        .map(|_| Ok((input.number_u32()?, text(input)?)))
                        .collect::<Result<_>>()?
                },
            })
        };
        let mut optional = |flag| (flags & flag != 0).then(|| text(input)).transpose();
        Ok(Self {
            principal,
            process,
            container: optional(HAS_CONTAINER)?,
            run: optional(HAS_RUN)?,
            step: (flags & HAS_STEP != 0)
                .then(|| input.number())
                .transpose()?,
        })
    }
}

fn text(input: &mut Input<'_>) -> Result<String> {
    let bytes = input.bytes(usize::MAX)?;
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(input.error("a text is not UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Actor {
        Actor {
            principal: "ada".to_owned(),
            process: Some(Process {
                pid: 4711,
                started_ms: 1_700_000_000_000,
                name: "sed".to_owned(),
                command: vec!["sed".to_owned(), "-i".to_owned(), "s/a/b/".to_owned()],
                ancestors: vec![(4000, "bash".to_owned())],
            }),
            container: Some("c0ffee".to_owned()),
            run: Some("r1".to_owned()),
            step: Some(3),
        }
    }

    #[test]
    fn the_encoding_is_pinned_and_comes_back() {
        let hex = crate::id::to_hex(&full().to_bytes());
        assert_eq!(
            hex,
            concat!(
                "01036164610fe72480d095ffbc31037365640303736564022d6906732f612f622f01a0",
                "1f04626173680663306666656502723103"
            )
        );
        for actor in [full(), Actor::default(), Actor::of_principal("bob")] {
            assert_eq!(Actor::from_bytes(&actor.to_bytes()).unwrap(), actor);
        }
        let bytes = full().to_bytes();
        for end in 0..bytes.len() {
            assert!(Actor::from_bytes(&bytes[..end]).is_err());
        }
    }
}
