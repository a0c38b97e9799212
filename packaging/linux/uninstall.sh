#!/bin/sh
# Takes Helix Desktop out of the folder it was installed in. Workspaces, settings and keys are yours and stay.
set -eu
here=$(dirname "$(readlink -f "$0")")
prefix=$(cat "$here/installed-prefix")
home=$(dirname "$here")
while read -r file; do
    rm -f "$prefix/share/$file"
    rmdir -p --ignore-fail-on-non-empty "$prefix/share/$(dirname "$file")" 2>/dev/null || :
done < "$here/installed-files"
[ "$(readlink -f "$prefix/bin/helix-desktop")" = "$here/helix-desktop" ] && rm -f "$prefix/bin/helix-desktop"
rm -rf "$home"
command -v update-desktop-database >/dev/null && [ -d "$prefix/share/applications" ] && update-desktop-database -q "$prefix/share/applications" || :
echo "Helix Desktop is gone from $prefix. Your workspaces and settings are still there."
