"""Hooks made from two dozen ways to reach a file of the folder, in the folder's
settings and in the user's own, edited after trust.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from helix_desktop.project import project_files as brought

HOOKS = 500
WAYS = (
    "./{f}", "{f}", "sh {f}", "bash ./{f}", "$CLAUDE_PROJECT_DIR/{f}", "${{CLAUDE_PROJECT_DIR}}/{f}", "'$CLAUDE_PROJECT_DIR'/{f}", '"{root}/{f}"', "{root}/{f}",
    "{root}/sub/../{f}", "{home}/.claude/hooks/link/{f}", "env A=1 sh {f}", "A=1 ./{f}", "nice sh {f}", "sh -c 'sh {f}'", "true && ./{f}", "true;./{f}",
    "cd {root} && ./{f}", "python3 {f}", "xargs -a {f} true", "{home}/.claude/hooks/run.sh {root}/{f}", "{home}/.claude/hooks/run.sh --file={root}/{f}", "exec <{f}", ". ./{f}",
)  # fmt: skip
NAMES = ("lint", "fmt.sh", "tools/check", "a b/run", "big", "x.py", ".hidden", "über", "-odd")


@pytest.mark.parametrize("own", [False, True])
def test_no_hook_that_reaches_a_folders_file_runs_outside_or_after_it_was_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    chance = random.Random(33)
    root, home = tmp_path / "root", tmp_path / "home"
    for path in (root / "sub", root / ".claude", home / ".claude/hooks"):
        path.mkdir(parents=True)
    (home / ".claude/hooks/run.sh").write_text("sh $1\n")
    (home / ".claude/hooks/link").symlink_to(root)
    monkeypatch.setenv("HOME", str(home))
    known = {}
    for name in NAMES:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("true\n" * (100_000 if name == "big" else 1))
    commands = []
    for _ in range(HOOKS):
        name = chance.choice(NAMES)
        commands.append(
            chance.choice(WAYS).format(f=f"'{name}'" if " " in name else name, root=root, home=home)
        )
    table = {
        "hooks": {"Stop": [{"hooks": [{"type": "command", "command": each} for each in commands]}]}
    }
    ((home if own else root) / ".claude/settings.json").write_text(json.dumps(table))
    items = [
        item for item in brought.read_project_files([str(root)], {}).items if item.kind == "hook"
    ]
    assert len(items) == HOOKS
    assert not [
        item.body for item in items if item.is_in_force or (item.own and not item.reaches_folder)
    ]
    known = {item.settings_key: item.content_sha256 for item in items}
    assert all(
        item.is_in_force
        for item in brought.read_project_files([str(root)], known).items
        if item.kind == "hook"
    )
    for name in NAMES:
        (root / name).write_text("touch ran\n" * (100_000 if name == "big" else 1))
    assert [
        item.body
        for item in brought.read_project_files([str(root)], known).items
        if item.kind == "hook" and item.is_in_force
    ] == []
