//! The tables of the current version.

/// Marks a database as ours: "KURA".
pub(super) const APPLICATION_ID: i32 = 0x4b55_5241;

/// Version of the tables below.
pub(super) const SCHEMA_VERSION: i32 = 2;

/// Features that a database may use without harm to older versions that don't know them.
pub(super) const KNOWN_COMPATIBLE: &[&str] = &[];
/// Features that older versions may read but not write.
pub(super) const KNOWN_READ_ONLY_COMPATIBLE: &[&str] = &[];
/// Features that must be known to touch the database at all.
pub(super) const KNOWN_INCOMPATIBLE: &[&str] = &[
    "blake3-ids",
    "zstd-objects",
    "split-directories",
    "link-table",
];
/// Features that must be known, too, but that only databases have which use them.
pub(super) const INCOMPATIBLE_ON_USE: &[&str] = &[CONFLICT_SETS];
/// Commits name sets of conflicts.
pub(super) const CONFLICT_SETS: &str = "conflict-sets";

/// What version 2 adds to version 1: each part of the program has its own tables.
pub(super) const VERSION_2_TABLES: &[&str] = &[
    ATTRIBUTION_TABLES,
    CONFLICT_TABLES,
    GRANT_TABLES,
    PURGE_TABLES,
];

/// Who took part in which commit (`run` is empty and `step` -1 for none), who made what a mount
/// has in its base but not in a commit yet, and the executions that `kura run` made known.
const ATTRIBUTION_TABLES: &str = "
CREATE TABLE commit_actor (
    run TEXT NOT NULL, step INTEGER NOT NULL, principal TEXT NOT NULL,
    commit_id INTEGER NOT NULL REFERENCES commit_object(id),
    PRIMARY KEY (run, step, principal, commit_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE overlay_attribution (
    id INTEGER PRIMARY KEY,
    branch INTEGER NOT NULL REFERENCES branch(id) ON DELETE CASCADE,
    size INTEGER NOT NULL, encoding INTEGER NOT NULL, data BLOB NOT NULL
) STRICT;
CREATE INDEX overlay_attribution_by_branch ON overlay_attribution (branch, id);
CREATE TABLE run_step (
    workspace INTEGER NOT NULL REFERENCES workspace(id), run TEXT NOT NULL, step INTEGER NOT NULL,
    principal TEXT NOT NULL, command TEXT NOT NULL, source TEXT NOT NULL,
    started_ns INTEGER NOT NULL, ended_ns INTEGER, exit_code INTEGER,
    PRIMARY KEY (workspace, run, step)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_step_by_time ON run_step (workspace, started_ns);
";

/// Who there is, how they prove it, and what they may do. A rule's subject is the name of a
/// principal, or of a group with `@` before it.
const GRANT_TABLES: &str = "
CREATE TABLE principal (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
    created_ns INTEGER NOT NULL, disabled_ns INTEGER
) STRICT;
CREATE TABLE principal_token (
    id TEXT PRIMARY KEY, principal INTEGER NOT NULL REFERENCES principal(id),
    hash BLOB NOT NULL UNIQUE, created_ns INTEGER NOT NULL, expires_ns INTEGER,
    revoked_ns INTEGER, last_used_ns INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE principal_group (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE group_member (
    member_of INTEGER NOT NULL REFERENCES principal_group(id),
    principal INTEGER NOT NULL REFERENCES principal(id),
    PRIMARY KEY (member_of, principal)
) STRICT, WITHOUT ROWID;
CREATE TABLE grant_rule (
    workspace INTEGER NOT NULL REFERENCES workspace(id), subject TEXT NOT NULL,
    pattern TEXT NOT NULL, access TEXT NOT NULL, until_ns INTEGER,
    PRIMARY KEY (workspace, subject, pattern)
) STRICT, WITHOUT ROWID;
";

/// Sets of conflicts that commits name.
const CONFLICT_TABLES: &str = "
CREATE TABLE conflict_set (
    id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL, encoding INTEGER NOT NULL, data BLOB NOT NULL
) STRICT;
";

/// Content that was taken out of all versions: what is asked for it is told so.
const PURGE_TABLES: &str = "
CREATE TABLE purged_content (
    hash BLOB PRIMARY KEY, size INTEGER NOT NULL, purged_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Makes the tables of version 1.
///
/// `chunk_data` stands apart from `chunk`, so that payloads can move to another store.
/// `path_commit` is the path index: first 8 bytes of BLAKE3 of each changed path and of each
/// directory above one. `link_name` remembers where names of files with several names were seen;
/// it is a hint, verified before it is believed. `inode_sweep` lists directories that are gone and
/// whose rows in `inode_map` are still to be removed.
pub(super) const TABLES: &str = "
CREATE TABLE meta (
    key TEXT PRIMARY KEY, value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE chunk (
    id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL, stored_size INTEGER NOT NULL, encoding INTEGER NOT NULL
) STRICT;
CREATE TABLE chunk_data (
    chunk INTEGER PRIMARY KEY, data BLOB NOT NULL
) STRICT;
CREATE TABLE manifest (
    id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL, data BLOB NOT NULL, checksum BLOB NOT NULL
) STRICT;
CREATE TABLE tree_node (
    id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL, encoding INTEGER NOT NULL, data BLOB NOT NULL
) STRICT;
CREATE TABLE commit_object (
    id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE,
    generation INTEGER NOT NULL, data BLOB NOT NULL
) STRICT;
CREATE TABLE commit_parent (
    commit_id INTEGER NOT NULL REFERENCES commit_object(id), position INTEGER NOT NULL,
    parent INTEGER NOT NULL REFERENCES commit_object(id),
    PRIMARY KEY (commit_id, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE commit_change (
    commit_id INTEGER PRIMARY KEY REFERENCES commit_object(id), path_count INTEGER NOT NULL,
    size INTEGER NOT NULL, encoding INTEGER NOT NULL, data BLOB NOT NULL
) STRICT;
CREATE TABLE path_commit (
    path_hash INTEGER NOT NULL, commit_id INTEGER NOT NULL REFERENCES commit_object(id),
    PRIMARY KEY (path_hash, commit_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE link_name (
    link INTEGER NOT NULL, path BLOB NOT NULL,
    PRIMARY KEY (link, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE workspace (
    id INTEGER PRIMARY KEY, public_id BLOB NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE,
    default_branch TEXT NOT NULL, created_ns INTEGER NOT NULL,
    origin_commit INTEGER REFERENCES commit_object(id)
) STRICT;
CREATE TABLE workspace_commit (
    workspace INTEGER NOT NULL REFERENCES workspace(id),
    commit_id INTEGER NOT NULL REFERENCES commit_object(id),
    PRIMARY KEY (workspace, commit_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE branch (
    id INTEGER PRIMARY KEY AUTOINCREMENT, workspace INTEGER NOT NULL REFERENCES workspace(id),
    name TEXT NOT NULL, commit_id INTEGER NOT NULL REFERENCES commit_object(id),
    UNIQUE (workspace, name)
) STRICT;
CREATE TABLE tag (
    workspace INTEGER NOT NULL REFERENCES workspace(id), name TEXT NOT NULL,
    commit_id INTEGER NOT NULL REFERENCES commit_object(id),
    PRIMARY KEY (workspace, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE setting (
    workspace INTEGER NOT NULL REFERENCES workspace(id), key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (workspace, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE operation (
    id INTEGER PRIMARY KEY AUTOINCREMENT, workspace INTEGER NOT NULL REFERENCES workspace(id),
    time_ns INTEGER NOT NULL, author TEXT NOT NULL, kind TEXT NOT NULL, target TEXT NOT NULL,
    state_before TEXT, state_after TEXT, undoes INTEGER REFERENCES operation(id),
    details TEXT NOT NULL
) STRICT;
CREATE INDEX operation_by_workspace ON operation (workspace, id);
CREATE INDEX operation_by_target ON operation (workspace, target, id);

CREATE TABLE audit (
    sequence INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, principal TEXT NOT NULL,
    source TEXT NOT NULL, action TEXT NOT NULL, workspace BLOB, object TEXT NOT NULL,
    outcome TEXT NOT NULL, details TEXT NOT NULL, previous BLOB NOT NULL, hash BLOB NOT NULL
) STRICT;
CREATE INDEX audit_by_workspace ON audit (workspace, sequence);
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE TABLE overlay (
    branch INTEGER PRIMARY KEY REFERENCES branch(id) ON DELETE CASCADE,
    base BLOB NOT NULL, head BLOB NOT NULL,
    first_journal_segment INTEGER NOT NULL, next_inode_number INTEGER NOT NULL
) STRICT;
CREATE TABLE inode_map (
    branch INTEGER NOT NULL REFERENCES branch(id) ON DELETE CASCADE,
    parent INTEGER NOT NULL, name BLOB NOT NULL, number INTEGER NOT NULL,
    ctime_seconds INTEGER NOT NULL, ctime_nanoseconds INTEGER NOT NULL,
    PRIMARY KEY (branch, parent, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX inode_map_by_number ON inode_map (branch, number);
CREATE TABLE inode_sweep (
    branch INTEGER NOT NULL REFERENCES branch(id) ON DELETE CASCADE,
    directory INTEGER NOT NULL,
    PRIMARY KEY (branch, directory)
) STRICT, WITHOUT ROWID;
";
