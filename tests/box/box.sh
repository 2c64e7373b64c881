# A Debian 12 with a real systemd in a container, for scripts to source: make_tree, boot, in_box, shut_down.
#
# Each boot is of the same tree with an overlay that is forgotten. The box has its own processes, mounts and network
# (the loopback device alone). It boots where this machine's own PID 1 is systemd, and where it is not. Needs root.
# shellcheck shell=bash

box_state=
box_leader=
box_nspawn=

# need_tools COMMAND PACKAGE...: installs what is lacking.
need_tools() {
  local lacking=()
  while [ $# -gt 0 ]; do
    command -v "$1" >/dev/null || lacking+=("$2")
    shift 2
  done
  if [ ${#lacking[@]} -gt 0 ]; then
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${lacking[@]}"
  fi
}

# Where this machine has its packages from.
apt_sources() {
  local sources=/etc/apt/sources.list.d/debian.sources
  [ -e $sources ] || sources=/etc/apt/sources.list
  echo $sources
}

need_box_tools() {
  need_tools mmdebstrap mmdebstrap systemd-nspawn systemd-container python3 python3 nsenter util-linux
}

# make_tree DIRECTORY: Debian 12 with systemd and nginx from this machine's own mirror, once.
make_tree() {
  [ ! -e "$1/etc/debian_version" ] || return 0
  rm -rf "$1.part"
  mkdir -p "$(dirname "$1")"
  mmdebstrap --quiet --variant=minbase --mode=root \
    --include=systemd,systemd-sysv,dbus,libpam-systemd,dbus-user-session,nginx-light,logrotate,curl,procps \
    bookworm "$1.part" "$(apt_sources)"
  chroot "$1.part" systemctl --quiet mask systemd-networkd-wait-online.service apt-daily.timer apt-daily-upgrade.timer
  mv "$1.part" "$1"
}

# boot TREE DIRECTORY: starts the box; DIRECTORY is its /mnt.
boot() {
  box_state=$(mktemp -d)
  local controller key own
  # Below our own cgroup of each hierarchy, so that what the box makes goes with it.
  for controller in memory pids cpu cpuacct systemd unified; do
    [ -d "/sys/fs/cgroup/$controller" ] || continue
    case $controller in systemd) key=name=systemd ;; unified) key= ;; *) key=$controller ;; esac
    own=$(awk -F: -v key="$key" '{ n = split($2, names, ","); for (i = 1; i <= n || i == 1; i++)
      if (names[i] == key) { print $3; exit } }' /proc/self/cgroup)
    own=/sys/fs/cgroup/$controller${own%/}/hostler-box-$$
    mkdir -p "$own"
    echo "$own" >>"$box_state/cgroups"
  done
  # By the three calls a worker enters its pool's sandbox; systemd-nspawn 252 knows them in none of its sets.
  # The first process is a shell: systemd-nspawn mounts the controllers of cgroup v1 read-only, where there are any,
  # and systemd could not set a limit.
  # shellcheck disable=SC2016
  local init='for c in memory pids cpu cpuacct; do
    [ ! -d /sys/fs/cgroup/$c ] || mount -o remount,bind,rw /sys/fs/cgroup/$c
  done
  exec /lib/systemd/systemd systemd.show_status=no'
  (
    [ ! -e "$box_state/cgroups" ] || while read -r own; do echo "$BASHPID" >"$own/cgroup.procs"; done <"$box_state/cgroups"
    exec setsid systemd-nspawn --quiet --register=no --keep-unit --private-network --volatile=overlay --console=pipe \
      --system-call-filter="landlock_create_ruleset landlock_add_rule landlock_restrict_self" \
      --machine="hostler-box-$$" --kill-signal=SIGRTMIN+3 --bind-ro="$2:/mnt" -D "$1" /bin/sh -c "$init"
  ) </dev/null >"$box_state/console" 2>&1 &
  box_nspawn=$!
  local end=$((SECONDS + 120)) state=
  while [ $SECONDS -lt $end ]; do
    [ -d "/proc/$box_nspawn" ] || break
    if [ -z "$box_leader" ]; then
      local child
      for child in $(cat "/proc/$box_nspawn/task/$box_nspawn/children" 2>/dev/null); do
        [ "$(awk '/^NSpid:/ { print (NF > 2) ? $NF : 0 }' "/proc/$child/status" 2>/dev/null)" = 1 ] || continue
        grep -qa systemd "/proc/$child/cmdline" 2>/dev/null && box_leader=$child
      done
    fi
    if [ -n "$box_leader" ]; then
      state=$(in_box systemctl is-system-running 2>/dev/null || true)
      case $state in running | degraded) return 0 ;; esac
    fi
    sleep 0.1
  done
  echo "box: systemd did not come up (${state:-no process}):" >&2
  cat "$box_state/console" >&2
  return 1
}

# in_box COMMAND...: runs it there, as root.
in_box() {
  nsenter -t "$box_leader" -a -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

# The unit gives up after six starts in half a minute; a story starts it more often than any person would.
forget_starts() {
  in_box systemctl reset-failed hostler.service 'hostler@*.service' 2>/dev/null || true
}

# shoot PID: SIGKILL, for a crash. 0, what systemd tells of a service that does not run, would be the script itself.
shoot() {
  forget_starts
  [ "$1" -gt 1 ] && in_box kill -KILL "$1"
}

# Ends the box and all that is in it.
shut_down() {
  [ -n "$box_state" ] || return 0
  local end pid own
  if [ -n "$box_leader" ] && [ -d "/proc/$box_leader" ]; then
    timeout 5 nsenter -t "$box_leader" -a -- systemctl --no-block poweroff >/dev/null 2>&1 || true
  fi
  end=$((SECONDS + 20))
  while [ -e "/proc/$box_nspawn/exe" ] && [ $SECONDS -lt $end ]; do sleep 0.1; done
  for pid in $box_leader $box_nspawn; do
    [ ! -e "/proc/$pid/exe" ] || kill -KILL "$pid" 2>/dev/null || true
  done
  wait "$box_nspawn" 2>/dev/null || true
  if [ -e "$box_state/cgroups" ]; then
    while read -r own; do
      [ ! -d "$own" ] || find "$own" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done <"$box_state/cgroups"
  fi
  rm -rf "$box_state"
  box_state='' box_leader='' box_nspawn=''
}
