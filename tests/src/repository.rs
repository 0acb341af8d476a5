//! Where the repository and the programs under test are.

use std::env;
use std::path::{Path, PathBuf};

/// Root of the source tree.
pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the package lies in the repository")
        .to_path_buf()
}

/// Path of a built program: in `KURA_BIN_DIR`, else in the target directory that holds this test.
pub fn binary(name: &str) -> PathBuf {
    let directory = match env::var_os("KURA_BIN_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => env::current_exe()
            .expect("a running program has a path")
            .ancestors()
            .nth(2)
            .expect("tests run from <target>/<profile>/deps")
            .to_path_buf(),
    };
    let path = directory.join(name);
    assert!(
        path.exists(),
        "{} is not built; run `cargo build` first",
        path.display()
    );
    path
}
