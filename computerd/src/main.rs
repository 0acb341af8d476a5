//! `computerd`, the daemon of a Kura store.

fn main() {
    std::process::exit(computerd::run());
}
