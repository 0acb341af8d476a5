//! Plans: what a verb would do, shown before it does it.

use computerd_api::v1::Plan;

use super::color::Palette;
use super::diff::role;
use super::sanitize::sanitize;

/// How many changed paths are listed; the rest is counted.
pub const MAX_LISTED: usize = 20;

/// The plan as text.
pub fn render(plan: &Plan, palette: Palette) -> String {
    let mut text = format!("{}\n", sanitize(plan.summary.as_bytes()));
    if plan.uncommitted_count > 0 {
        text.push_str(&format!(
            "  {} uncommitted {} committed first\n",
            plan.uncommitted_count,
            if plan.uncommitted_count == 1 {
                "change is"
            } else {
                "changes are"
            }
        ));
    }
    for line in &plan.references {
        text.push_str(&format!("  {}\n", sanitize(line.as_bytes())));
    }
    for change in plan.changes.iter().take(MAX_LISTED) {
        let letter = palette.paint(role(change.change), &change.change.letter().to_string());
        let path = match &change.old_path {
            Some(old) => format!("{} -> {}", sanitize(old.as_bytes()), display(&change.path)),
            None => display(&change.path),
        };
        text.push_str(&format!("  {letter} {path}\n"));
    }
    let listed = plan.changes.len().min(MAX_LISTED) as u64;
    if plan.change_count > listed {
        text.push_str(&format!("  … and {} more\n", plan.change_count - listed));
    }
    for conflict in plan.conflicts.iter().take(MAX_LISTED) {
        let path = display(&conflict.path);
        text.push_str(&format!("  conflict ({}) {path}\n", conflict.reason));
    }
    let listed = plan.conflicts.len().min(MAX_LISTED) as u64;
    if plan.conflict_count > listed {
        let more = plan.conflict_count - listed;
        text.push_str(&format!("  … and {more} more conflicts\n"));
    }
    for mount in &plan.mounts {
        text.push_str(&format!(
            "  seen at once in {}\n",
            sanitize(mount.as_bytes())
        ));
    }
    text
}

/// Whether the plan would change anything.
pub fn is_empty(plan: &Plan) -> bool {
    plan.change_count == 0 && plan.references.is_empty() && !plan.is_recorded
}

fn display(path: &computerd_api::v1::PathText) -> String {
    if path.as_bytes().is_empty() {
        ".".to_owned()
    } else {
        sanitize(path.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use computerd_api::v1::{ChangeKind, DiffEntry};

    #[test]
    fn long_plans_are_cut_and_counted() {
        let change = |number: u32| DiffEntry {
            change: ChangeKind::Deleted,
            path: format!("file{number}\n").into(),
            old_path: None,
            old: None,
            new: None,
            aspects: Vec::new(),
            is_binary: false,
            inserted_lines: None,
            deleted_lines: None,
            text: None,
        };
        let plan = Plan {
            summary: "set main back to 3f2a".into(),
            branch: "main".into(),
            head: "h".into(),
            target: None,
            uncommitted_count: 1,
            changes: (0..25).map(change).collect(),
            change_count: 1000,
            conflicts: vec![],
            conflict_count: 0,
            is_recorded: false,
            references: vec![],
            mounts: vec!["/work".into()],
        };
        let text = render(&plan, Palette::PLAIN);
        assert!(text.starts_with(
            "set main back to 3f2a\n  1 uncommitted change is committed first\n  D file0\\n\n"
        ));
        assert!(text.ends_with("  D file19\\n\n  … and 980 more\n  seen at once in /work\n"));
    }
}
