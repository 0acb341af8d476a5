//! Rows of runs and their steps.

use rusqlite::Connection;

use crate::error::{ErrorKind, Result, StoreError};
use crate::object::Timestamp;
use crate::runs::{NewRunStep, RunStep, STEP_MAX};

/// Adds a step; gives back its number.
pub(crate) fn begin(
    connection: &Connection,
    workspace: i64,
    time_ns: i64,
    step: &NewRunStep,
) -> Result<u64> {
    let last: Option<i64> = connection
        .prepare_cached("SELECT max(step) FROM run_step WHERE workspace = ?1 AND run = ?2")?
        .query_row((workspace, &step.run), |row| row.get(0))?;
    let number = match step.step {
        Some(number) => number as i64,
        None => last.map_or(1, |last| last.saturating_add(1)),
    };
    if !u64::try_from(number).is_ok_and(|number| number <= STEP_MAX) {
        return Err(StoreError::new(
            ErrorKind::InvalidInput,
            format!("the run {} has no numbers for more steps", step.run),
        )
        .with_hint("begin another run"));
    }
    let inserted = connection
        .prepare_cached(
            "INSERT INTO run_step (workspace, run, step, principal, command, source, started_ns)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
        )?
        .execute((
            workspace,
            &step.run,
            number,
            &step.principal,
            serde_json::json!(step.command).to_string(),
            &step.source,
            time_ns,
        ))?;
    if inserted == 0 {
        return Err(StoreError::new(
            ErrorKind::AlreadyExists,
            format!("the run {} has a step {number} already", step.run),
        )
        .with_hint("leave the number out, then it is the next one"));
    }
    Ok(number as u64)
}

/// Notes the end of a step.
pub(crate) fn end(
    connection: &Connection,
    workspace: i64,
    run: &str,
    step: u64,
    time_ns: i64,
    exit_code: Option<i32>,
) -> Result<()> {
    let changed = connection
        .prepare_cached(
            "UPDATE run_step SET ended_ns = ?4, exit_code = ?5
             WHERE workspace = ?1 AND run = ?2 AND step = ?3 AND ended_ns IS NULL",
        )?
        .execute((workspace, run, step as i64, time_ns, exit_code))?;
    if changed > 0 {
        return Ok(());
    }
    let is_known = connection
        .prepare_cached("SELECT 1 FROM run_step WHERE workspace = ?1 AND run = ?2 AND step = ?3")?
        .exists((workspace, run, step as i64))?;
    Err(if is_known {
        StoreError::new(
            ErrorKind::Conflict,
            format!("step {step} of the run {run} has ended already"),
        )
        .with_hint("begin another step")
    } else {
        StoreError::new(
            ErrorKind::NotFound,
            format!("there is no step {step} of a run {run}"),
        )
    })
}

/// Steps, newest first.
pub(crate) fn list(
    connection: &Connection,
    workspace: i64,
    run: Option<&str>,
    limit: usize,
) -> Result<Vec<RunStep>> {
    let limit = if limit == 0 { -1 } else { limit as i64 };
    let mut statement = connection.prepare_cached(
        "SELECT run, step, principal, command, source, started_ns, ended_ns, exit_code
         FROM run_step WHERE workspace = ?1 AND (?2 IS NULL OR run = ?2)
         ORDER BY started_ns DESC, step DESC LIMIT ?3",
    )?;
    let time = |nanoseconds: i64| Timestamp::from_nanoseconds(i128::from(nanoseconds));
    let rows = statement.query_map((workspace, run, limit), |row| {
        let command: String = row.get(3)?;
        Ok(RunStep {
            run: row.get(0)?,
            step: row.get::<_, i64>(1)? as u64,
            principal: row.get(2)?,
            command: serde_json::from_str(&command).unwrap_or_else(|_| vec![command]),
            source: row.get(4)?,
            started: time(row.get(5)?),
            ended: row.get::<_, Option<i64>>(6)?.map(time),
            exit_code: row.get(7)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Steps that made changes and are not in the table.
pub(crate) fn unknown(
    connection: &Connection,
    workspace: i64,
    run: Option<&str>,
) -> Result<Vec<(String, Option<u64>, String)>> {
    let mut statement = connection.prepare_cached(
        "SELECT DISTINCT a.run, a.step, a.principal FROM commit_actor a
         JOIN workspace_commit w ON w.commit_id = a.commit_id AND w.workspace = ?1
         WHERE a.run <> '' AND (?2 IS NULL OR a.run = ?2) AND NOT EXISTS (
             SELECT 1 FROM run_step s
             WHERE s.workspace = ?1 AND s.run = a.run AND s.step = a.step)
         ORDER BY a.run DESC, a.step DESC",
    )?;
    let rows = statement.query_map((workspace, run), |row| {
        let step: i64 = row.get(1)?;
        Ok((row.get(0)?, u64::try_from(step).ok(), row.get(2)?))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
