#!/usr/bin/env bash
# Prints the CASE_* settings that let the outside cases drive Kura (evaluate the output).
#   cases-env.sh KURA STORE WORKSPACE DIRECTORY [PEER_DIRECTORY]
#   cases-env.sh verb NAME          what the settings call; KURA, KURA_STORE and WORKSPACE are set
set -eu
here=$(cd "$(dirname "$0")" && pwd)

if [ "$1" != verb ]; then
    kura=$1 store=$2 workspace=$3 directory=$4 peer=${5:-}
    for name in MOUNT UMOUNT KILL OPS COMMIT ROLLBACK DIFF UNDO OPEN HANDIN CLOSE PURGE LOG; do
        echo "export CASE_$name='KURA=$kura KURA_STORE=$store WORKSPACE=$workspace PEER=$peer $here/cases-env.sh verb $name'"
    done
    echo "export CASE_STORE='$store'"
    echo "export CASE_IMAGE=kura-test:small"
    [ -z "$peer" ] || echo "export CASE_PEER_DIR='$peer'"
    exit
fi

export KURA_STORE NO_COLOR=1
kura() { "$KURA" "$@"; }
# One field of the mount at a directory.
field_of_mount() {
    kura ls-mounts --json | python3 -c '
import json, sys
print([m for m in json.load(sys.stdin)["mounts"] if m["mountpoint"] == sys.argv[1]][0][sys.argv[2]])' "$1" "$2"
}
case $2 in
    MOUNT)
        kura mount "$WORKSPACE" "$DIR" --allow-other --repair
        [ -z "$PEER" ] || kura mount "$WORKSPACE" "$PEER" --allow-other --repair
        ;;
    UMOUNT)
        [ -z "$PEER" ] || kura umount "$PEER"
        kura umount "$DIR"
        ;;
    KILL)
        pids=$(kura daemon status --json | python3 -c 'import json,sys; d=json.load(sys.stdin); d=d.get("daemon",d); print(d["keeper_pid"], d["pid"])')
        for pid in $pids; do kill -9 "$pid" 2>/dev/null || true; done
        for pid in $pids; do while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done; done
        ;;
    OPS)
        # Without a count the cases must not pass by accident.
        field_of_mount "$DIR" request_count
        ;;
    COMMIT) kura commit "$WORKSPACE" -m "${MSG:-}" -q ;;
    ROLLBACK) kura rollback "$WORKSPACE" "$COMMIT" --yes ;;
    UNDO) kura undo "$WORKSPACE" --yes ;;
    LOG) kura log "$WORKSPACE" --ids ;;
    # Raw names, one change a line as the cases read it.
    DIFF) kura diff "$WORKSPACE" "$FROM" ${TO:+"$TO"} --name-status --no-renames -z | tr '\0' '\n' ;;
    OPEN) kura mount "$WORKSPACE@$COMMIT" "$DEST" --branch "case-$$-$RANDOM" --allow-other ;;
    HANDIN)
        branch=$(field_of_mount "$DEST" branch)
        kura merge "$WORKSPACE" "$branch"
        ;;
    CLOSE) kura umount "$DEST" ;;
    PURGE) kura purge "$WORKSPACE" "$PATHNAME" --yes ;;
esac
