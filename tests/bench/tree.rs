//! Trees of files like those of a project: the same on every machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

const FILES_PER_DIRECTORY: u64 = 50;
const WORDS: &[&str] = &[
    "let", "value", "return", "function", "import", "export", "const", "index", "=>", "{", "}",
    "(item)", "length", "// why", "\n", "\n    ", "if", "else", "await", "request", "response",
];

/// A sequence of numbers without a pattern (xorshift64*).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % end
    }
}

/// Path of a file of the tree.
pub(crate) fn path_of(number: u64) -> PathBuf {
    let directory = number / FILES_PER_DIRECTORY;
    PathBuf::from(format!(
        "d{:02}/d{:02}/d{}/file-{number}.js",
        directory % 20,
        directory / 20 % 20,
        directory / 400
    ))
}

/// Text like a program's, `bytes` long, different for each seed.
pub(crate) fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let mut numbers = Numbers::new(seed);
    let mut text = format!("// file {seed}\n").into_bytes();
    while text.len() < bytes {
        let word = WORDS[numbers.below(WORDS.len() as u64) as usize];
        text.extend_from_slice(word.as_bytes());
        if numbers.below(4) == 0 {
            text.extend_from_slice(format!("_{}", numbers.below(100_000)).as_bytes());
        }
        text.push(b' ');
    }
    text.truncate(bytes);
    text
}

/// Makes `count` files with text; about `mean_bytes` each.
pub(crate) fn make(root: &Path, count: u64, mean_bytes: u64) -> Result<()> {
    let mut numbers = Numbers::new(count);
    for number in 0..count {
        let path = root.join(path_of(number));
        if number % FILES_PER_DIRECTORY == 0
            && let Some(parent) = path.parent()
        {
            fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
        }
        // A few large, most of them small.
        let scale = 1 + numbers.below(8) * numbers.below(8);
        let bytes = 1 + numbers.below(2 * mean_bytes) * scale / 13;
        fs::write(&path, text(number, bytes as usize))
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}
