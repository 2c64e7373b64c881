# Remove, reinstall, purge.
# shellcheck shell=bash
say "remove, and install again"
in_box mkdir -p /etc/hostler/www-data
in_box sh -c 'cat >/etc/hostler/www-data/hostler.toml' <<END
[supervisor]
control = "unix:/run/hostler-www-data/control.sock"
[pool.site]
listen = ["unix:/run/hostler-www-data/site.sock"]
runtime = "files"
root = "/usr/share/hostler/www"
END
ok "somebody's own Hostler runs too" in_box systemctl start hostler@www-data.service
ok "apt removes it" in_box apt-get remove -q -y hostler
ok "nothing runs" not in_box pgrep -x hostler
ok "no socket is left" not in_box test -e /run/hostler -o -e /run/hostler-www-data
ok "the config is" in_box grep -q "a local change" /etc/hostler/hostler.toml
ok "apt installs it again" apt_install "$(basename "$deb")"
ok "with the local change" in_box grep -q "a local change" /etc/hostler/hostler.toml
ok "it serves" wait_for page

# What the stories themselves brought along.
in_box rm -rf /etc/hostler/www-data /etc/hostler/pools.d/apps.toml /etc/systemd/system/hostler.service.d /srv/shop /usr/local/bin/probe

say "purge"
ok "apt purges it" in_box apt-get purge -q -y hostler
ok "nothing runs" not in_box pgrep -x hostler
# What the README's words themselves put elsewhere is the site of nginx, which stood there before.
snapshot | grep -v '/__pycache__' | sort >"$place.after"
left() { comm -13 <(sort "$place.before") "$place.after" | grep -vE '^/run/(systemd|nginx|dbus|user|lock|log|utmp|udev|credentials|mount|shm|sudo|initctl|host)' || true; }
ok "nothing is left" is "$(left)" ""
