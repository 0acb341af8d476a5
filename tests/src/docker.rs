//! Containers of the tests: local images only, no network.

use std::ffi::OsStr;
use std::process::Command;

use crate::process::{Run, run};

/// Runs `docker` with the given arguments.
pub fn docker<I, S>(arguments: I) -> Run
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    run(Command::new("docker").args(arguments))
}

/// Fails the test, with the command that helps, unless engine and image are there.
#[track_caller]
pub fn require_docker(image: &str) {
    let run = docker(["image", "inspect", image]);
    assert_eq!(
        run.code, 0,
        "the image {image} or the engine is not there; run tests/support/prepare.sh\n{run}"
    );
}

/// A container that runs until it is dropped.
#[derive(Debug)]
pub struct Container {
    id: String,
}

impl Container {
    /// Starts a container that waits; `arguments` go before the image (`-v`, `-u` …).
    #[track_caller]
    pub fn start<S: AsRef<OsStr>>(image: &str, arguments: &[S]) -> Self {
        require_docker(image);
        let mut command = Command::new("docker");
        command.args(["run", "-d", "--rm", "--network", "none"]);
        let run =
            run(command
                .args(arguments)
                .args([image, "sh", "-c", "while :; do sleep 1000; done"]))
            .ok();
        Self {
            id: run.last_line().to_owned(),
        }
    }

    /// Id of the container.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Runs a shell script in the container.
    pub fn shell(&self, script: &str) -> Run {
        docker(["exec", &self.id, "sh", "-euc", script])
    }

    /// Runs a shell script in the container, which must succeed, and gives its output.
    #[track_caller]
    pub fn ok(&self, script: &str) -> String {
        self.shell(script).ok().stdout
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = docker(["rm", "-f", &self.id]);
    }
}
