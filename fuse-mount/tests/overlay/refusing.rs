//! A source that fails, dawdles or does something else meanwhile, as a test wants it.

use std::sync::Arc;
use std::time::Duration;

use workspace_store::source::WorkspaceSource;

/// A source that refuses commits when told to.
#[derive(Debug)]
pub struct Refusing {
    inner: Arc<dyn WorkspaceSource>,
    pub refuses: std::sync::atomic::AtomicBool,
    pub failures: std::sync::atomic::AtomicU64,
    /// The next submission takes until its thread's priority is raised.
    pub is_slow: std::sync::atomic::AtomicBool,
    pub was_raised: std::sync::atomic::AtomicBool,
    /// Nice values of the submissions' threads when they began.
    pub nice: std::sync::Mutex<Vec<i32>>,
    /// Called once, when the next commit is stored.
    pub meanwhile: std::sync::Mutex<Option<Meanwhile>>,
}

pub struct Meanwhile(pub Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Refusing {
    pub fn new(inner: Arc<dyn WorkspaceSource>) -> Self {
        Self {
            inner,
            refuses: false.into(),
            failures: 0.into(),
            is_slow: false.into(),
            was_raised: false.into(),
            nice: Default::default(),
            meanwhile: None.into(),
        }
    }
}

impl WorkspaceSource for Refusing {
    fn head(&self) -> workspace_store::Result<workspace_store::source::Head> {
        self.inner.head()
    }
    fn overlay(&self) -> workspace_store::Result<Option<workspace_store::source::OverlayState>> {
        self.inner.overlay()
    }
    fn directory(
        &self,
        tree: workspace_store::TreeId,
    ) -> workspace_store::Result<
        Vec<(
            workspace_store::object::Name,
            workspace_store::object::TreeEntry,
        )>,
    > {
        self.inner.directory(tree)
    }
    fn link(
        &self,
        links: workspace_store::TreeId,
        id: workspace_store::object::LinkId,
    ) -> workspace_store::Result<Option<workspace_store::object::LinkedInode>> {
        self.inner.link(links, id)
    }
    fn read_blob(
        &self,
        blob: workspace_store::BlobId,
        offset: u64,
        buffer: &mut [u8],
    ) -> workspace_store::Result<usize> {
        self.inner.read_blob(blob, offset, buffer)
    }
    fn inode_records(
        &self,
        directory: u64,
    ) -> workspace_store::Result<
        Vec<(
            workspace_store::object::Name,
            workspace_store::source::InodeRecord,
        )>,
    > {
        self.inner.inode_records(directory)
    }
    fn inode_location(
        &self,
        number: u64,
    ) -> workspace_store::Result<Option<(u64, workspace_store::object::Name)>> {
        self.inner.inode_location(number)
    }
    fn submit(
        &self,
        submission: workspace_store::source::Submission,
    ) -> workspace_store::Result<workspace_store::source::Submitted> {
        use std::sync::atomic::Ordering::Relaxed;
        let nice = nice_value();
        self.nice.lock().unwrap().push(nice);
        if self.is_slow.swap(false, Relaxed) {
            wait_until("raised priority", || nice_value() < nice);
            self.was_raised.store(true, Relaxed);
        }
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(Meanwhile(act)) = meanwhile {
            act();
        }
        if self.refuses.load(Relaxed) {
            self.failures.fetch_add(1, Relaxed);
            return Err(workspace_store::StoreError::new(
                workspace_store::ErrorKind::NoSpace,
                "store objects: the test says no",
            ));
        }
        self.inner.submit(submission)
    }
}

/// Of the calling thread.
pub fn nice_value() -> i32 {
    // SAFETY: a system call without pointers.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
