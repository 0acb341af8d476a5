#!/usr/bin/env bash
# The whole story on real input: a project in a Docker volume, real tools in a container, history,
# rollback while the container runs, hand-over to a second container. Every claim is checked; the
# script ends with a failure if one does not hold.
#
# Needs Debian 12 as root with Rust; installs and starts the rest. KURA_BIN_DIR: programs to use
# instead of building them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
name=kura-demo
work=$(mktemp -d -p /var/tmp kura-demo.XXXXXX)
export KURA_STORE=$work/store NO_COLOR=1
checks=0

step() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
run() { printf '\033[2m$ %s\033[0m\n' "$*"; "$@"; }
ok() { checks=$((checks + 1)); printf '   ok: %s\n' "$*"; }
fail() { printf '   NOT SO: %s\n' "$*" >&2; exit 1; }
check() { local what=$1; shift; if "$@"; then ok "$what"; else fail "$what"; fi; }
same() { [ "$1" = "$2" ]; }
# A shell command in a container.
in_one() { docker exec -w /workspace "$name-one" bash -euo pipefail -c "$1"; }
in_two() { docker exec -w /workspace "$name-two" bash -euo pipefail -c "$1"; }
tree_of() { docker exec "$1" python3 /support/manifest.py /workspace; }

cleanup() {
    local code=$?
    set +e
    docker rm -f "$name-one" "$name-two" >/dev/null 2>&1
    docker volume rm -f "$name" "$name-next" >/dev/null 2>&1
    if [ -d "$KURA_STORE" ]; then
        [ $code = 0 ] || tail -n 40 "$KURA_STORE/log/computerd.log" >&2
        "$kura" volume-plugin --stop >/dev/null 2>&1
        "$kura" daemon stop --force >/dev/null 2>&1
    fi
    [ "${engine_was_there:-yes}" = yes ] || "$root/tests/support/prepare.sh" stop
    if grep -q " $work/" /proc/self/mounts; then
        grep -o " $work/[^ ]*" /proc/self/mounts | tac | xargs -r umount -l
    fi
    rm -rf --one-file-system "$work"
    exit $code
}
kura=true
trap cleanup EXIT

step "Programs, container engine, image"
docker info >/dev/null 2>&1 && engine_was_there=yes || engine_was_there=no
run "$root/tests/support/prepare.sh" packages docker tools
if [ -n "${KURA_BIN_DIR:-}" ]; then
    bin=$KURA_BIN_DIR
else
    (cd "$root" && run cargo build --locked --bins)
    bin=$target/debug
fi
kura=$bin/kura
kura() { printf '\033[2m$ kura %s\033[0m\n' "$*" >&2; "$kura" "$@"; }

step "A real project: npm packages with a lock file, and a git history from published versions"
project=$work/project
"$root/tests/support/npm-project.sh" "$project" "$target/e2e/npm-cache"
cp -r "$target/e2e/npm-cache" "$work/npm-cache"
export GIT_CONFIG_GLOBAL=/dev/null
who=(-c user.name=demo -c user.email=demo@example.invalid)
(
    cd "$project"
    git init -q -b main .
    echo node_modules/ >.gitignore
    git add -A && git "${who[@]}" commit -qm "project"
    for version in 4.17.3 4.18.3 4.19.2; do
        rm -rf vendor
        mkdir -p vendor
        npm pack --silent --pack-destination "$work" "express@$version" >/dev/null
        tar -xzf "$work/express-$version.tgz" -C vendor
        git add -A && git "${who[@]}" commit -qm "vendor express $version"
    done
    git log --oneline
)
kura init "$name" --from "$project"

step "The workspace as a Docker volume"
kura volume-plugin --detach
start_container() { # name volume
    docker run -d --name "$1" --network none --volume-driver kura -v "$2:/workspace" \
        -v "$work/npm-cache:/npm-cache" -v "$root/tests/support:/support:ro" -w /workspace \
        -e HOME=/root -e npm_config_registry="$(npm config get registry)" \
        -e GIT_AUTHOR_NAME=agent -e GIT_AUTHOR_EMAIL=agent@example.invalid \
        -e GIT_COMMITTER_NAME=agent -e GIT_COMMITTER_EMAIL=agent@example.invalid \
        kura-test:tools bash -c 'while :; do sleep 1000; done' >/dev/null
}
run start_container "$name-one" "$name"
check "the container sees the project" in_one '[ -f package-lock.json ] && git status --porcelain && git log --oneline | wc -l | grep -qx 4'

step "An agent works: npm ci, git, sed, vim"
npm_ci='npm ci --offline --cache /npm-cache --no-audit --no-fund --no-update-notifier --loglevel=error'
in_one "$npm_ci"
check "the installed program runs" in_one 'npm run -s check | grep "^check: "'
installed=$(kura commit "$name" -m "npm ci" | tail -1)
in_one "sed -i 's/the old version/sed/' src/server.js && printf ':%%s/three lines/four lines/\n:wq\n' | vim -u NONE -es src/server.js || true; cat src/server.js"
check "sed and vim wrote what they were told" in_one 'grep -q "hello from sed" src/server.js && grep -q "four lines" src/server.js'
in_one 'git commit -qam "edit the server" && git log --oneline -1 && git fsck --strict --no-dangling'
good=$(kura commit "$name" -m "server edited" | tail -1)
changed=$(kura diff "$name" "$installed" "$good" --name-status | grep -v $'\t\.git/' || true)
echo "$changed"
check "the commit shows the edit alone, no temporary names" same "$changed" "M	src/server.js"
tree_of "$name-one" >"$work/good.txt"
all=$(wc -l <"$work/good.txt")

step "A mistake: half of the tree is gone"
in_one 'rm -rf vendor src; cd node_modules; ls | awk "NR % 2" | xargs rm -rf; echo left: $(find /workspace | wc -l)'
check "the program is broken" in_one '! npm run -s check >/dev/null 2>&1'
bad=$(kura commit "$name" -m "cleaned up" | tail -1)
gone=$(kura diff "$name" "$good" "$bad" --name-status --no-renames | grep -c '^D' || true)
check "$gone of $all entries are gone" test "$gone" -gt $((all / 4))

step "Looking back"
kura log "$name"
kura diff "$name" "$good" "$bad" --stat | tail -5
kura show "$name" "$good" --stat | head -20
check "the log has every commit" same "$(kura log "$name" --ids | grep -c -e "$installed" -e "$good" -e "$bad")" 3

step "Rolling back while the container runs"
kura rollback "$name" "$good" --yes | tail -3
tree_of "$name-one" >"$work/back.txt"
check "all $all entries are back in the running container, to the last byte and attribute" cmp "$work/good.txt" "$work/back.txt"
check "the program runs again" in_one 'npm run -s check | grep "^check: "'
check "git agrees" in_one 'git fsck --strict --no-dangling && [ -z "$(git status --porcelain)" ]'
check "the deletion is still in the history" same "$(kura log "$name" --ids | grep -c "$bad")" 1

step "Handing over to a second container"
in_one 'echo "go on with the tests" >HANDOFF && setfattr -n user.state -v ready HANDOFF && ln HANDOFF hard-link && chmod 2750 src && touch -d "2001-02-03 04:05:06.000000007" HANDOFF'
tree_of "$name-one" >"$work/given.txt"
id=$(kura handoff "$name" --to second-agent -m "your turn" | tail -1)
echo "commit: $id"
check "the giver can't write any more" in_one '! touch too-late 2>/dev/null'
run docker volume create --driver kura -o workspace="$name" -o rev="$id" -o branch=second-agent \
    -o as=second-agent "$name-next"
start_container "$name-two" "$name-next"
tree_of "$name-two" >"$work/taken.txt"
sha256sum "$work/given.txt" "$work/taken.txt"
check "the second container has the same $(wc -l <"$work/taken.txt") entries, to the last byte and attribute" cmp "$work/given.txt" "$work/taken.txt"
in_two 'npm run -s check && sed -i s/sed/two/ src/server.js && git add -A && git commit -qm "second agent" && git log --oneline -2'
next=$(kura commit "$name" --branch second-agent -m "second agent" | tail -1)
changed=$(kura diff "$name" "$id" "$next" --name-status | grep -v $'\t\.git/' || true)
check "it went on from there: one file changed" same "$changed" "M	src/server.js"
check "the first container does not see it" in_one 'grep -q "hello from sed" src/server.js'
kura log "$name@second-agent" --oneline | head -3
kura audit --verify

printf '\n%s checks held: %s entries, %s commits, store %s\n' "$checks" "$all" \
    "$("$kura" log "$name@second-agent" --ids | wc -l)" "$(du -sh "$KURA_STORE" | cut -f1)"
