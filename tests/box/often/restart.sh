# Restarts and crashes of the supervisor under load, again and again: no part of ./test. After tests/box/story/10-first-page.sh
# and 15-apps.sh:
#   tests/box/run FILE.deb tests/box/story/1[05]-*.sh tests/box/often/restart.sh
# ROUNDS (20) of each.
# shellcheck shell=bash
came_back() { [ "$(property ActiveState)" = active ] && [ "$(property MainPID)" != "$pid" ]; }
rounds=${ROUNDS:-20}
restarts=0 lost=0 answered=0
say "$rounds restarts and $rounds crashes under load"
for round in $(seq "$rounds"); do
  load
  forget_starts
  in_box systemctl restart hostler.service || restarts=$((restarts + 1))
  end_load >/dev/null
  lost=$((lost + $(counted wrong "$place".{nginx,socket,port})))
  answered=$((answered + $(counted right "$place".{nginx,socket,port})))
  ok "restart $round: no connection was refused" refused_nobody
  lost_nothing || tail -qn 1 "$place".{nginx,socket,port} | cut -c1-600
  pid=$(property MainPID)
  load
  shoot "$pid"
  wait_for came_back
  end_load >/dev/null
  ok "crash $round: no connection was refused" refused_nobody
done
ok "each restart worked" is "$restarts" 0
ok "restarts lost no request either, of $answered" is "$lost" 0
