# From the package to a page through nginx, by the commands in the README.
# shellcheck shell=bash
say "the README's words for a server"
# dpkg says nothing of files that are as they were.
installed_as_built() { is "$(in_box dpkg --verify hostler)" ""; }
# shellcheck disable=SC2016
words=$(awk '/^## On a Debian server/ { on = 1; next } /^## / { on = 0 } on && /^    / { print substr($0, 5) }' "$root/README.md")
commands=$(grep -c . <<<"$words")
ok "at most 5 commands ($commands)" test "$commands" -ge 1 -a "$commands" -le 5
ok "they end with the page" sh -c 'printf "%s\n" "$1" | tail -1 | grep -q curl' sh "$words"
# apt asks, and is told yes.
try_words() { in_box sh -ec "sudo() { \"\$@\"; }; cd /mnt; $words" < <(yes 2>/dev/null); }
first_page() { try_words >"$place.words" 2>&1 && grep -q "Hostler works" "$place.words" || { cat "$place.words"; return 1; }; }
ok "they work, word by word" first_page
ok "the service is active" is "$(property ActiveState)" active
ok "and enabled" in_box systemctl --quiet is-enabled hostler.service
ok "systemd shows its state" grep -q "1 pools\? running" <(property StatusText)
ok "check finds no fault" in_box hostler check
ok "no fault is in the journal" not journal_has "[1-9] faults\? in\|ERROR\|WARN"
ok "workers are www-data, the supervisor is root" sh -c '[ "$(echo "$1" | sort -u | xargs)" = "root www-data" ]' sh \
  "$(in_box ps -C hostler -o user=)"
ok "the manual is there" in_box test -e /usr/share/man/man5/hostler.toml.5.gz -a -e /usr/share/man/man1/hostler-reload.1.gz
ok "and the licences of what is linked" in_box test -s /usr/share/doc/hostler/crates.gz
in_box sh -c 'cat >/tmp/page; chmod 755 /tmp/page' <"$root/packaging/debian/tests/page"
ok "the package's own test for autopkgtest passes" in_box /tmp/page
in_box rm /tmp/page
ok "no file of the package was changed" installed_as_built
in_box systemd-analyze security --no-pager hostler.service | tail -1 || true
