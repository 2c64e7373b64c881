# What went wrong in other hosts, each as a promise: memory, hardening, addresses. Other files have more of them.
# shellcheck shell=bash
say "fault 21: an app leaks"
main=$(property MainPID)
leak() { local n; for n in $(seq 40); do in_box curl -sSf --max-time 20 "http://127.0.0.1:8001/leak?kib=4096" >/dev/null || return 1; done; }
ok "40 requests that leak 4 MiB each are answered" leak
ok "workers over 32 MiB were replaced" sh -c '[ "$1" -ge 3 ]' sh "$(pool leaking recycled_memory)"
ok "none of them died of it" is "$(pool leaking crashes) $(pool leaking killed_memory)" "0 0"

say "fault 64: an app eats memory"
killed() { is "$(pool eating killed_memory)" "$1"; }
load
ok "its request gets no page" not in_box curl -sSf --max-time 20 "http://127.0.0.1:8002/leak?kib=204800"
ok "its worker is killed" wait_for killed 1
ok "and replaced" wait_for answers 8002/ probe
ok "the journal says why" wait_for journal_has "pool=eating.*its private memory passed the hard limit"
# Without limits of its own, the kernel acts for the service as a whole.
in_box systemctl set-property --runtime hostler.service MemoryMax=200M
in_box sed -i '/^\[pool.eating.memory\]/,/^$/d' /etc/hostler/pools.d/apps.toml
ok "without a limit of the pool" in_box systemctl reload hostler.service
in_box curl -sS --max-time 20 "http://127.0.0.1:8002/leak?kib=409600" >/dev/null 2>&1
ok "the kernel kills the worker that eats, for the service's limit" wait_for answers 8002/ probe
ok "it is counted" is "$(pool eating crashes)" 1
in_box systemctl set-property --runtime hostler.service MemoryMax=infinity
end_load
ok "the other pools lost no request" lost_nothing
ok "the supervisor did not notice" is "$(property MainPID) $(property ActiveState)" "$main active"

say "fault 66: the hardened unit and an app that writes"
in_box install -d -o www-data /srv/shop/uploads
ok "elsewhere than in its places it may not" grep -q "Read-only file system" <(in_box curl -sS http://127.0.0.1:8003/write)
# As packaging/README.md has it; the example names this very directory.
# shellcheck disable=SC2016
words=$(awk '/^## What the hardening asks of apps/ { on = 1; next } /^## / { on = 0 } on && /^    / { print substr($0, 5) }' "$root/packaging/README.md")
load
ok "the drop-in's words work" in_box sh -ec "sudo() { \"\$@\"; }; sudoedit() { :; }; $words"
end_load
ok "the restart that it asks for refuses nobody" refused_nobody
ok "now it writes" answers 8003/write written

say "fault 70: the address is in use"
nsenter -t "$box_leader" -n -- python3 -c '
import socket, time
held = socket.create_server(("127.0.0.1", 8090))
time.sleep(60)' &
holder=$!
holds() { in_box sh -c 'grep -q ":1F9A .* 0A " /proc/net/tcp'; }
wait_for holds
in_box sh -c 'cat >/etc/hostler/pools.d/taken.toml' <<'END'
[pool.taken]
listen = [{ address = "tcp:127.0.0.1:8090", protocol = "http" }]
user = "www-data"
runtime = "files"
root = "/usr/share/hostler/www"
END
load
ok "reload says so" grep -q "another process listens there" <(in_box hostler reload 2>&1)
forget_starts
ok "the service starts with it all the same" in_box systemctl restart hostler.service
end_load
ok "no other pool refused anybody" refused_nobody
kill "$holder"
wait "$holder" 2>/dev/null
serves() { in_box curl -sSf http://127.0.0.1:8090/ | grep -q "Hostler works"; }
ok "when the address is free the pool serves by itself" wait_for serves
in_box rm /etc/hostler/pools.d/taken.toml
ok "a pool that is dropped" in_box systemctl reload hostler.service
closed() { ! in_box sh -c 'grep -q ":1F9A .* 0A " /proc/net/tcp'; }
ok "gives its address free" wait_for closed
forget_starts
ok "for good, also in systemd's store" in_box systemctl restart hostler.service
ok "where nobody holds it then" closed
