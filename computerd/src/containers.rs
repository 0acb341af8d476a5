//! What the container engine knows of a container: the run that its labels name.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use fuse_mount::process::RunPlace;
use workspace_store::runs::is_run_id;

/// Where the engine listens.
const SOCKET: &str = "/run/docker.sock";
/// The engine may take so long for each part of an answer.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Longest description of a container.
const ANSWER_MAX_BYTES: u64 = 4 << 20;
/// Label with the id of a run.
const RUN_LABEL: &str = "kura.run";
/// Label with the number of a step.
const STEP_LABEL: &str = "kura.step";

/// Run and step by the labels of a container; `None` where there is no engine, too.
pub fn run_of_container(id: &str) -> Option<RunPlace> {
    let mut stream = UnixStream::connect(SOCKET).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(TIMEOUT)).ok()?;
    // With HTTP/1.0 the answer ends with the connection and comes in one piece.
    let request = format!("GET /containers/{id}/json HTTP/1.0\r\nHost: docker\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream
        .take(ANSWER_MAX_BYTES)
        .read_to_end(&mut answer)
        .ok()?;
    let body = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    run_of_description(&answer[body + 4..])
}

fn run_of_description(body: &[u8]) -> Option<RunPlace> {
    let description: serde_json::Value = serde_json::from_slice(body).ok()?;
    let labels = description.get("Config")?.get("Labels")?;
    let run = labels
        .get(RUN_LABEL)?
        .as_str()
        .filter(|run| is_run_id(run))?;
    let step = labels.get(STEP_LABEL).and_then(|step| step.as_str());
    Some(RunPlace {
        run: run.to_owned(),
        step: step.and_then(|step| step.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_name_run_and_step() {
        let place = |text: &str| run_of_description(text.as_bytes());
        let found = place(r#"{"Config":{"Labels":{"kura.run":"r1","kura.step":"4"}}}"#).unwrap();
        assert_eq!((found.run.as_str(), found.step), ("r1", Some(4)));
        let found = place(r#"{"Config":{"Labels":{"kura.run":"r1"}}}"#).unwrap();
        assert_eq!(found.step, None);
        assert_eq!(place(r#"{"Config":{"Labels":{"kura.run":"../x"}}}"#), None);
        assert_eq!(place(r#"{"message":"no such container"}"#), None);
    }
}
