//! Finding the commit that a person means: a branch, a tag, an id or its beginning, `HEAD`, and
//! from there back by steps (`~3`) or in time (`@{2 hours ago}`).
//!
//! Only commits of the workspace's own history are found, however well somebody knows an id.

use crate::db::history::{self, CommitRow, Walk};
use crate::db::{Connection, operations, refs};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{CommitId, WorkspaceId, from_hex};
use crate::limits::ID_PREFIX_MIN_DIGITS;
use crate::object::Timestamp;
use crate::object::codec::decode_commit;
use crate::store::{Store, now_ns};

/// Candidates that an error lists.
const CANDIDATES_SHOWN: usize = 8;
const HINT: &str = "a revision is a branch, a tag, a commit id or at least 4 digits of one, HEAD, \
     REV~N, or REV@{2 hours ago}";

impl Store {
    /// The commit that `revision` means in a workspace.
    ///
    /// # Errors
    /// `NotFound` if it means none, `InvalidInput` if it is malformed, `Conflict` if it is the
    /// beginning of several ids; the message lists them.
    pub fn resolve(&self, workspace: WorkspaceId, revision: &str) -> Result<CommitId> {
        self.inner.database.read(|connection| {
            let number = refs::workspace_number(connection, workspace)?;
            Resolver {
                connection,
                workspace: number,
                revision,
            }
            .resolve()
        })
    }
}

struct Resolver<'a> {
    connection: &'a Connection,
    workspace: i64,
    revision: &'a str,
}

impl Resolver<'_> {
    fn resolve(&self) -> Result<CommitId> {
        let end = self
            .revision
            .find(['~', '@'])
            .unwrap_or(self.revision.len());
        let (base, mut rest) = self.revision.split_at(end);
        if base.is_empty() && !rest.starts_with('@') {
            return Err(self.malformed("it is empty"));
        }
        let mut commit = None;
        while let Some(kind) = rest.chars().next() {
            if kind == '~' {
                let digits = &rest[1..];
                let end = digits
                    .find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(digits.len());
                let steps = match &digits[..end] {
                    "" => 1,
                    count => count
                        .parse()
                        .map_err(|_| self.malformed("too many steps"))?,
                };
                let from = match commit {
                    Some(commit) => commit,
                    None => self.base(base)?,
                };
                commit = Some(self.back(from, steps)?);
                rest = &digits[end..];
            } else {
                let (time, after) = rest
                    .strip_prefix("@{")
                    .and_then(|text| text.split_once('}'))
                    .ok_or_else(|| self.malformed("'@' must be followed by '{TIME}'"))?;
                let time_ns = parse_time(time, now_ns()).ok_or_else(|| {
                    self.malformed(
                        "the time is neither like '2 hours ago' nor like \
                         '2026-01-31T12:00:00Z'",
                    )
                })?;
                commit = Some(match commit {
                    Some(commit) => self.at_time(commit, time_ns)?,
                    None => self.base_at(base, time_ns)?,
                });
                rest = after;
                if !rest.is_empty() && !rest.starts_with(['~', '@']) {
                    return Err(self.malformed("there is text after '}'"));
                }
            }
            if !rest.is_empty() && !rest.starts_with(['~', '@']) {
                return Err(self.malformed("'~' must be followed by a number"));
            }
        }
        match commit {
            Some(commit) => Ok(commit),
            None => self.base(base),
        }
    }

    fn malformed(&self, reason: &str) -> StoreError {
        StoreError::new(
            ErrorKind::InvalidInput,
            format!("'{}' is not a revision: {reason}", self.revision),
        )
        .with_hint(HINT)
    }

    fn unknown(&self) -> StoreError {
        StoreError::new(
            ErrorKind::NotFound,
            format!("'{}' is not a revision of this workspace", self.revision),
        )
        .with_hint(HINT)
    }

    fn branch_name(&self, base: &str) -> Result<String> {
        match base {
            "" | "HEAD" => refs::default_branch(self.connection, self.workspace),
            name => Ok(name.to_owned()),
        }
    }

    fn base(&self, base: &str) -> Result<CommitId> {
        let name = self.branch_name(base)?;
        if let Some(branch) = refs::branch(self.connection, self.workspace, &name)? {
            return Ok(branch.commit);
        }
        if let Some(commit) = refs::tag(self.connection, self.workspace, base)? {
            return Ok(commit);
        }
        self.by_prefix(base)
    }

    fn by_prefix(&self, digits: &str) -> Result<CommitId> {
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex || digits.len() < ID_PREFIX_MIN_DIGITS || digits.len() > 64 {
            return Err(self.unknown());
        }
        let bound = |filler: &str| -> Result<[u8; 32]> {
            let padded = format!("{digits}{}", filler.repeat(64 - digits.len()));
            from_hex(&padded.to_ascii_lowercase())
                .and_then(|bytes| bytes.try_into().ok())
                .ok_or_else(|| self.unknown())
        };
        let candidates = history::between(self.connection, &bound("0")?, &bound("f")?, 10_000)?;
        let mut found = Vec::new();
        for (id, row) in candidates {
            if history::is_visible(self.connection, self.workspace, row)? {
                found.push(id);
            }
        }
        match found.as_slice() {
            [] => Err(self.unknown()),
            [only] => Ok(*only),
            several => {
                let mut list: Vec<String> = several
                    .iter()
                    .take(CANDIDATES_SHOWN)
                    .map(|id| id.to_hex()[..16].to_owned())
                    .collect();
                if several.len() > CANDIDATES_SHOWN {
                    list.push("…".to_owned());
                }
                Err(StoreError::new(
                    ErrorKind::Conflict,
                    format!(
                        "'{digits}' is the beginning of several commits: {}",
                        list.join(", ")
                    ),
                )
                .with_hint("give more digits"))
            }
        }
    }

    fn back(&self, from: CommitId, steps: u64) -> Result<CommitId> {
        let mut row = history::require(self.connection, from)?;
        for done in 0..steps {
            row = self.first_parent(row)?.ok_or_else(|| {
                StoreError::new(
                    ErrorKind::NotFound,
                    format!(
                        "'{}' goes back too far: history begins {done} steps before",
                        self.revision
                    ),
                )
                .with_hint("`kura log NAME` lists the commits")
            })?;
        }
        Ok(history::read_row(self.connection, row.number)?.0)
    }

    fn first_parent(&self, row: CommitRow) -> Result<Option<CommitRow>> {
        Ok(history::parents(self.connection, row.number)?
            .into_iter()
            .next())
    }

    /// Where a branch was at a time; for anything else, the last of its commits made by then.
    fn base_at(&self, base: &str, time_ns: i64) -> Result<CommitId> {
        let name = self.branch_name(base)?;
        let branch = refs::branch(self.connection, self.workspace, &name)?;
        if branch.is_some() {
            let operation = operations::branch_at(self.connection, self.workspace, &name, time_ns)?;
            if let Some(commit) = operation
                .and_then(|operation| operation.after)
                .and_then(|id| id.parse().ok())
            {
                return Ok(commit);
            }
        }
        self.at_time(self.base(base)?, time_ns)
    }

    /// The newest commit of a history that was made by `time_ns`.
    fn at_time(&self, from: CommitId, time_ns: i64) -> Result<CommitId> {
        let time = Timestamp::from_nanoseconds(i128::from(time_ns));
        let mut walk = Walk::new(self.connection, history::require(self.connection, from)?);
        while let Some(row) = walk.next()? {
            let (id, encoded) = history::read_row(self.connection, row.number)?;
            if decode_commit(&encoded)?.time <= time {
                return Ok(id);
            }
        }
        Err(StoreError::new(
            ErrorKind::NotFound,
            format!("'{}' is before the first commit", self.revision),
        ))
    }
}

/// Reads a point in time; `now_ns` is what "ago" counts from.
fn parse_time(text: &str, now_ns: i64) -> Option<i64> {
    const SECOND: i64 = 1_000_000_000;
    let text = text.trim();
    match text {
        "now" => return Some(now_ns),
        "yesterday" => return Some(now_ns - 86_400 * SECOND),
        _ => {}
    }
    if let Some(span) = text.strip_suffix("ago") {
        let mut words = span.split_whitespace();
        let count: i64 = match words.next()? {
            "a" | "an" | "one" => 1,
            count => count.parse().ok()?,
        };
        let unit = words.next()?;
        let seconds = match unit.strip_suffix('s').unwrap_or(unit) {
            "second" | "sec" | "" => 1,
            "minute" | "min" => 60,
            "hour" => 3600,
            "day" => 86_400,
            "week" => 7 * 86_400,
            "month" => 30 * 86_400,
            "year" => 365 * 86_400,
            _ => return None,
        };
        if words.next().is_some() || count < 0 {
            return None;
        }
        return now_ns.checked_sub(count.checked_mul(seconds)?.checked_mul(SECOND)?);
    }
    parse_rfc3339(text)
}

/// Reads `2026-01-31`, `2026-01-31T12:00:00[.5](Z|+01:00)`; without an offset it is UTC.
fn parse_rfc3339(text: &str) -> Option<i64> {
    let number = |text: &str, low: i64, high: i64| -> Option<i64> {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let value: i64 = is_plain.then(|| text.parse().ok()).flatten()?;
        (low..=high).contains(&value).then_some(value)
    };
    let date = text.get(..10)?;
    let (year, month_day) = date.split_once('-')?;
    let (month, day) = month_day.split_once('-')?;
    let (year, month) = (number(year, 1970, 2261)?, number(month, 1, 12)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let day = number(day, 1, month_days)?;
    // Days since 1970, with years beginning in March.
    let (march_year, march_month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let days =
        march_year * 365 + march_year / 4 - march_year / 100 + march_year / 400 + day_of_year
            - 719_468;
    let mut seconds = days * 86_400;
    let mut nanoseconds = 0;
    let time = &text[10..];
    if !time.is_empty() {
        let time = time.strip_prefix(['T', 't', ' '])?;
        let end = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
        let (clock, offset) = time.split_at(end);
        let mut parts = clock.splitn(3, ':');
        seconds += number(parts.next()?, 0, 23)? * 3600 + number(parts.next()?, 0, 59)? * 60;
        if let Some(part) = parts.next() {
            let (whole, fraction) = part.split_once('.').unwrap_or((part, "0"));
            seconds += number(whole, 0, 60)?;
            let digits = fraction.get(..fraction.len().min(9))?;
            nanoseconds = number(digits, 0, 999_999_999)? * 10_i64.pow(9 - digits.len() as u32);
        }
        if let Some(sign) = offset
            .chars()
            .next()
            .filter(|sign| !sign.eq_ignore_ascii_case(&'z'))
        {
            let (hours, minutes) = offset[1..].split_once(':')?;
            let shift = number(hours, 0, 23)? * 3600 + number(minutes, 0, 59)? * 60;
            seconds += if sign == '+' { -shift } else { shift };
        } else if offset.len() > 1 {
            return None;
        }
    }
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_written() {
        let now = 1_800_000_000_000_000_000;
        let second = 1_000_000_000;
        for (text, expected) in [
            ("now", now),
            ("2 hours ago", now - 7200 * second),
            ("1 minute ago", now - 60 * second),
            ("an hour ago", now - 3600 * second),
            ("3 days ago", now - 3 * 86_400 * second),
            ("1970-01-01", 0),
            ("1970-01-01T00:00:01Z", second),
            ("2000-02-29T12:30:00.25Z", 951_827_400_250_000_000),
            ("2026-11-30T08:00:00+02:00", 1_796_018_400 * second),
            ("2026-11-30T06:00:00", 1_796_018_400 * second),
        ] {
            assert_eq!(parse_time(text, now), Some(expected), "{text}");
        }
        for text in [
            "",
            "ago",
            "x hours ago",
            "2 parsecs ago",
            "2026-13-01",
            "2026-02-30",
            "2026-11-30T25:00",
            "2026-11-30T06:00:00Zx",
            "-1 hours ago",
            "2026-11-30junk",
        ] {
            assert_eq!(parse_time(text, now), None, "{text}");
        }
    }
}
