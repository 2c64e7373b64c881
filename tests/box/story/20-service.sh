# Reload, restart, crash and watchdog under load.
# shellcheck shell=bash
# shellcheck disable=SC2119
say "fault 36: reload under load, which says when the new workers serve"
generation=$(pool www generation)
load
for _ in 1 2 3; do ok "systemctl reload" in_box systemctl reload hostler.service; done
ok "when it comes back the new workers serve" is "$(pool www generation)" $((generation + 3))
end_load
ok "three reloads: no request failed" lost_nothing

say "fault 22: a faulty pool"
load
in_box sh -c 'printf "[pool.bad]\nuser = \"nobody-knows\"\nruntme = \"files\"\n" >/etc/hostler/pools.d/bad.toml'
ok "check names file, line and column" sh -c 'echo "$1" | grep -q "/etc/hostler/pools.d/bad.toml:2:[0-9]*: "' sh "$(in_box hostler check 2>&1 || true)"
ok "and knows the word that was meant" grep -q 'unknown key "runtme".*did you mean "runtime"' <(in_box hostler check 2>&1)
ok "systemctl reload fails" not in_box systemctl reload hostler.service
ok "the service is active" is "$(property ActiveState)" active
forget_starts
ok "it starts with the faulty pool there" in_box systemctl restart hostler.service
end_load
ok "the other pool refused nobody" refused_nobody
in_box rm /etc/hostler/pools.d/bad.toml
ok "without it reload works" in_box systemctl reload hostler.service

say "fault 30: the socket's mode at a reload"
in_box sed -i 's/mode = "0660"/mode = "0666"/' /etc/hostler/hostler.toml
ok "systemctl reload" in_box systemctl reload hostler.service
ok "it is as the config says" is "$(in_box stat -c '%a %U %G' /run/hostler/www.sock)" "666 root www-data"
in_box sed -i 's/mode = "0666"/mode = "0660"/' /etc/hostler/hostler.toml
in_box systemctl reload hostler.service
ok "and again" is "$(in_box stat -c '%a' /run/hostler/www.sock)" 660

say "fault 70: restart under load, on a Unix socket and a TCP port"
pid=$(property MainPID)
load
forget_starts
ok "systemctl restart" in_box systemctl restart hostler.service
forget_starts
ok "systemctl restart once more" in_box systemctl restart hostler.service
ok "another process" not is "$(property MainPID)" "$pid"
end_load
ok "two restarts: no connection was refused" refused_nobody

say "a crash of the supervisor under load"
pid=$(property MainPID)
load
shoot "$pid"
came_back() { [ "$(property ActiveState)" = active ] && [ "$(property MainPID)" != "$pid" ]; }
ok "systemd starts another" wait_for came_back
end_load
ok "SIGKILL: no connection was refused" refused_nobody
# A restart before and a crash after it: two generations of kept listeners.
forget_starts
in_box systemctl restart hostler.service
pid=$(property MainPID)
load
shoot "$pid"
ok "and again after a restart" wait_for came_back
end_load
ok "no connection was refused" refused_nobody
# Each listener, and the two ends of each pool's hand-over queue.
kept_wanted() { in_box hostler status --json | python3 -c '
import json, sys
pools = json.load(sys.stdin)["pools"]
print(sum(len(pool["listeners"]) + 2 for pool in pools))'; }
ok "systemd keeps each listener and queue once" is "$(property NFileDescriptorStore)" "$(kept_wanted)"

say "a socket file that somebody removed, then a crash"
in_box rm /run/hostler/www.sock
ok "systemctl reload makes it again" in_box systemctl reload hostler.service
ok "systemd keeps the new listener in the place of the old" is "$(property NFileDescriptorStore)" "$(kept_wanted)"
pid=$(property MainPID)
load
shoot "$pid"
ok "systemd starts another" wait_for came_back
end_load
ok "no connection was refused" refused_nobody

say "a supervisor that hangs"
in_box mkdir -p /run/systemd/system/hostler.service.d
in_box sh -c 'printf "[Service]\nWatchdogSec=3s\n" >/run/systemd/system/hostler.service.d/watchdog.conf'
in_box systemctl daemon-reload
forget_starts
in_box systemctl restart hostler.service
pid=$(property MainPID)
restarts=$(property NRestarts)
load
sleep 5
ok "one that does not hang is left alone" is "$(property MainPID)" "$pid"
[ "$pid" -gt 1 ] && in_box kill -STOP "$pid"
ok "systemd starts another" wait_for came_back
end_load
ok "no connection was refused" refused_nobody
ok "it was the watchdog" sh -c '[ "$1" -gt "$2" ]' sh "$(property NRestarts)" "$restarts"
in_box rm -r /run/systemd/system/hostler.service.d
in_box systemctl daemon-reload
forget_starts
in_box systemctl restart hostler.service

say "fault 60: /run/hostler is gone"
in_box systemctl stop hostler.service
in_box rm -rf /run/hostler
ok "systemctl start makes it" in_box systemctl start hostler.service
ok "the page is there" page
