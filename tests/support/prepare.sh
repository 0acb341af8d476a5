#!/usr/bin/env bash
# Makes a Debian 12 machine ready for the tests and the demo. Every step may run again.
#   prepare.sh                 packages, driver of the browser, Docker engine, both images, POSIX suites
#   prepare.sh STEP...         only: packages | browser | docker | small | tools | suites | stop
# Images are made here from Debian's packages; nothing is pulled from an image registry.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
state=${KURA_TEST_STATE:-${CARGO_TARGET_DIR:-$root/target}/e2e}
mkdir -p "$state"
export PATH=$PATH:/usr/sbin:/sbin

say() { echo "prepare: $*" >&2; }

packages() {
    local wanted=(docker.io fuse3 busybox-static debootstrap rsync attr acl sqlite3 iptables
        vim procps python3 python3-venv xz-utils e2fsprogs xfsprogs chromium fonts-dejavu-core) missing=()
    command -v git >/dev/null || wanted+=(git)
    command -v npm >/dev/null || wanted+=(nodejs npm)
    [ -x /usr/local/bin/docker-compose ] || wanted+=(docker-compose)
    local name
    for name in "${wanted[@]}"; do
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done
    [ ${#missing[@]} = 0 ] && return
    say "installing ${missing[*]}"
    apt-get update -qq
    # The engine is started below with the options that the tests need; not by the package.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
        >"$state/apt.log" 2>&1 || { tail -20 "$state/apt.log" >&2; exit 1; }
}

# What drives chromium in the tests of the page: from the npm registry, without a browser of its own.
browser() {
    local driver=$state/ui
    mkdir -p "$driver"
    cmp -s "$root/tests/ui/package-lock.json" "$driver/node_modules/.installed" && return
    say "installing the driver of the browser"
    cp "$root"/tests/ui/{package.json,package-lock.json,.npmrc} "$driver"
    (cd "$driver" && npm ci --silent --no-audit --no-fund --ignore-scripts)
    cp "$driver/package-lock.json" "$driver/node_modules/.installed"
}

docker_engine() {
    docker info >/dev/null 2>&1 && return
    local driver
    for driver in overlay2 vfs; do
        say "starting dockerd ($driver)"
        rm -f /var/run/docker.pid
        # No bridge and no firewall rules: containers of the tests have no network.
        setsid dockerd --storage-driver "$driver" --bridge=none --iptables=false --ip6tables=false \
            >"$state/dockerd.log" 2>&1 </dev/null &
        local pid=$!
        for _ in $(seq 150); do
            docker info >/dev/null 2>&1 && { echo "$pid" >"$state/dockerd.pid"; return; }
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.2
        done
        kill "$pid" 2>/dev/null || true
    done
    tail -20 "$state/dockerd.log" >&2
    say "dockerd does not start"
    exit 1
}

# A shell and the small tools: one static file and its links.
small() {
    docker image inspect kura-test:small >/dev/null 2>&1 && return
    say "making the image kura-test:small"
    local tree
    tree=$(mktemp -d)
    mkdir -p "$tree"/{bin,tmp,etc,proc,sys,dev,root}
    chmod 1777 "$tree/tmp"
    cp /bin/busybox "$tree/bin/busybox"
    local applet
    for applet in $("$tree/bin/busybox" --list); do
        [ "$applet" = busybox ] || ln -s busybox "$tree/bin/$applet"
    done
    echo root:x:0:0:root:/root:/bin/sh >"$tree/etc/passwd"
    tar -C "$tree" -c . | docker import - kura-test:small >/dev/null
    rm -rf "$tree"
}

# node, npm, git, vim, python3, sqlite3, rsync and friends.
tools() {
    docker image inspect kura-test:tools >/dev/null 2>&1 && return
    local cache=$state/tools-image.tar
    if ! [ -s "$cache" ]; then
        say "making the image kura-test:tools (debootstrap, some minutes)"
        local tree mirror
        tree=$(mktemp -d -p /var/tmp)
        mirror=$( (sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources; sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list) 2>/dev/null | head -1 || true)
        debootstrap --variant=minbase \
            --include=git,vim,nodejs,python3,sqlite3,rsync,attr,acl,procps,ca-certificates \
            bookworm "$tree" ${mirror:+"$mirror"} >"$state/debootstrap.log" 2>&1 || {
            tail -20 "$state/debootstrap.log" >&2
            rm -rf --one-file-system "$tree"
            exit 1
        }
        # npm itself comes from the npm registry: Debian's package would bring 300 more.
        (cd "$state" && npm pack --silent npm@10 >/dev/null)
        mkdir -p "$tree/usr/lib/node_modules/npm"
        tar -xzf "$state"/npm-10.*.tgz -C "$tree/usr/lib/node_modules/npm" --strip-components=1
        ln -s ../lib/node_modules/npm/bin/npm-cli.js "$tree/usr/bin/npm"
        chmod 755 "$tree/usr/lib/node_modules/npm/bin/npm-cli.js"
        rm -rf "$tree"/var/cache/apt/archives/*.deb "$tree"/var/lib/apt/lists/* "$tree"/usr/share/doc/* \
            "$tree"/usr/share/man/*
        tar -C "$tree" -cf "$cache.new" .
        mv "$cache.new" "$cache"
        rm -rf --one-file-system "$tree"
    fi
    docker import "$cache" kura-test:tools >/dev/null
}

# POSIX suites from the crate registry. In the debug profile: they are built for one run.
suites() {
    local crate
    for crate in pjdfstest@0.2.2 fsx@0.3.2; do
        grep -qs "^\"${crate/@/ } " "$state/suites/.crates.toml" && continue
        say "installing $crate"
        CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug --force --root "$state/suites" "$crate" \
            >"$state/suites.log" 2>&1 || { tail -20 "$state/suites.log" >&2; exit 1; }
    done
}

# Ends the engine, if this script started it.
stop() {
    [ -s "$state/dockerd.pid" ] || return 0
    kill "$(cat "$state/dockerd.pid")" 2>/dev/null || true
    rm -f "$state/dockerd.pid"
}

[ $# -gt 0 ] || set -- packages browser docker small tools suites
for step; do
    case $step in
        packages | browser | small | tools | suites | stop) "$step" ;;
        docker) docker_engine ;;
        *) echo "usage: $0 [packages|browser|docker|small|tools|suites|stop]..." >&2; exit 2 ;;
    esac
done
