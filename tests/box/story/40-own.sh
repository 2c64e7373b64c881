# A person's own Hostler: by hostler@.service, and by the user unit without any root.
# shellcheck shell=bash
say "hostler@alice"
in_box useradd --create-home alice
in_box install -d -o alice /home/alice/site
in_box sh -c 'echo "Page of alice" >/home/alice/site/index.html'
# own_config DIRECTORY PORT: a config with its sockets in the directory.
own_config() { cat <<END
[supervisor]
control = "unix:$1/control.sock"

[pool.site]
listen = ["unix:$1/site.sock", { address = "tcp:127.0.0.1:$2", protocol = "http" }]
runtime = "files"
root = "/home/alice/site"
END
}
own_config /run/hostler-alice 8101 | in_box sh -c 'mkdir -p /etc/hostler/alice; cat >/etc/hostler/alice/hostler.toml'
ok "systemctl enable --now" in_box systemctl enable --now hostler@alice.service
own_property() { in_box systemctl show --property "$1" --value hostler@alice.service; }
ok "its page is there" answers 8101/ "Page of alice"
ok "all of it is alice's" is "$(in_box ps -o user= -g "$(in_box systemctl show --property MainPID --value hostler@alice.service)" | sort -u)" alice
ok "without any capability" is "$(in_box awk '/^Cap(Prm|Eff|Bnd)/ { print $2 }' "/proc/$(own_property MainPID)/status" | sort -u)" 0000000000000000
ok "the web server can reach its socket's directory" in_box runuser -u www-data -- test -S /run/hostler-alice/site.sock
ok "check finds no fault" in_box runuser -u alice -- hostler check --config /etc/hostler/alice/hostler.toml
ok "systemctl reload" in_box systemctl reload hostler@alice.service
own_load() { rm -f "$place.own"; nsenter -t "$box_leader" -n -- python3 "$here/load.py" http 127.0.0.1:8101 "Page of alice" >"$place.own" & loads=($!); under_way own; }
own_end() { sleep 0.3; kill "${loads[@]}"; wait "${loads[@]}" || true; loads=(); tail -1 "$place.own" | cut -c1-400 | sed 's/^/      /'; }
own_kept() { [ "$(counted right "$place.own")" -ge 50 ] && [ "$(counted refused "$place.own")" = 0 ]; }
own_load
forget_starts
ok "systemctl restart" in_box systemctl restart hostler@alice.service
own_end
ok "refuses nobody" own_kept
pid=$(own_property MainPID)
own_back() { [ "$(own_property ActiveState)" = active ] && [ "$(own_property MainPID)" != "$pid" ]; }
own_load
shoot "$pid"
ok "systemd starts another after a SIGKILL" wait_for own_back
own_end
ok "which refused nobody" own_kept
pid=$(own_property MainPID)
own_load
ok "an upgrade of the package" apt_install others/+new.deb
own_end
own_lost_nothing() { own_kept && [ "$(counted wrong "$place.own")" = 0 ]; }
ok "loses no request of hers" own_lost_nothing
ok "under the same process id" is "$(own_property MainPID)" "$pid"
ok "in the new program" is "$(in_box readlink "/proc/$pid/exe")" /usr/bin/hostler
in_box systemctl disable --quiet --now hostler@alice.service
ok "stopped, it leaves nothing in /run" in_box test ! -e /run/hostler-alice

say "alice's user unit, without root"
in_box loginctl enable-linger alice
alice() { in_box runuser -u alice -- env "XDG_RUNTIME_DIR=/run/user/$(in_box id -u alice)" "$@"; }
wait_for alice systemctl --user is-system-running --wait
alice systemctl --user is-enabled hostler.service >"$place.enabled" 2>&1
ok "it is nobody's without being asked for" grep -q disabled "$place.enabled"
own_config "/run/user/$(in_box id -u alice)/hostler" 8102 | alice sh -c 'mkdir -p ~alice/.config/hostler; cat >~alice/.config/hostler/hostler.toml'
ok "systemctl --user enable --now" alice systemctl --user enable --now hostler.service
ok "its page is there" answers 8102/ "Page of alice"
ok "systemctl --user reload" alice systemctl --user reload hostler.service
ok "hostler status asks it" alice hostler status --control "/run/user/$(in_box id -u alice)/hostler/control.sock"
pid=$(alice systemctl --user show --property MainPID --value hostler.service)
ok "systemctl --user restart" alice systemctl --user restart hostler.service
ok "another process" not is "$(alice systemctl --user show --property MainPID --value hostler.service)" "$pid"
ok "serves the page" answers 8102/ "Page of alice"
ok "systemctl --user disable --now" alice systemctl --user disable --now hostler.service
in_box loginctl disable-linger alice
in_box systemctl stop "user@$(in_box id -u alice).service"
in_box userdel --remove alice 2>/dev/null
in_box rm -f /etc/subgid- /etc/subuid-
in_box rm -r /etc/hostler/alice
