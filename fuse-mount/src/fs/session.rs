//! A session's own way into the filesystem: its principal may do what its policy allows, and what
//! it changes is told to the other sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use workspace_store::object::Timestamp;
use workspace_store::policy::{Access, Policy};

use super::filesystem::Filesystem;
use super::inode::ROOT;
use super::request::{
    Caller, Changed, Errno, Failure, HeldAnswer, KernelSession, Mode, Notification, Request,
    Response,
};
use super::state::State;
use super::told::{content, entry, without_repeats};
use super::view::{OnDenial, View};

/// The handler of one kernel connection.
#[derive(Debug)]
pub struct FilesystemSession {
    filesystem: Arc<Filesystem>,
    view: Arc<View>,
    /// Who does what is done through it.
    principal: u32,
    /// Its number among the filesystem's sessions; 0 while it is none.
    number: AtomicU64,
}

impl FilesystemSession {
    /// A session that may do everything.
    pub fn new(filesystem: Arc<Filesystem>) -> Arc<Self> {
        let own = filesystem.options.author.clone();
        Self::with_policy(filesystem, &own, Policy::unrestricted(), None)
    }

    /// A session of a principal that may do what a policy allows. Its connection must write through
    /// and send opens ([`SessionOptions::shared`](crate::fuse::SessionOptions::shared)), if the policy, or
    /// one that comes later, restricts anything.
    pub fn with_policy(
        filesystem: Arc<Filesystem>,
        principal: &str,
        policy: Policy,
        on_denial: Option<OnDenial>,
    ) -> Arc<Self> {
        if !policy.is_unrestricted() {
            filesystem.state.lock().has_views = true;
        }
        Arc::new(Self {
            principal: filesystem.principal(principal),
            filesystem,
            view: Arc::new(View::new(policy, on_denial)),
            number: AtomicU64::new(0),
        })
    }

    /// Answers a request of this session's kernel.
    ///
    /// # Errors
    /// As [`Filesystem::handle`].
    pub fn handle(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        mode: Mode,
        changed: &mut Changed,
    ) -> Result<Response, Failure> {
        let caller = &Caller {
            principal: self.principal,
            ..*caller
        };
        self.filesystem
            .handle_in(Some(&self.view), caller, request, mode, changed)
    }

    /// Queues what this session has changed for the kernels of the others.
    pub fn tell_others(&self, changed: &[Notification], answer: &HeldAnswer) {
        let own = self.number.load(Ordering::Acquire);
        self.filesystem.tell_others(own, changed, answer);
    }

    /// Another policy holds from now on, for what is open as well. The kernel is told, soon, of
    /// everything that looks different ([`Session::wait_for_notifications`]).
    /// False if it says the same as the one before.
    ///
    /// [`Session::wait_for_notifications`]: crate::fuse::Session::wait_for_notifications
    pub fn set_policy(&self, policy: Policy) -> bool {
        let mut state = self.filesystem.state.lock();
        if self.view.has(&policy) {
            return false;
        }
        state.has_views = true;
        let new = policy.clone();
        let old = self.view.replace(policy);
        let outdated = state.seen_differently(&old, &new).unwrap_or_else(|errno| {
            tracing::error!(?errno, "can't tell what a change of grants changes");
            vec![content(ROOT)]
        });
        drop(state);
        let own = self.number.load(Ordering::Acquire);
        if let Some(kernel) = self.filesystem.kernel_session(own) {
            for notification in outdated {
                kernel.notify(notification);
            }
        }
        true
    }

    /// Whether the principal may do everything.
    pub fn is_unrestricted(&self) -> bool {
        self.view.is_unrestricted()
    }

    /// When the policy changes by itself.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.view.next_expiry()
    }

    /// The kernel connection is there.
    pub fn attach(&self, session: Arc<dyn KernelSession>) -> u64 {
        let number = self.filesystem.attach(session, Some(self.view.clone()));
        self.number.store(number, Ordering::Release);
        number
    }

    /// The kernel connection is gone.
    pub fn detach(&self, number: u64) {
        self.filesystem.detach_session(number);
    }

    /// Whether the kernel may know an inode.
    pub fn is_known(&self, inode: u64) -> bool {
        self.filesystem.is_known(inode)
    }
}

impl State {
    /// What a kernel must forget when another policy holds.
    fn seen_differently(&self, old: &Policy, new: &Policy) -> Result<Vec<Notification>, Errno> {
        // Attributes of directories tell of what is below.
        let mut outdated = vec![content(ROOT)];
        let mut wanted = vec![(ROOT, old.root(), new.root())];
        while let Some((number, before, after)) = wanted.pop() {
            let Some(directory) = self.inode(number)?.directory() else {
                continue;
            };
            // What isn't loaded no kernel knows.
            let Some(names) = &directory.names else {
                continue;
            };
            for found in names.iter() {
                let (before, after) = (
                    old.step(&before, &found.name),
                    new.step(&after, &found.name),
                );
                let is_directory = self.inode(found.number)?.is_directory();
                let is_shown = |place: &workspace_store::policy::Place| {
                    place.access() > Access::Hidden
                        || (is_directory && place.is_visible_directory())
                };
                if is_shown(&before) != is_shown(&after) {
                    outdated.push(entry(number, &found.name));
                    outdated.push(content(number));
                }
                let is_same = before.access() == after.access();
                let is_linked = self.inode(found.number)?.link_count > 1;
                if !is_same || is_linked {
                    outdated.push(content(found.number));
                }
                if is_linked {
                    outdated.push(entry(number, &found.name));
                }
                if is_directory && !(is_same && before.is_uniform() && after.is_uniform()) {
                    outdated.push(content(found.number));
                    wanted.push((found.number, before, after));
                }
            }
        }
        outdated.extend(self.orphans.iter().copied().map(content));
        without_repeats(&mut outdated);
        Ok(outdated)
    }
}
