//! Messages between keeper and worker: one JSON object for each packet of a SOCK_SEQPACKET pair,
//! with at most one descriptor beside it.
//!
//! Invariant: what a worker has sent is in the kernel's queue and is read by the keeper even when
//! the worker dies right after; so nothing is acknowledged.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, send, sendmsg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the messages; a keeper and a worker of different versions don't work together.
pub const PROTOCOL_VERSION: u32 = 1;

/// Longest message.
pub const MAX_MESSAGE_BYTES: usize = 128 << 10;

/// What the worker tells the keeper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToKeeper {
    /// Keep the descriptor beside this message under `id`; replaces an older one.
    Hold {
        /// Chosen by the worker.
        id: u64,
        /// What the next worker needs to go on with the descriptor.
        state: Value,
    },
    /// The state of `id` is this from now on.
    Update {
        /// A held descriptor.
        id: u64,
        /// Replaces its state.
        state: Value,
    },
    /// Close the descriptor.
    Release {
        /// A held descriptor.
        id: u64,
    },
    /// Keep a value for the next worker; `None` forgets it.
    Note {
        /// Name of the value.
        key: String,
        /// The value.
        value: Option<Value>,
    },
    /// A worker has started: give it everything that is held.
    Take {
        /// [`PROTOCOL_VERSION`] of the worker.
        version: u32,
    },
    /// The worker serves requests now.
    Ready,
    /// The worker ends on purpose; the keeper ends with it.
    Stopping,
}

/// What the keeper tells the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToWorker {
    /// A held descriptor, which is beside this message.
    Held {
        /// Its id.
        id: u64,
        /// Its state.
        state: Value,
    },
    /// Everything was given.
    Taken {
        /// [`PROTOCOL_VERSION`] of the keeper.
        version: u32,
        /// Process id of the keeper.
        keeper_pid: u32,
        /// How many workers died so far.
        restart_count: u32,
        /// What earlier workers noted.
        notes: serde_json::Map<String, Value>,
    },
}

/// Sends one message.
///
/// # Errors
/// `EMSGSIZE` for a message that is too long, `EPIPE` when the other side is gone.
pub fn send_message(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    loop {
        let sent = match descriptor {
            None => send(socket.as_raw_fd(), &bytes, MsgFlags::MSG_NOSIGNAL),
            Some(descriptor) => sendmsg::<()>(
                socket.as_raw_fd(),
                &[IoSlice::new(&bytes)],
                &[ControlMessage::ScmRights(&[descriptor.as_raw_fd()])],
                MsgFlags::MSG_NOSIGNAL,
                None,
            ),
        };
        match sent {
            Ok(_) => return Ok(()),
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Receives one message; `None` when the other side is gone.
///
/// # Errors
/// `WouldBlock` if `is_waiting` is false and there is none; `InvalidData` if it is not understood.
pub fn receive_message<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    is_waiting: bool,
) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_MESSAGE_BYTES];
    let mut control = nix::cmsg_space!([RawFd; 4]);
    let mut flags = MsgFlags::MSG_CMSG_CLOEXEC;
    if !is_waiting {
        flags |= MsgFlags::MSG_DONTWAIT;
    }
    let (length, descriptors, is_cut) = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        match recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags) {
            Ok(received) => {
                let mut descriptors = Vec::new();
                for message in received.cmsgs()? {
                    if let ControlMessageOwned::ScmRights(raw) = message {
                        for descriptor in raw {
                            // SAFETY: the kernel has just made this descriptor for us; nobody
                            // else knows its number.
                            descriptors.push(unsafe { OwnedFd::from_raw_fd(descriptor) });
                        }
                    }
                }
                let is_cut = received.flags.contains(MsgFlags::MSG_TRUNC);
                break (received.bytes, descriptors, is_cut);
            }
            Err(nix::errno::Errno::EINTR) => {}
            Err(nix::errno::Errno::ECONNRESET) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    };
    if length == 0 {
        return Ok(None);
    }
    if is_cut {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "message too long",
        ));
    }
    let message = serde_json::from_slice(&bytes[..length])
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some((message, descriptors.into_iter().next())))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use serde_json::json;

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .unwrap()
    }

    #[test]
    fn a_descriptor_and_its_state_cross_even_when_the_sender_is_gone() {
        let (left, right) = pair();
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let message = ToKeeper::Hold {
            id: 7,
            state: json!({"mountpoint": "/a"}),
        };
        send_message(left.as_fd(), &message, Some(writer.as_fd())).unwrap();
        drop((left, writer));
        let (received, descriptor) = receive_message::<ToKeeper>(right.as_fd(), true)
            .unwrap()
            .unwrap();
        assert_eq!(received, message);
        File::from(descriptor.unwrap()).write_all(b"kept").unwrap();
        let mut text = String::new();
        File::from(reader).read_to_string(&mut text).unwrap();
        assert_eq!(text, "kept");
        assert!(
            receive_message::<ToKeeper>(right.as_fd(), true)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn an_empty_queue_would_block_and_foreign_bytes_are_refused() {
        let (left, right) = pair();
        let error = receive_message::<ToKeeper>(right.as_fd(), false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        send_message(left.as_fd(), &json!({"type": "dance"}), None).unwrap();
        let error = receive_message::<ToKeeper>(right.as_fd(), true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let long = "x".repeat(MAX_MESSAGE_BYTES);
        let error = send_message(left.as_fd(), &long, None).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }
}
