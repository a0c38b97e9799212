#!/bin/sh
# Before the package is removed: no agent of any user goes on sending its key to an address that nobody reserves then.
set -e
[ "$1" = remove ] || exit 0
getent passwd | while IFS=: read -r user _ _ _ _ home _; do
    [ -d "$home/.config/helix-desktop/connected" ] || continue
    runuser -u "$user" -- env HOME="$home" helix-desktop resident leave ||
        echo "Agents of $user may still use the address of Helix Desktop. Remove it from their settings." >&2
done
