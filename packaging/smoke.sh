#!/usr/bin/env bash
# Touches what an installed program can do, with the program named: packaging/smoke.sh /usr/bin/helix-desktop
set -euo pipefail
program=${1:?name the program}
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
export HELIX_HOME=$home/helix
mkdir "$home/folder"

"$program" --version
"$program" workspace new Smoke --folder "$home/folder"
head -c 3000000 /dev/urandom > "$home/content"
hash=$("$program" cache put --workspace Smoke "$home/content")
"$program" cache get --workspace Smoke "${hash:0:12}" -o "$home/back"
cmp "$home/content" "$home/back"
"$program" cache verify --workspace Smoke
"$program" workspace export Smoke "$home/smoke.helix"
"$program" workspace import "$home/smoke.helix" --name Again
"$program" cache get --workspace Again "$hash" -o "$home/back"
cmp "$home/content" "$home/back"
"$program" ask --workspace Smoke --model demo/demo --allow commands "run echo something" > "$home/asked.txt"
grep -q something "$home/asked.txt"
# Every module of ours, every library, a widget, a picture: imported and touched by the program's own interpreter.
if [ -z "${HELIX_SMOKE_OUTSIDE:-}" ] && [[ $program != *.exe ]]; then
    QT_QPA_PLATFORM=offscreen "$program" -I -S "$(dirname "$0")/smoke.py"
fi
echo "Everything works."
