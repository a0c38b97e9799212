"""Hooks made from two dozen ways to reach a file of the folder, in the folder's
settings and in the user's own, edited after trust.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from helix_desktop.project import project_files as brought
from helix_desktop.project.project_item import ProjectItem

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
    root = tmp_path / "root"
    home = tmp_path / "home"
    for path in (root / "sub", root / ".claude", home / ".claude/hooks"):
        path.mkdir(parents=True)
    (home / ".claude/hooks/run.sh").write_text("sh $1\n")
    (home / ".claude/hooks/link").symlink_to(root)
    monkeypatch.setenv("HOME", str(home))
    _write_named_files(root, "true\n")
    settings_folder = root
    if own:
        settings_folder = home
    (settings_folder / ".claude/settings.json").write_text(_settings_with_hooks(root, home))

    hooks = _read_hooks(root, {})
    assert len(hooks) == HOOKS
    for hook in hooks:
        assert not hook.is_in_force, hook.body
        assert hook.reaches_folder or not hook.own, hook.body

    trusted = {hook.settings_key: hook.content_sha256 for hook in hooks}
    assert all(hook.is_in_force for hook in _read_hooks(root, trusted))

    _write_named_files(root, "touch ran\n")
    assert [hook.body for hook in _read_hooks(root, trusted) if hook.is_in_force] == []


def _write_named_files(root: Path, line: str) -> None:
    for name in NAMES:
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(line)
    (root / "big").write_text(line * 100_000)


def _settings_with_hooks(root: Path, home: Path) -> str:
    """As many hooks as `HOOKS`, each in a way and with a file drawn by chance."""
    chance = random.Random(33)
    hooks = []
    for _ in range(HOOKS):
        name = chance.choice(NAMES)
        if " " in name:
            name = f"'{name}'"
        command = chance.choice(WAYS).format(f=name, root=root, home=home)
        hooks.append({"type": "command", "command": command})
    return json.dumps({"hooks": {"Stop": [{"hooks": hooks}]}})


def _read_hooks(root: Path, trusted: Mapping[str, str]) -> list[ProjectItem]:
    items = brought.read_project_files([str(root)], trusted).items
    return [item for item in items if item.kind == "hook"]
