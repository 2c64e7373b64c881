# What a pool may reach: pools behind nginx, under the real unit.
# shellcheck shell=bash
say "the sandbox of a pool"
in_box mkdir -p /srv/sandbox/cgi /srv/sandbox/pages/one /srv/elsewhere
in_box sh -c 'echo told >/srv/elsewhere/secret; echo page >/srv/sandbox/pages/one/index.html; ln -s one /srv/sandbox/pages/current
  echo another >/srv/elsewhere/index.html'
in_box install -d -o www-data /var/lib/hostler/locked
# cgi NAME LINE: a script that says what the line says, its errors too.
cgi() {
  printf '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\n"\n(%s) 2>&1\n' "$2" |
    in_box sh -c 'cat >"$1"; chmod 755 "$1"' sh "/srv/sandbox/cgi/$1"
}
cgi secret 'cat /srv/elsewhere/secret'
cgi write 'echo kept >/var/lib/hostler/locked/file && cat /var/lib/hostler/locked/file'
cgi library 'echo x >/var/lib/hostler/file'
cgi connect "bash -c 'exec 3<>/dev/tcp/127.0.0.1/80 && echo connected'"
cgi temporary 'f=$(mktemp) && echo kept >$f && cat $f && perl -MFile::Temp -e "print File::Temp->new->filename"'
cgi tmp 'echo x >/tmp/x && rm /tmp/x && echo written'
# To where the journal hears it.
in_box sh -c 'cat >/srv/sandbox/cgi/complain; chmod 755 /srv/sandbox/cgi/complain' <<'END'
#!/bin/sh
printf 'Content-Type: text/plain\n\n'
cat /srv/elsewhere/secret || echo stopped
END
in_box sh -c 'cat >/etc/hostler/pools.d/sandbox.toml' <<'END'
# Nothing but files: it has a sandbox without being asked.
[pool.pages]
listen = [{ address = "unix:/run/hostler/pages.sock", group = "www-data" }]
user = "www-data"
runtime = "files"
root = "/srv/sandbox/pages/current"

[pool.locked]
listen = [{ address = "unix:/run/hostler/locked.sock", group = "www-data" }]
user = "www-data"
runtime = "cgi"
root = "/srv/sandbox/cgi"
sandbox = { write = ["/var/lib/hostler/locked"], network = false }

[pool.open]
listen = [{ address = "unix:/run/hostler/open.sock", group = "www-data" }]
user = "www-data"
runtime = "cgi"
root = "/srv/sandbox/cgi"
END
in_box sh -c 'cat >/etc/nginx/sites-enabled/sandbox.conf' <<'END'
server {
    listen 127.0.0.1:81;
    include fastcgi_params;
    location / { fastcgi_pass unix:/run/hostler/locked.sock; }
}
server {
    listen 127.0.0.1:82;
    include fastcgi_params;
    location / { fastcgi_pass unix:/run/hostler/open.sock; }
}
server {
    listen 127.0.0.1:83;
    include fastcgi_params;
    location / { fastcgi_pass unix:/run/hostler/pages.sock; }
}
END
ok "check finds no fault" in_box hostler check
ok "systemctl reload" in_box systemctl reload hostler.service
in_box systemctl reload nginx.service
says() { [[ $(in_box curl -sS --max-time 20 "http://127.0.0.1:$1" 2>&1) == *"$2"* ]] || { in_box curl -sS "http://127.0.0.1:$1"; return 1; }; }

ok "a pool of files serves its root" says 83/ page
ok "its worker has a filter of system calls and no new privileges" is \
  "$(in_box awk '/^(NoNewPrivs|Seccomp):/ { printf "%s ", $2 }' "/proc/$(in_box hostler status --json | python3 -c '
import json, sys
print(next(p for p in json.load(sys.stdin)["pools"] if p["name"] == "pages")["workers"][0]["pid"])')/status")" "1 2 "
in_box sh -c 'ln -sfn /srv/elsewhere /srv/sandbox/pages/current'
refused() { is "$(in_box curl -sS -o /dev/null -w '%{http_code}' "http://127.0.0.1:$1")" 403; }
ok "a root that leads elsewhere since is not served" wait_for refused 83/
ok "and the journal names both paths" journal_has "pool=pages.*root /srv/sandbox/pages/current leads to /srv/elsewhere now"
ok "after a reload, which means it, it is" in_box systemctl reload hostler.service
ok "as is seen" says 83/ another

ok "without a sandbox an app reads what its user may" says 82/secret told
ok "with one it is told the path that is refused" says 81/secret "/srv/elsewhere/secret: Permission denied"
ok "its complaint is in the journal under the pool's name" says 81/complain stopped
ok "with the path" wait_for journal_has "pool=locked.*/srv/elsewhere/secret: Permission denied"
ok "it writes where it may" says 81/write kept
ok "and not beside it" says 81/library "Permission denied"
ok "without a sandbox it reaches the network" says 82/connect connected
ok "with network = false it does not" says 81/connect "Permission denied"
ok "its temporary files are in a directory of its own" says 81/temporary "/locked/"
ok "and hold what it writes" says 81/temporary kept
ok "/tmp by its name is refused" says 81/tmp "/tmp/x: Permission denied"
ok "which a pool without a sandbox has" says 82/tmp written

say "an app that its sandbox keeps from starting"
in_box install -D -m 755 /mnt/probe /srv/elsewhere/probe
in_box sh -c 'cat >/etc/hostler/pools.d/kept-out.toml' <<'END'
[pool.kept-out]
listen = ["unix:/run/hostler/kept-out.sock"]
user = "www-data"
runtime = "native"
command = ["/srv/elsewhere/probe"]
sandbox = { network = false }
END
names_path() { grep -e "/srv/elsewhere/probe: Permission denied.*sandbox.read" >/dev/null <<<"$1" || { echo "$1"; return 1; }; }
ok "check names file, path and key" names_path "$(in_box hostler check 2>&1)"
ok "reload does" names_path "$(in_box hostler reload 2>&1)"
ok "status does" names_path "$(in_box hostler status --json 2>&1)"
ok "the journal does" journal_has "pool=kept-out.*/srv/elsewhere/probe: Permission denied.*sandbox.read"
in_box sed -i 's/^sandbox = .*/sandbox = { read = ["\/srv\/elsewhere\/nothing"] }/' /etc/hostler/pools.d/kept-out.toml
ok "a path that is not there is named too" grep -q "sandbox.read: /srv/elsewhere/nothing: .*No such file" <(in_box hostler check 2>&1)
in_box sed -i 's/^sandbox = .*/sandbox = { read = ["\/srv\/elsewhere"], network = false }/' /etc/hostler/pools.d/kept-out.toml
ok "with the path in sandbox.read it starts" in_box hostler reload kept-out

in_box rm /etc/hostler/pools.d/sandbox.toml /etc/hostler/pools.d/kept-out.toml /etc/nginx/sites-enabled/sandbox.conf
in_box systemctl reload nginx.service
ok "dropped, they are gone" in_box systemctl reload hostler.service
no_files() { in_box sh -c "! nsenter -t $(property MainPID) -m -- ls -d /tmp/hostler-tmp-*/locked"; }
ok "and with them their temporary files" wait_for no_files
in_box rm -rf /srv/sandbox /srv/elsewhere /var/lib/hostler/locked
