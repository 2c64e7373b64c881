# Pools beside the first one: its page on a TCP port as well, and apps that leak, eat memory and write files.
# shellcheck shell=bash
say "more pools"
in_box install -D -m 755 /mnt/probe /usr/local/bin/probe
in_box mkdir -p /srv/shop/cgi
# Says what became of writing a file.
in_box sh -c 'cat >/srv/shop/cgi/write; chmod 755 /srv/shop/cgi/write' <<'END'
#!/bin/sh
printf 'Content-Type: text/plain\n\n'
(echo x >/srv/shop/uploads/x && echo written) 2>&1
END
in_box sh -c 'cat >/etc/hostler/pools.d/apps.toml' <<'END'
[pool.port]
listen = [{ address = "tcp:127.0.0.1:8080", protocol = "http" }]
user = "www-data"
runtime = "files"
root = "/usr/share/hostler/www"
[pool.port.workers]
model = "static"
count = 1

[pool.leaking]
listen = [{ address = "tcp:127.0.0.1:8001", protocol = "http" }]
user = "nobody"
runtime = "native"
command = ["/usr/local/bin/probe"]
[pool.leaking.workers]
model = "static"
count = 1
[pool.leaking.memory]
soft = "32MiB"

[pool.eating]
listen = [{ address = "tcp:127.0.0.1:8002", protocol = "http" }]
user = "nobody"
runtime = "native"
command = ["/usr/local/bin/probe"]
[pool.eating.workers]
model = "static"
count = 1
[pool.eating.memory]
hard = "48MiB"

[pool.shop]
listen = [{ address = "tcp:127.0.0.1:8003", protocol = "http" }]
user = "www-data"
runtime = "cgi"
root = "/srv/shop/cgi"
[pool.shop.workers]
model = "static"
count = 1
END
ok "check finds no fault" in_box hostler check
ok "systemctl reload starts them" in_box systemctl reload hostler.service
answers() { is "$(in_box curl -sS --max-time 20 "http://127.0.0.1:$1" 2>&1)" "$2"; }
for port in 8001 8002; do ok "an app answers on $port" answers $port/ probe; done
