# The package's own life under load: upgrade, downgrade, broken config, log rotation.
# shellcheck shell=bash
installed() { in_box dpkg-query -W -f '${Version}' hostler; }
version=$(dpkg-deb -f "$deb" Version)
runs_what_is_installed() {
  is "$(in_box readlink "/proc/$(property MainPID)/exe")" /usr/bin/hostler && in_box cmp "/proc/$(property MainPID)/exe" /usr/bin/hostler
}
install() { apt_install "others/$1.deb"; }

say "upgrade from the previous version under load"
ok "the older one is installed" install '~old'
forget_starts
ok "it runs" in_box systemctl restart hostler.service
said() { in_box hostler status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])'; }
ok "and says that it is older" is "$(said) $(in_box hostler --version)" "0.0.1 hostler 0.0.1"
pid=$(property MainPID)
in_box sed -i '1i # a local change' /etc/hostler/hostler.toml
load
ok "apt installs the newer one" install +new
ok "it is there" is "$(installed)" "$version+new"
end_load
ok "upgrade: no request failed" lost_nothing
ok "under the same process id" is "$(property MainPID)" "$pid"
ok "the new program runs" runs_what_is_installed
ok "and says so" is "$(said)" "$version"
ok "the journal tells" wait_for journal_has "the new program goes on"
ok "fault 36: systemd thinks it active after a re-exec" is "$(property ActiveState)" active
ok "the local change to the config is there" in_box grep -q "a local change" /etc/hostler/hostler.toml
ok "reload works as before" in_box systemctl reload hostler.service
ok "fault 66: the drop-in for the app is kept" answers 8003/write written

say "downgrade under load"
load
ok "apt installs the older one" install '~old'
end_load
ok "downgrade: no request failed" lost_nothing
ok "the older program runs" runs_what_is_installed
ok "and says so" is "$(said)" 0.0.1

say "maintainer scripts, each call of dpkg twice"
# As a distribution's reviewer asks: idempotent, and tolerant of a call that was not expected.
cat >"$place/scripts" <<'END'
set -eu
export DPKG_MAINTSCRIPT_PACKAGE=hostler
cd /var/lib/dpkg/info
for _ in 1 2; do
	./hostler.preinst upgrade 0.0.1
	./hostler.prerm upgrade 0.0.1
	./hostler.prerm failed-upgrade 0.0.1
	./hostler.postrm upgrade 0.0.1
	./hostler.postrm failed-upgrade 0.0.1
	./hostler.postrm abort-upgrade 0.0.1
	./hostler.postrm abort-install
	./hostler.preinst abort-upgrade 0.0.1
	./hostler.prerm deconfigure in-favour other 1
	./hostler.postinst abort-upgrade 0.0.1
	./hostler.postinst abort-deconfigure in-favour other 1
	./hostler.postinst abort-remove
	./hostler.postinst configure 0.0.1
done
END
chmod 755 "$place/scripts"
restarts=$(property NRestarts)
load
ok "all end well" in_box sh /mnt/scripts
end_load
ok "no request failed" lost_nothing
ok "systemd restarted nothing" is "$(property NRestarts)" "$restarts"
ok "without a running systemd too" in_box unshare --mount sh -c \
  'mount -t tmpfs none /run && DPKG_MAINTSCRIPT_PACKAGE=hostler /var/lib/dpkg/info/hostler.postinst configure'

say "a restart after upgrades"
load
forget_starts
ok "systemctl restart" in_box systemctl restart hostler.service
end_load
ok "no connection was refused" refused_nobody

say "a broken config and apt"
in_box sh -c 'cp -p /etc/hostler/hostler.toml /root/good.toml; echo "this is no toml" >>/etc/hostler/hostler.toml'
load
ok "apt upgrades all the same" install +new
end_load
ok "no request failed: the old settings serve on" lost_nothing
in_box systemctl stop hostler.service
ok "with it the service does not start" not in_box systemctl start hostler.service
ok "nor does systemd try again and again" sh -c '[ "$1" -le 1 ]' sh "$(property NRestarts)"
ok "apt upgrades a service that failed" install +newer
ok "a config that is new in the package is laid beside the one that was changed here" in_box \
  grep -q "of a newer version" /etc/hostler/hostler.toml.dpkg-dist
ok "which is as it was" in_box grep -q "this is no toml" /etc/hostler/hostler.toml
ok "nothing is half installed" is "$(in_box dpkg --audit | wc -l)" 0
ok "apt reinstalls it" in_box apt-get install -q -y --reinstall /mnt/others/+newer.deb
in_box cp -p /root/good.toml /etc/hostler/hostler.toml
in_box rm /root/good.toml
in_box systemctl reset-failed hostler.service
ok "with the good config it starts" in_box systemctl start hostler.service
ok "the page is there" page

say "fault 67: logs are rotated under load"
in_box sed -i '/^request_timeout/a access_log = { file = "/var/log/hostler/www.log" }' /etc/hostler/hostler.toml
ok "reload with an access log" in_box systemctl reload hostler.service
load
wait_for in_box test -s /var/log/hostler/www.log
ok "logrotate" in_box logrotate --force /etc/logrotate.d/hostler
wait_for in_box test -s /var/log/hostler/www.log
ok "the new file is written to" in_box test -s /var/log/hostler/www.log
ok "the old one is there" in_box test -s /var/log/hostler/www.log.1
end_load
ok "rotation: no request failed" lost_nothing
lines=$(in_box sh -c 'cat /var/log/hostler/www.log /var/log/hostler/www.log.1 | wc -l')
ok "a line for each request" sh -c '[ "$1" -ge "$2" ]' sh "$lines" "$(counted right "$place.nginx" "$place.socket")"
in_box sed -i '/^access_log/d' /etc/hostler/hostler.toml
