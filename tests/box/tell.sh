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

page() { [[ $(in_box curl -sS --max-time 20 http://localhost/) == *"Hostler works"* ]]; }
property() { in_box systemctl show --property "$1" --value hostler.service; }
is() { [ "$1" = "$2" ] || { echo "it is \"$1\", not \"$2\""; return 1; }; }
journal_has() { in_box journalctl --no-pager --quiet --output=cat --unit hostler.service | grep -q -e "$1"; }
pool() { in_box hostler status --json | python3 -c '
import json, sys
pool = next(pool for pool in json.load(sys.stdin)["pools"] if pool["name"] == sys.argv[1])
print(pool[sys.argv[2]])' "$1" "$2"; }

# Load from here on: through nginx, and straight to the socket of the pool. Runs in the box's network, with the tools
# of this machine.
load() {
  nsenter -t "$box_leader" -n -- python3 "$here/load.py" http 127.0.0.1:80 >"$place.http" &
  loads=($!)
  python3 "$here/load.py" fastcgi "/proc/$box_leader/root/run/hostler/www.sock" >"$place.fastcgi" &
  loads+=($!)
  sleep 1
}

# Ends the load and says what it saw.
end_load() {
  sleep 1
  kill "${loads[@]}"
  wait "${loads[@]}" || true
  loads=()
  echo "      nginx:  $(cat "$place.http")"
  echo "      socket: $(cat "$place.fastcgi")"
}

end_loads() {
  [ ${#loads[@]} = 0 ] || kill "${loads[@]}" 2>/dev/null || true
  rm -f "$place".*
}

counted() { python3 -c '
import json, sys
print(sum(json.load(open(file))[sys.argv[1]] for file in sys.argv[2:]))' "$@"; }

# Of the load that ended.
lost_nothing() {
  [ "$(counted right "$place.http")" -gt 50 ] && [ "$(counted right "$place.fastcgi")" -gt 50 ] &&
    [ "$(counted wrong "$place.http" "$place.fastcgi")" = 0 ] && [ "$(counted refused "$place.http" "$place.fastcgi")" = 0 ]
}

refused_nobody() {
  [ "$(counted right "$place.http")" -gt 50 ] && [ "$(counted right "$place.fastcgi")" -gt 50 ] &&
    [ "$(counted refused "$place.http" "$place.fastcgi")" = 0 ]
}

# make_versions FILE DIRECTORY: the same program as packages of an older and two newer versions.
make_versions() {
  local version name
  version=$(dpkg-deb -f "$1" Version)
  mkdir -p "$2"
  for name in "$version~old" "$version+new" "$version+newer"; do
    rm -rf "$place.repack"
    dpkg-deb -R "$1" "$place.repack"
    sed -i "s/^Version: .*/Version: $name/" "$place.repack/DEBIAN/control"
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
