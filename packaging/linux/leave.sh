#!/bin/sh
# Run by root before the program is removed: no agent of any user goes on sending its key to an address that
# nobody reserves then. `leave-users PROGRAM` has each user's settings restored by a process of that user.
#
# What such a process does is the user's choice: they can stop it, write into its memory, or answer it with
# a pipe that never ends. So it is given nothing of root's: no terminal (keys could be pushed into it),
# no variable (tokens, and another XDG_CONFIG_HOME), no open file, no folder, no keyring, no right, and
# only so much time. What it prints is not shown. All users' run at once, so that nobody delays another's for long.
set -u
program=$1
limit_seconds=20
at_once=16
PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /

own_keyring=
if command -v keyctl >/dev/null; then own_keyring="keyctl session -"; fi

# The user's process looks for the folder itself: root would wait for whatever is mounted there.
restore_settings='[ -d "$HOME/.config/helix-desktop/connected" ] || exit 0; exec "$0" resident leave'

leave_gateway() {  # USER UID GID HOME
    env -i PATH="$PATH" HOME="$4" USER="$1" LOGNAME="$1" XDG_RUNTIME_DIR="/run/user/$2" LANG=C.UTF-8 \
        timeout -k 2 "$limit_seconds" setsid $own_keyring \
        setpriv --reuid="$2" --regid="$3" --init-groups --inh-caps=-all --no-new-privs \
        sh -c "$restore_settings" "$program" \
        </dev/null >/dev/null 2>&1 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- ||
        echo "Agents of $1 may still use the address of Helix Desktop. Remove it from their settings." >&2
}

getent passwd | {
    started=0
    while IFS=: read -r user _ uid gid _ home _; do
        leave_gateway "$user" "$uid" "$gid" "$home" </dev/null &
        started=$((started + 1))
        [ $((started % at_once)) != 0 ] || wait
    done
    wait
}
exit 0
