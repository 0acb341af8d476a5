//! Workers for requests that wait for a disk, so that the dispatch thread never does.
//!
//! Jobs are taken in the order in which they were handed over. [`Outstanding`] tells which of
//! them are done: a flush has to wait for all writes before it.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::{Condvar, Mutex};

/// Requests up to this size are copied, longer ones take their buffer with them.
const COPY_LIMIT_BYTES: usize = 64 * 1024;
/// Read buffers kept for use again.
const SPARE_BUFFERS: usize = 4;

/// A request that a worker is to answer.
pub(super) struct Job {
    /// The request's bytes (and perhaps more behind them).
    pub(super) bytes: Box<[u8]>,
    /// Length of the request.
    pub(super) length: usize,
    /// Number for [`Outstanding`].
    sequence: u64,
}

impl Job {
    /// Number of the job; those handed over earlier have lower ones.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// Which jobs are not done yet.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    sequences: Mutex<BTreeSet<u64>>,
    changed: Condvar,
}

impl Outstanding {
    /// Waits until all jobs handed over before this one are done.
    pub(super) fn wait_for_earlier(&self, sequence: u64) {
        let mut sequences = self.sequences.lock();
        while sequences.first().is_some_and(|first| *first < sequence) {
            self.changed.wait(&mut sequences);
        }
    }

    fn done(&self, sequence: u64) {
        self.sequences.lock().remove(&sequence);
        self.changed.notify_all();
    }
}

/// The pool, as the dispatch thread uses it. Dropping it ends the threads after their jobs.
pub(super) struct Workers {
    jobs: Option<Sender<Job>>,
    outstanding: Arc<Outstanding>,
    spares: Arc<Mutex<Vec<Box<[u8]>>>>,
    threads: Vec<JoinHandle<()>>,
    buffer_bytes: usize,
    next_sequence: u64,
}

impl Workers {
    /// Starts `count` threads that run `work` for each job.
    ///
    /// # Errors
    /// A thread cannot be made.
    pub(super) fn start<W, F>(
        count: usize,
        buffer_bytes: usize,
        outstanding: Arc<Outstanding>,
        make_work: F,
    ) -> io::Result<Self>
    where
        F: Fn() -> W,
        W: FnMut(&Job) + Send + 'static,
    {
        // Without a limit: the dispatch thread must go on answering the writes that a job may wait
        // for. There are no more jobs than callers in the kernel.
        let (jobs, queue) = unbounded();
        let spares = Arc::new(Mutex::new(Vec::new()));
        let mut threads = Vec::new();
        for number in 0..count.max(1) {
            let queue: Receiver<Job> = queue.clone();
            let outstanding = outstanding.clone();
            let spares: Arc<Mutex<Vec<Box<[u8]>>>> = spares.clone();
            let mut work = make_work();
            let thread = thread::Builder::new()
                .name(format!("kura-fuse-w{number}"))
                .spawn(move || {
                    for job in queue {
                        work(&job);
                        outstanding.done(job.sequence);
                        if job.bytes.len() == buffer_bytes {
                            let mut spares = spares.lock();
                            if spares.len() < SPARE_BUFFERS {
                                spares.push(job.bytes);
                            }
                        }
                    }
                })?;
            threads.push(thread);
        }
        Ok(Self {
            jobs: Some(jobs),
            outstanding,
            spares,
            threads,
            buffer_bytes,
            next_sequence: 0,
        })
    }

    /// Hands a request over; `buffer` is usable again afterwards.
    pub(super) fn hand_over(&mut self, buffer: &mut Box<[u8]>, length: usize) {
        let bytes = if length <= COPY_LIMIT_BYTES {
            Box::from(&buffer[..length])
        } else {
            let spare = self.spares.lock().pop();
            let spare = spare.unwrap_or_else(|| vec![0; self.buffer_bytes].into_boxed_slice());
            std::mem::replace(buffer, spare)
        };
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.outstanding.sequences.lock().insert(sequence);
        let job = Job {
            bytes,
            length,
            sequence,
        };
        let jobs = self
            .jobs
            .as_ref()
            .expect("the queue lives as long as the pool");
        jobs.send(job).expect("workers end only with the queue");
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
    }
}
