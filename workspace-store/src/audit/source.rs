//! From where something was done: an audit entry's source.
//!
//! The text in the log is the surface alone (`api`, `mount`, …) or a JSON object with more. What a
//! thread does for somebody gets that one's source by [`with_source`]; the database's own thread
//! takes it over with each job.

use std::cell::RefCell;

use serde::{Deserialize, Serialize};

use crate::actor::Actor;

/// See the module's description.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditSource {
    /// Through which surface: `api`, `mount`, `docker`, ….
    pub surface: String,
    /// Name of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Where the mount is that it came through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// Id of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Process id on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
}

impl AuditSource {
    /// A surface of which no more is known.
    pub fn of_surface(surface: impl Into<String>) -> Self {
        Self {
            surface: surface.into(),
            ..Self::default()
        }
    }

    /// What an actor did through a surface of this host.
    pub fn of_actor(surface: impl Into<String>, actor: &Actor) -> Self {
        let process = actor.process.as_ref();
        Self {
            surface: surface.into(),
            host: host_name(),
            mount: None,
            container: actor.container.clone(),
            pid: process.map(|process| process.pid),
            command: process.map_or_else(Vec::new, |process| process.command.clone()),
            run: actor.run.clone(),
            step: actor.step,
        }
    }

    /// The text that stands in the log.
    pub fn to_text(&self) -> String {
        if *self == Self::of_surface(self.surface.clone()) {
            return self.surface.clone();
        }
        serde_json::to_string(self).unwrap_or_else(|_| self.surface.clone())
    }

    /// What a text in the log says.
    pub fn of_text(text: &str) -> Self {
        let parsed = text.starts_with('{').then(|| serde_json::from_str(text));
        match parsed {
            Some(Ok(source)) => source,
            _ => Self::of_surface(text),
        }
    }
}

/// This host.
fn host_name() -> Option<String> {
    nix::unistd::gethostname().ok()?.into_string().ok()
}

thread_local! {
    static CURRENT: RefCell<Option<AuditSource>> = const { RefCell::new(None) };
}

/// Does something on behalf of a source: operations and audit entries that are made by `work` in
/// this thread carry it.
pub fn with_source<T>(source: Option<AuditSource>, work: impl FnOnce() -> T) -> T {
    /// Puts the earlier one back, also after a panic.
    struct Restore(Option<AuditSource>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _restore = Restore(CURRENT.replace(source));
    work()
}

/// The source of what this thread does.
pub(crate) fn current() -> Option<AuditSource> {
    CURRENT.with_borrow(Clone::clone)
}

/// The text for an entry by `surface`: with what is known of who asked.
pub(crate) fn text_for(surface: &str) -> String {
    match current() {
        // A text that says more than the surface stays as it is.
        Some(source) if !surface.starts_with('{') => {
            let surface = if surface == "api" {
                &source.surface
            } else {
                surface
            };
            AuditSource {
                surface: surface.to_owned(),
                ..source.clone()
            }
            .to_text()
        }
        _ => surface.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_and_a_surface_alone_is_a_word() {
        let word = AuditSource::of_surface("api");
        assert_eq!(word.to_text(), "api");
        let more = AuditSource {
            pid: Some(7),
            run: Some("r".to_owned()),
            ..word.clone()
        };
        assert_eq!(more.to_text(), r#"{"surface":"api","pid":7,"run":"r"}"#);
        for source in [word, more] {
            assert_eq!(AuditSource::of_text(&source.to_text()), source);
        }
    }

    #[test]
    fn a_thread_has_a_source_for_as_long_as_the_work_lasts() {
        let source = AuditSource {
            pid: Some(7),
            ..AuditSource::of_surface("api")
        };
        assert_eq!(text_for("api"), "api");
        let texts = with_source(Some(source), || (text_for("api"), text_for("mount")));
        assert_eq!(texts.0, r#"{"surface":"api","pid":7}"#);
        assert_eq!(texts.1, r#"{"surface":"mount","pid":7}"#);
        assert_eq!(text_for("api"), "api");
    }
}
