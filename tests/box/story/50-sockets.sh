# Started by the first client: socket activation.
# shellcheck shell=bash
say "a socket unit"
in_box cp /usr/share/doc/hostler/examples/sockets/hostler.socket /etc/systemd/system/
in_box systemctl daemon-reload
ok "the service is stopped" in_box systemctl disable --quiet --now hostler.service
ok "the socket unit listens in its place" in_box systemctl enable --quiet --now hostler.socket
ok "the service does not run" is "$(property ActiveState)" inactive
ok "the first client starts it, and gets the page" page
ok "now it runs" is "$(property ActiveState)" active
ok "with the socket unit's socket" is "$(in_box grep -c ' 00010000 .* /run/hostler/www.sock$' /proc/net/unix)" 1
load
forget_starts
ok "systemctl restart" in_box systemctl restart hostler.service
ok "systemctl reload" in_box systemctl reload hostler.service
end_load
ok "no connection was refused" refused_nobody
pid=$(property MainPID)
load
shoot "$pid"
ok "systemd starts another after a SIGKILL" wait_for came_back
end_load
ok "no connection was refused" refused_nobody
ok "the service is stopped again" in_box systemctl stop hostler.service
ok "its socket is still there" in_box test -S /run/hostler/www.sock
ok "the next client starts it, and gets the page" page
in_box systemctl disable --quiet --now hostler.socket
in_box systemctl stop hostler.service
in_box rm /etc/systemd/system/hostler.socket
in_box systemctl daemon-reload
ok "without it the service makes its own socket" in_box systemctl enable --quiet --now hostler.service
ok "the page is there" page
