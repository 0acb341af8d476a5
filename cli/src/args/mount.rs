//! `mount`, `umount`, `ls-mounts`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use computerd_api::v1::IdMapping;

use super::target::{StateTarget, state_parser};

/// Arguments of `kura mount`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura mount demo ./work
  kura mount demo@HEAD~3 ./old                        # read-only
  kura mount demo@HEAD~3 ./work --branch experiment   # writable, on a new branch
  kura mount demo /srv/work --allow-other --uid-map 0:1000:1")]
pub struct MountArgs {
    /// Workspace; a branch is live, any other revision is read-only
    #[arg(value_name = "NAME[@REV]", value_parser = state_parser())]
    pub target: StateTarget,
    /// Empty directory to mount on; made if absent
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Act as this principal [default: the local user]
    #[arg(long = "as", value_name = "PRINCIPAL")]
    pub principal: Option<String>,
    /// Refuse every change
    #[arg(short, long, conflicts_with = "branch")]
    pub read_only: bool,
    /// Let other users of this host in
    #[arg(long)]
    pub allow_other: bool,
    /// Store user ids from INSIDE on as those from OUTSIDE on (can be repeated)
    #[arg(long, value_name = "INSIDE:OUTSIDE:COUNT", value_parser = parse_mapping)]
    pub uid_map: Vec<IdMapping>,
    /// Store group ids from INSIDE on as those from OUTSIDE on (can be repeated)
    #[arg(long, value_name = "INSIDE:OUTSIDE:COUNT", value_parser = parse_mapping)]
    pub gid_map: Vec<IdMapping>,
    /// Make this branch at REV and mount it, writable
    #[arg(short, long, value_name = "NEW")]
    pub branch: Option<String>,
    /// How data is cached
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<Profile>,
    /// Clear a dead mount of another program that is in the way; Kura's own are cleared anyway
    #[arg(long)]
    pub repair: bool,
}

/// How data is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// For trees of many files
    Cached,
    /// For databases and bulk data
    Direct,
}

impl Profile {
    /// Name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Cached => "cached",
            Profile::Direct => "direct",
        }
    }
}

/// Arguments of `kura umount`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura umount ./work
  kura umount ./work --lazy")]
pub struct UmountArgs {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Detach it at once even if it is in use
    #[arg(short, long)]
    pub lazy: bool,
}

/// Arguments of `kura ls-mounts`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura ls-mounts
  kura ls-mounts --json")]
pub struct LsMountsArgs {}

fn parse_mapping(text: &str) -> Result<IdMapping, String> {
    let numbers: Option<Vec<u32>> = text.split(':').map(|part| part.parse().ok()).collect();
    match numbers.as_deref() {
        Some([inside, outside, count]) if *count > 0 => {
            let fits = |first: u32| first.checked_add(count - 1).is_some();
            if !fits(*inside) || !fits(*outside) {
                return Err("the range goes beyond 4294967295".to_owned());
            }
            Ok(IdMapping {
                inside: *inside,
                outside: *outside,
                count: *count,
            })
        }
        _ => Err("write INSIDE:OUTSIDE:COUNT, for example 0:1000:1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_three_numbers() {
        let mapping = parse_mapping("0:1000:1").unwrap();
        assert_eq!(
            (mapping.inside, mapping.outside, mapping.count),
            (0, 1000, 1)
        );
        for text in [
            "",
            "0:1000",
            "0:1000:0",
            "a:1:1",
            "0:4294967295:2",
            "1:2:3:4",
        ] {
            assert!(parse_mapping(text).is_err(), "{text}");
        }
    }
}
