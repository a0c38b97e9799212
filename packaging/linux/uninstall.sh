#!/bin/sh
# Takes Helix Desktop out of the folder it was installed in. Workspaces, settings and keys are yours and stay.
set -eu
here=$(dirname "$(readlink -f "$0")")
prefix=$(cat "$here/installed-prefix")
home=$(dirname "$here")

# The programs that run from this folder, without those whose command line fits the pattern.
running() {
    for exe in /proc/[0-9]*/exe; do
        case $(readlink "$exe" 2>/dev/null || :) in "$home"/*) ;; *) continue ;; esac
        process=${exe%/exe} process=${process#/proc/}
        tr '\0' ' ' < "/proc/$process/cmdline" 2>/dev/null | grep -qE "$1" || echo "$process"
    done
}

refuse_if_running() {
    [ -z "$2" ] || { echo "Helix Desktop is running (process" $2"). Close it and uninstall again. $1" >&2; exit 1; }
}

drop_if_empty() { rmdir -p --ignore-fail-on-non-empty "$1" 2>/dev/null || :; }

# A desktop's cache of a folder: made anew, or gone when nothing else is left there.
renew() {
    folder=$1 cache=$2; shift 2
    if [ -f "$folder/$cache" ] && [ "$(ls -A "$folder")" = "$cache" ]; then
        rm -f "$folder/$cache"
        drop_if_empty "$folder"
    elif [ -f "$folder/$cache" ] && command -v "$1" >/dev/null; then
        "$@" "$folder" 2>/dev/null || :
    fi
}

# The background process and what it started end when they are told so.
refuse_if_running "Nothing was changed." "$(running ' (resident|gateway|recorder) ')"
# An agent would go on sending its key to the gateway's address, which nobody reserves then.
code=0
[ ! -x "$here/helix-desktop" ] || "$here/helix-desktop" resident leave || code=$?
if [ "$code" = 3 ]; then
    echo "Helix Desktop was not removed, because these settings still contain its address." >&2
    exit 1
elif [ "$code" != 0 ]; then
    echo "Settings of agents that you connected may still contain the address of Helix Desktop. Remove it from them." >&2
fi

# What root has installed, other users may have connected their agents to.
if [ "$(id -u)" = 0 ] && [ -f "$here/leave-users" ]; then
    sh "$here/leave-users" "$here/helix-desktop" || :
fi

for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -n "$(running '^$')" ] || break
    sleep 1
done
refuse_if_running "The program was not removed." "$(running '^$')"

while read -r file; do
    rm -f "$prefix/share/$file"
    drop_if_empty "$prefix/share/$(dirname "$file")"
done < "$here/installed-files"
[ "$(readlink -f "$prefix/bin/helix-desktop")" = "$here/helix-desktop" ] && rm -f "$prefix/bin/helix-desktop"
rm -rf "$home"
renew "$prefix/share/applications" mimeinfo.cache update-desktop-database -q
renew "$prefix/share/icons/hicolor" icon-theme.cache gtk-update-icon-cache -qtf
echo "Helix Desktop was removed from $prefix. Your workspaces and settings were kept."
