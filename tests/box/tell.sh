# The words in which tests/box/story is told: ok, load, end_load, and what a box is asked. To be sourced after box.sh.
# shellcheck shell=bash

passed=0
failed=0
loads=()

say() { printf '\n=== %s\n' "$*"; }

# ok PROMISE COMMAND...: whether the command succeeds.
ok() {
  local promise=$1
  shift
  if "$@" >"$place.out" 2>&1; then
    passed=$((passed + 1))
    echo "ok    $promise"
  else
    failed=$((failed + 1))
    echo "FAIL  $promise"
    echo "      $*"
    sed 's/^/      | /' "$place.out" | tail -15
  fi
  rm -f "$place.out"
}

not() { ! "$@"; }

# Until a command succeeds; at most 60 s.
wait_for() {
  local end=$((SECONDS + 60))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.1
  done
}

# As a machine that upgrades by itself does it: the config that was changed here stays.
apt_install() { in_box apt-get install -q -y --allow-downgrades -o Dpkg::Options::=--force-confold "/mnt/$1"; }
page() { [[ $(in_box curl -sS --max-time 20 http://localhost/) == *"Hostler works"* ]]; }
property() { in_box systemctl show --property "$1" --value hostler.service; }
is() { [ "$1" = "$2" ] || { echo "it is \"$1\", not \"$2\""; return 1; }; }
# Read to the end, so that journalctl never finds its reader gone.
journal_has() { in_box journalctl --no-pager --quiet --output=cat --unit hostler.service | grep -e "$1" >/dev/null; }
pool() { in_box hostler status --json | python3 -c '
import json, sys
pool = next(pool for pool in json.load(sys.stdin)["pools"] if pool["name"] == sys.argv[1])
print(pool[sys.argv[2]] if sys.argv[2] in pool else pool["totals"][sys.argv[2]])' "$1" "$2"; }

# Load from here on: through nginx, straight to the pool's Unix socket, and to its TCP port. Runs in the box's network,
# with the tools of this machine.
load() {
  nginx_refused=$(nginx_was_refused)
  # What the last load said is not taken for this one's.
  rm -f "$place".{nginx,socket,port}
  nsenter -t "$box_leader" -n -- python3 "$here/load.py" http 127.0.0.1:80 >"$place.nginx" &
  loads=($!)
  python3 "$here/load.py" fastcgi "/proc/$box_leader/root/run/hostler/www.sock" >"$place.socket" &
  loads+=($!)
  nsenter -t "$box_leader" -n -- python3 "$here/load.py" http 127.0.0.1:8080 >"$place.port" &
  loads+=($!)
  under_way nginx socket port
}

# Until each load has had an answer.
under_way() {
  local from
  for from in "$@"; do wait_for grep -q begun "$place.$from"; done
}

# Ends the load and says what it saw.
end_load() {
  sleep 0.3
  kill "${loads[@]}"
  wait "${loads[@]}" || true
  loads=()
  for from in nginx socket port; do
    printf '      %-6s %s\n' "$from" "$(tail -1 "$place.$from" | cut -c1-600)"
  done
}

end_loads() {
  [ ${#loads[@]} = 0 ] || kill "${loads[@]}" 2>/dev/null || true
  rm -f "$place".*
}

counted() { python3 -c '
import json, sys
print(sum(json.loads(open(file).readlines()[-1])[sys.argv[1]] for file in sys.argv[2:]))' "$@"; }

# Of the load that ended.
refused_nobody() {
  local from
  for from in nginx socket port; do [ "$(counted right "$place.$from")" -ge 50 ] || return 1; done
  [ "$(counted refused "$place".{nginx,socket,port})" = 0 ] && is "$(nginx_was_refused)" "$nginx_refused"
}

# How often nginx was refused: its clients see 502, for that and for other reasons.
nginx_was_refused() { in_box grep -c 'connect() to .* failed' /var/log/nginx/error.log; }

lost_nothing() {
  refused_nobody && [ "$(counted wrong "$place".{nginx,socket,port})" = 0 ] && return
  # What may be why: all but the supervisor's daily business.
  in_box journalctl --no-pager --quiet --unit hostler.service | grep -v " INFO \| DEBUG " | tail -12
  return 1
}

# make_versions FILE DIRECTORY: packages of an older version and of two newer ones. Until there is a former release, its
# program is the one of the debug profile with the number 0.0.1 written over its own: another program, that says so.
# HOSTLER_FORMER names one in its place, such as a build of an earlier commit.
make_versions() {
  local version name
  version=$(dpkg-deb -f "$1" Version)
  mkdir -p "$2"
  python3 -c '
import sys
program, former, version = open(sys.argv[1], "rb").read(), sys.argv[2], sys.argv[3]
assert len(version) == 5, "the number that is written over must be of the same length"
open(former, "wb").write(program.replace(version.encode(), b"0.0.1"))' \
    "${HOSTLER_FORMER:-$target/debug/hostler}" "$place.former" "$version"
  for name in "$version~old" "$version+new" "$version+newer"; do
    rm -rf "$place.repack"
    dpkg-deb -R "$1" "$place.repack"
    sed -i "s/^Version: .*/Version: $name/" "$place.repack/DEBIAN/control"
    [ "$name" != "$version~old" ] || install -m 755 "$place.former" "$place.repack/usr/bin/hostler"
    # The newest has another config than the one that was changed here.
    [ "$name" != "$version+newer" ] || echo "# of a newer version" >>"$place.repack/etc/hostler/hostler.toml"
    dpkg-deb --root-owner-group -Zgzip -z1 -b "$place.repack" "$2/${name#"$version"}.deb" >/dev/null
  done
  rm -rf "$place.repack"
}

# All files of the box but those of the running system itself and of apt and dpkg.
snapshot() {
  in_box find / -xdev \( -path /proc -o -path /sys -o -path /tmp -o -path /var/tmp -o -path /mnt -o -path /dev \
    -o -path /var/log -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /var/lib/systemd \
    -o -path /var/lib/nginx -o -path /var/lib/logrotate \) -prune -o -print
  in_box find /run /var/log /var/lib/systemd /var/cache -name '*hostler*' -not -path '/run/systemd/*' -print
}
