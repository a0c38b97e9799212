#!/bin/sh
# Helix Desktop @VERSION@: installs for the user who runs it, without root. Everything behind the last line is a tar.
#
#   sh helix-desktop-….run                install, or update what is there
#   sh helix-desktop-….run --prefix DIR   somewhere else than ~/.local
#   sh helix-desktop-….run --check        only check that the file is whole
#   sh helix-desktop-….run --uninstall    take it out again; your workspaces stay
set -eu

version="@VERSION@"
digest=@SHA256@
offset=@OFFSET@
prefix=${HOME:?}/.local
action=install

fail() { echo "$1" >&2; exit "${2:-1}"; }

while [ $# -gt 0 ]; do
    case $1 in
        --prefix) [ $# -gt 1 ] || fail "--prefix needs a folder name." 2; prefix=$2; shift ;;
        --prefix=*) prefix=${1#--prefix=} ;;
        --check) action=check ;;
        --uninstall) action=uninstall ;;
        -h|--help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) fail "There is no option $1. See --help." 2 ;;
    esac
    shift
done
case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
home=$prefix/lib/helix-desktop

# In a user's folder, root would write to wherever the user's links lead, and run what the user has put there.
if [ "$(id -u)" = 0 ] && [ "$action" != check ]; then
    folder=$prefix
    while [ "$folder" != / ]; do
        if [ -e "$folder" ] || [ -L "$folder" ]; then
            owner=$(stat -c %u -- "$folder")
            [ "$owner" = 0 ] || fail "$prefix belongs to another user. Run this file as that user, without sudo, or choose another folder with --prefix. Nothing was changed."
        fi
        folder=$(dirname "$folder")
    done
fi

if [ "$action" = uninstall ]; then
    [ -x "$home/current/uninstall" ] || fail "Helix Desktop is not installed in $prefix."
    exec "$home/current/uninstall"
fi

runs_from() {  # Whether a program runs from this folder.
    for exe in /proc/[0-9]*/exe; do
        case $(readlink "$exe" 2>/dev/null || :) in "$1"/*) return 0 ;; esac
    done
    return 1
}

payload() { tail -c +"$offset" "$0"; }

[ "$(payload | sha256sum | cut -d' ' -f1)" = "$digest" ] || fail "This file is damaged or incomplete. Download it again."
if [ "$action" = check ]; then echo "Helix Desktop $version: the file is complete."; exit 0; fi
[ "$(uname -m)" = x86_64 ] || fail "This installer is for x86_64, but this computer is $(uname -m)."

# A folder of its own for each build: a program that runs keeps the files it was started from.
mkdir -p "$home" "$prefix/bin" "$prefix/share"
home=$(readlink -f "$home")  # As the system names it, so that it can be compared with where programs run from.
target=$home/$version-$(printf %.8s "$digest")
new=$home/.new.$$
trap 'rm -rf "$new"' EXIT INT TERM
mkdir "$new"
payload | tar -xzf - -C "$new" || fail "Unpacking failed; nothing was changed. Is the disk full?"

# This build again: its files are not taken from under a program that runs from them.
runs_from "$target" && fail "Helix Desktop $version is running. Close it, or run \`helix-desktop resident stop\`, and install again. Nothing was changed."
[ ! -e "$target" ] || mv "$target" "$new/before"
mv "$new/lib" "$target"
(cd "$new/share" && find . -type f | sort) > "$target/installed-files"
echo "$prefix" > "$target/installed-prefix"
(cd "$new/share" && tar -cf - .) | (cd "$prefix/share" && tar -xmf - --no-overwrite-dir)
sed -i "s|^Exec=helix-desktop|Exec=\"$prefix/bin/helix-desktop\"|" "$prefix/share/applications/helix-desktop.desktop"
ln -s "$(basename "$target")" "$home/.current.$$"
mv -T "$home/.current.$$" "$home/current"
ln -sfn "$home/current/helix-desktop" "$prefix/bin/helix-desktop"

# Earlier builds go, unless something still runs from them.
for other in "$home"/*-*; do
    [ "$other" = "$target" ] && continue
    runs_from "$other" || rm -rf "$other"
done

command -v update-desktop-database >/dev/null && update-desktop-database -q "$prefix/share/applications" || :
command -v gtk-update-icon-cache >/dev/null && gtk-update-icon-cache -qtf "$prefix/share/icons/hicolor" 2>/dev/null || :

echo "Helix Desktop $version was installed in $prefix."
case :$PATH: in
    *:"$prefix/bin":*) echo "Start it from the menu, or with: helix-desktop" ;;
    *) echo "Start it from the menu, or with: $prefix/bin/helix-desktop" ;;
esac
"$target/helix-desktop" doctor 2>/dev/null | sed -n '/^!! /{s/^!! */Not in order: /p;n;/^ /p}' || :
exit 0
