//! Times for people.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::error::{CommandError, Result};

/// How long ago `time` (RFC 3339) was, seen from `now`; the text itself if it is not a time.
pub fn relative(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => ago(now.as_second() - time.as_second()),
        Err(_) => time.to_owned(),
    }
}

/// `time` (RFC 3339) to the second, in UTC; the text itself if it is not a time.
pub fn absolute(time: &str) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => time.to_owned(),
    }
}

/// An end as people write it, as RFC 3339: a time, or how long from `now` (`2 hours`, `90m`).
///
/// # Errors
/// If it is neither.
pub fn parse_end(text: &str, now: Timestamp) -> Result<String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.to_string());
    }
    let span = text.parse::<jiff::Span>().ok();
    let end = span
        .filter(|span| span.is_positive())
        .and_then(|span| TimeZone::UTC.to_datetime(now).checked_add(span).ok())
        .and_then(|end| TimeZone::UTC.to_timestamp(end).ok());
    match end {
        Some(end) => Ok(end.to_string()),
        None => Err(CommandError::usage(
            format!("'{text}' is neither a time nor how long from now"),
            "write '2 hours', '30m' or 2026-12-31T18:00:00Z",
        )),
    }
}

fn ago(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const STEPS: [(i64, &str); 6] = [
        (365 * DAY, "year"),
        (30 * DAY, "month"),
        (7 * DAY, "week"),
        (DAY, "day"),
        (HOUR, "hour"),
        (MINUTE, "minute"),
    ];
    // Clocks of two hosts differ a little; a commit of the future is shown as such from here on.
    const TOLERANCE: i64 = 5;
    if seconds < -TOLERANCE {
        return "in the future".to_owned();
    }
    let seconds = seconds.max(0);
    let (count, unit) = STEPS
        .iter()
        .find(|(length, _)| seconds >= *length)
        .map_or((seconds, "second"), |(length, unit)| {
            (seconds / length, unit)
        });
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural} ago")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_time_or_how_long_from_now() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        for (text, end) in [
            ("2 hours", "2026-11-30T14:00:00Z"),
            ("90m", "2026-11-30T13:30:00Z"),
            ("1 day", "2026-12-01T12:00:00Z"),
            ("2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ] {
            assert_eq!(parse_end(text, now).unwrap(), end);
        }
        for text in ["", "soon", "-1 hour", "2026-13-01"] {
            assert!(parse_end(text, now).is_err(), "{text}");
        }
    }

    #[test]
    fn distances_are_in_the_largest_unit() {
        for (seconds, text) in [
            (-60, "in the future"),
            (-2, "0 seconds ago"),
            (1, "1 second ago"),
            (59, "59 seconds ago"),
            (60, "1 minute ago"),
            (7199, "1 hour ago"),
            (86_400 * 6, "6 days ago"),
            (86_400 * 15, "2 weeks ago"),
            (86_400 * 400, "1 year ago"),
        ] {
            assert_eq!(ago(seconds), text);
        }
    }

    #[test]
    fn texts_of_times_are_read() {
        let now: Timestamp = "2026-11-30T08:00:00Z".parse().unwrap();
        assert_eq!(
            relative("2026-11-30T07:58:00.123456789Z", now),
            "2 minutes ago"
        );
        assert_eq!(relative("soon", now), "soon");
        assert_eq!(
            absolute("2026-11-30T07:58:00.9Z"),
            "2026-11-30 07:58:00 UTC"
        );
    }
}
