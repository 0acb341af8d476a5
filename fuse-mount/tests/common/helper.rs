//! The flush helper of tests: the test program itself, started anew.

use fuse_mount::fuse::{FlushHelper, serve_flush_helper};

/// This test program as the helper process.
pub fn flush_helper() -> FlushHelper {
    let program = std::env::current_exe().unwrap();
    let script = r#"exec 3>&1 1>/dev/null; KURA_TEST_HELPER=1 exec "$0" "$@""#;
    let mut words = vec!["-c".into(), script.into(), program.into_os_string()];
    words.extend(
        [
            "--exact",
            "helper::flush_helper_process",
            "--ignored",
            "--nocapture",
            "-q",
        ]
        .map(Into::into),
    );
    FlushHelper::new("sh", words)
}

/// Not a test: the body of the helper process. The test harness writes to standard output, so
/// the answers travel over descriptor 3, which becomes standard output here.
#[test]
#[ignore = "the helper process of other tests"]
fn flush_helper_process() {
    if std::env::var_os("KURA_TEST_HELPER").is_none() {
        return;
    }
    // SAFETY: both are descriptors of this helper process.
    assert_eq!(unsafe { libc::dup2(3, 1) }, 1);
    serve_flush_helper(std::io::stdin(), std::io::stdout()).unwrap();
    std::process::exit(0);
}
