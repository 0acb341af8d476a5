//! Refusing what a session's principal may not do, before a request is carried out.
//!
//! What is hidden does not exist: ENOENT, also for who names its inode by number. What is there
//! but may not be changed is EACCES; so is making a name where the principal may write nothing,
//! whether or not something hidden has it already.

use workspace_store::policy::{Access, Place};

use super::request::{Caller, Changed, Errno, Request, Response};
use super::state::State;
use super::told::content;
use super::view::{Denial, View};

const HIDDEN: Errno = Errno(libc::ENOENT);
const REFUSED: Errno = Errno(libc::EACCES);

impl View {
    /// Checks a request.
    ///
    /// # Errors
    /// The answer to it.
    pub(crate) fn check(
        &self,
        state: &mut State,
        caller: &Caller,
        request: &Request<'_>,
        changed: &mut Changed,
    ) -> Result<(), Errno> {
        if self.is_unrestricted() {
            return Ok(());
        }
        let result = self.check_restricted(state, request);
        if result.is_err_and(|errno| [HIDDEN, REFUSED].contains(&errno)) {
            self.report(state, caller, request);
            if let Request::Write {
                inode,
                from_cache: true,
                ..
            } = request
            {
                // What a mapping wrote must not stay visible in the kernel's cache.
                changed.own.push(content(*inode));
            }
        }
        result
    }

    fn check_restricted(&self, state: &mut State, request: &Request<'_>) -> Result<(), Errno> {
        match *request {
            Request::Lookup { parent, name } => {
                self.need_directory(state, parent)?;
                match self.find(state, parent, name)? {
                    Some(child) => self.need_name(state, parent, name, child),
                    None => Ok(()),
                }
            }
            // A passage has nothing of its own.
            Request::GetXattr { inode, .. } if self.is_passage(state, inode) => {
                Err(Errno(libc::ENODATA))
            }
            Request::GetAttributes { inode }
            | Request::ReadLink { inode }
            | Request::GetXattr { inode, .. }
            | Request::ListXattr { inode, .. }
            | Request::Seek { inode, .. } => self.need(state, inode, Access::Read),
            Request::ReadDirectory { inode, .. } => self.need_directory(state, inode),
            Request::SetAttributes { inode, .. }
            | Request::SetXattr { inode, .. }
            | Request::RemoveXattr { inode, .. } => self.need(state, inode, Access::Write),
            Request::Open { inode, flags, .. } => self.need(state, inode, wanted(flags)),
            // Somebody has it open, so its existence is no news.
            Request::Read { inode, .. } => {
                self.need(state, inode, Access::Read).map_err(|_| REFUSED)
            }
            Request::Write { inode, .. } | Request::Allocate { inode, .. } => {
                self.need(state, inode, Access::Write).map_err(|_| REFUSED)
            }
            Request::CopyRange { from, to, .. } => {
                self.need(state, from, Access::Read).map_err(|_| REFUSED)?;
                self.need(state, to, Access::Write).map_err(|_| REFUSED)
            }
            Request::Create {
                parent,
                name,
                flags,
                ..
            } => {
                self.need_directory(state, parent)?;
                match self.find(state, parent, name)? {
                    Some(child) if self.need_name(state, parent, name, child).is_ok() => {
                        if flags as i32 & libc::O_EXCL != 0 {
                            return Ok(());
                        }
                        self.need(state, child, wanted(flags))
                    }
                    Some(_) => Err(REFUSED),
                    None => self.need_place(state, parent, name),
                }
            }
            Request::MakeNode { parent, name, .. }
            | Request::MakeDirectory { parent, name, .. }
            | Request::SymbolicLink { parent, name, .. } => {
                self.need_directory(state, parent)?;
                self.need_new(state, parent, name)
            }
            Request::TemporaryFile { parent, .. } => self.need(state, parent, Access::Write),
            Request::Link {
                inode,
                new_parent,
                new_name,
            } => {
                self.need(state, inode, Access::Write)?;
                self.need_directory(state, new_parent)?;
                self.need_new(state, new_parent, new_name)
            }
            Request::Unlink { parent, name } | Request::RemoveDirectory { parent, name } => {
                self.need_directory(state, parent)?;
                if let Some(child) = self.find(state, parent, name)? {
                    self.need_name(state, parent, name, child)?;
                    self.need_place(state, parent, name)?;
                }
                Ok(())
            }
            Request::Rename {
                parent,
                name,
                new_parent,
                new_name,
                flags,
            } => self.check_rename(state, (parent, name), (new_parent, new_name), flags),
            Request::Forget { .. }
            | Request::Release { .. }
            | Request::StatFilesystem
            | Request::Sync { .. }
            | Request::SyncDirectory { .. }
            | Request::SyncFilesystem => Ok(()),
        }
    }

    fn check_rename(
        &self,
        state: &mut State,
        (parent, name): (u64, &[u8]),
        (new_parent, new_name): (u64, &[u8]),
        flags: u32,
    ) -> Result<(), Errno> {
        self.need_directory(state, parent)?;
        self.need_directory(state, new_parent)?;
        let moved = self.find(state, parent, name)?.ok_or(HIDDEN)?;
        self.need_name(state, parent, name, moved)?;
        let target = self.find(state, new_parent, new_name)?;
        if let Some(target) = target {
            self.need_name(state, new_parent, new_name, target)
                .map_err(|_| REFUSED)?;
        }
        let from = self.name(state, parent, name)?;
        let to = self.name(state, new_parent, new_name)?;
        if from.access().min(to.access()) != Access::Write {
            return Err(REFUSED);
        }
        self.check_move(state, moved, &from, &to)?;
        match target {
            Some(target) if flags & libc::RENAME_EXCHANGE != 0 => {
                self.check_move(state, target, &to, &from)
            }
            _ => Ok(()),
        }
    }

    /// Checks that everything in a directory may be changed, where it is and where it goes: a move
    /// must neither carry off what is hidden nor change what rules say about it.
    fn check_move(
        &self,
        state: &mut State,
        number: u64,
        from: &Place,
        to: &Place,
    ) -> Result<(), Errno> {
        let mut wanted = vec![(number, from.clone(), to.clone())];
        while let Some((number, from, to)) = wanted.pop() {
            if from.access().min(to.access()) != Access::Write {
                return Err(REFUSED);
            }
            if !state.inode(number)?.is_directory() || (from.is_uniform() && to.is_uniform()) {
                continue;
            }
            state.load_directory(number)?;
            for found in state.names(number)?.iter() {
                let places = (self.step(&from, &found.name), self.step(&to, &found.name));
                wanted.push((found.number, places.0, places.1));
            }
        }
        Ok(())
    }

    fn find(&self, state: &mut State, parent: u64, name: &[u8]) -> Result<Option<u64>, Errno> {
        match name {
            b"." => Ok(Some(parent)),
            b".." => state.parent_of(parent).map(Some),
            _ => state.find(parent, name),
        }
    }

    fn need(&self, state: &mut State, number: u64, needed: Access) -> Result<(), Errno> {
        match self.access(state, number)? {
            Access::Hidden => Err(HIDDEN),
            access if access < needed => Err(REFUSED),
            _ => Ok(()),
        }
    }

    fn need_directory(&self, state: &mut State, number: u64) -> Result<(), Errno> {
        self.need(state, number, Access::Read)
    }

    /// The name must be visible, and so must be what it stands for.
    fn need_name(
        &self,
        state: &mut State,
        parent: u64,
        name: &[u8],
        child: u64,
    ) -> Result<(), Errno> {
        match name {
            b"." | b".." => self.need(state, child, Access::Read),
            _ if self.shows(state, parent, name, child)? => Ok(()),
            _ => Err(HIDDEN),
        }
    }

    /// Whether a listing shows the name.
    pub(crate) fn shows(
        &self,
        state: &mut State,
        parent: u64,
        name: &[u8],
        child: u64,
    ) -> Result<bool, Errno> {
        let inode = state.inode(child)?;
        if !inode.is_directory() && inode.link_count > 1 {
            return Ok(self.access(state, child)? > Access::Hidden);
        }
        let is_directory = inode.is_directory();
        let place = self.name(state, parent, name)?;
        Ok(place.access() > Access::Hidden || (is_directory && place.is_visible_directory()))
    }

    /// The principal must be allowed to write what is at this name.
    fn need_place(&self, state: &State, parent: u64, name: &[u8]) -> Result<(), Errno> {
        match self.name(state, parent, name)?.access() {
            Access::Write => Ok(()),
            _ => Err(REFUSED),
        }
    }

    /// A name that is to be made; one that is there, and visible, is refused as everywhere.
    fn need_new(&self, state: &mut State, parent: u64, name: &[u8]) -> Result<(), Errno> {
        match self.find(state, parent, name)? {
            Some(child) if self.need_name(state, parent, name, child).is_ok() => Ok(()),
            _ => self.need_place(state, parent, name),
        }
    }

    /// Takes out of an answer what tells of hidden things.
    pub(crate) fn cover_response(
        &self,
        state: &State,
        request: &Request<'_>,
        answer: &mut Response,
    ) {
        match answer {
            Response::Attributes(attributes) => self.cover(state, attributes),
            Response::Entry(entry) => self.cover(state, &mut entry.attributes),
            Response::Directory(entries) => {
                for entry in entries.iter_mut().filter_map(|entry| entry.entry.as_mut()) {
                    self.cover(state, &mut entry.attributes);
                }
            }
            Response::XattrSize(size) if self.lists_passage(state, request) => *size = 0,
            Response::Data(list) if self.lists_passage(state, request) => list.clear(),
            _ => {}
        }
    }

    fn lists_passage(&self, state: &State, request: &Request<'_>) -> bool {
        matches!(*request, Request::ListXattr { inode, .. } if self.is_passage(state, inode))
    }

    fn report(&self, state: &State, caller: &Caller, request: &Request<'_>) {
        if matches!(request, Request::Lookup { name: b".", .. }) {
            // By a handle, as our own helper looks for files that are being written.
            return;
        }
        self.deny(|| {
            let (action, path) = match *request {
                Request::Lookup { parent, name } => ("look up", state.path_in(parent, name)),
                Request::Create { parent, name, .. }
                | Request::MakeNode { parent, name, .. }
                | Request::MakeDirectory { parent, name, .. }
                | Request::SymbolicLink { parent, name, .. } => {
                    ("create", state.path_in(parent, name))
                }
                Request::Unlink { parent, name } | Request::RemoveDirectory { parent, name } => {
                    ("remove", state.path_in(parent, name))
                }
                Request::Rename { parent, name, .. } => ("rename", state.path_in(parent, name)),
                Request::Link { inode, .. } => ("link", state.path_of_inode(inode)),
                Request::Open { inode, flags, .. } if wanted(flags) == Access::Write => {
                    ("open for writing", state.path_of_inode(inode))
                }
                Request::Write { inode, .. } | Request::Allocate { inode, .. } => {
                    ("write", state.path_of_inode(inode))
                }
                Request::SetAttributes { inode, .. }
                | Request::SetXattr { inode, .. }
                | Request::RemoveXattr { inode, .. } => {
                    ("change attributes of", state.path_of_inode(inode))
                }
                Request::CopyRange { to, .. } => ("write", state.path_of_inode(to)),
                Request::TemporaryFile { parent, .. } => ("create", state.path_of_inode(parent)),
                _ => {
                    let [number, _] = super::filesystem::numbers_of(request);
                    ("read", state.path_of_inode(number))
                }
            };
            Denial {
                is_hidden: self.access_of_path(&path) == Access::Hidden,
                path,
                action,
                uid: caller.uid,
                pid: caller.pid,
            }
        });
    }
}

/// What an open with these flags needs.
fn wanted(flags: u32) -> Access {
    let flags = flags as i32;
    if flags & libc::O_ACCMODE == libc::O_RDONLY && flags & libc::O_TRUNC == 0 {
        Access::Read
    } else {
        Access::Write
    }
}
