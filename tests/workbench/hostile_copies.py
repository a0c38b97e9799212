"""Repositories that try to run something, or to write elsewhere, while they are copied
and brought back.

Each is made from a number: settings of git's that name a program or a path, includes,
hooks, filters, attributes, borrowed objects, worktrees, submodules, and links in the
place of git's files; in the user's repository and in the copy.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

from helix_desktop.errors import ActionRefused
from helix_desktop.workbench import Workbench
from tests.tools.git_places import as_a_user, contents, git_places, make_repository

HOOKS = (
    "applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase",
    "post-checkout", "post-merge", "pre-receive", "update", "proc-receive", "post-receive", "post-update", "reference-transaction", "push-to-checkout", "pre-auto-gc",
    "post-rewrite", "sendemail-validate", "fsmonitor-watchman", "post-index-change",
)  # fmt: skip
WAYS = ("merge", "rebase", "apply", "discard")
# What is put into a git directory beside settings: OUT is a folder outside, RUN a
# command that must never run.
PARTS = {
    "borrowed objects": "mkdir -p .git/objects/info; echo OUT/objects > .git/objects/info/alternates",
    "borrowed in a circle": "mkdir -p .git/objects/info; echo ../objects > .git/objects/info/alternates",
    "attributes": "mkdir -p .git/info; echo '* filter=x diff=x merge=x ident' > .git/info/attributes",
    "encodings": "echo '*.enc working-tree-encoding=UTF-16 eol=crlf' >> .gitattributes; echo x > some.enc",
    "submodules": "printf '[submodule \"m\"]\\npath = m\\nurl = ext::sh -c RUN\\nupdate = !RUN\\n' > .gitmodules",
    "a submodule above": "printf '[submodule \"../../out\"]\\npath = m\\nurl = ./m\\n' > .gitmodules; mkdir -p .git/modules",
    "a submodule with hooks": "git init -q m; printf '#!/bin/sh\\nRUN\\n' > m/.git/hooks/post-checkout; chmod +x m/.git/hooks/*",
    "modules as a link": "rm -rf .git/modules; ln -s OUT .git/modules",
    "hooks as a link": "cp -r .git/hooks OUTHOOKS; rm -rf .git/hooks; ln -s OUTHOOKS .git/hooks",
    "info as a link": "rm -rf .git/info; ln -s OUT .git/info",
    "logs as a link": "rm -rf .git/logs; ln -s OUT .git/logs",
    "the index as a link": "mv .git/index .git/index2; ln -s index2 .git/index",
    "branches as a link": "cp -r .git/refs/heads OUTHEADS; rm -rf .git/refs/heads; ln -s OUTHEADS .git/refs/heads",
    "packed branches as a link": "git pack-refs --all; mv .git/packed-refs OUTPACKED; ln -s OUTPACKED .git/packed-refs",
    "the settings as a link": "cp .git/config OUTCONFIG; rm .git/config; ln -s OUTCONFIG .git/config",
    "the whole as a link": "mv .git OUTGIT; ln -s OUTGIT .git",
    "common files outside": "echo OUT > .git/commondir",
    "replaced commits": "git replace HEAD HEAD~1",
    "grafts": "mkdir -p .git/info; git rev-parse HEAD > .git/info/grafts",
    "a worktree of another": "git worktree add -q OUTTREE",
    "an editor for rebases": "mkdir -p .git/rebase-merge; echo RUN > .git/rebase-merge/git-rebase-todo",
    "a link through which files lie outside": "ln -s OUT away; git add away; git commit -qm link",
    "a file that looks like an option": "echo x > ./--upload-pack=RUN",
}  # fmt: skip


class HostileCopy:
    """One repository below `base`; `copy_and_bring_back` plants as much in the copy."""

    def __init__(self, base: Path, number: int) -> None:
        self.base = base
        self.chance = random.Random(number)
        self.project = base / "project"
        self.out = base / "out"
        self.canary = base / "canary"
        self.has_bitten = False  # whether something ran where git was used as a user uses it
        for folder in (self.project, self.out / "objects"):
            folder.mkdir(parents=True)
        (self.out / "file").write_text("outside\n")
        self._plant_hooks(self.out)
        self.environment = {
            **os.environ,
            "HOME": str(base),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_EDITOR": "true",
            "GIT_ALLOW_PROTOCOL": "file",
        }

    def create_repository(self) -> None:
        make_repository(self.project)
        if (
            self.chance.random() < 0.6
        ):  # without a filter, which would keep all of it from being brought back
            (self.project / ".gitattributes").write_text("* diff=x merge=x\n")
            self._run_in(self.project, ["git", "commit", "-qam", "three"])
        self.plant(self.project)

    def _run_in(self, folder: Path, words: list[str]) -> int:
        return subprocess.run(
            words, cwd=folder, env=self.environment, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=30
        ).returncode  # fmt: skip

    def _plant_hooks(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for hook in HOOKS:
            (folder / hook).write_text(f"#!/bin/sh\ntouch {self.canary}\n")
            (folder / hook).chmod(0o755)

    def plant(self, folder: Path) -> None:
        """Some of everything. What git itself refuses is left out."""
        run = f"touch {self.canary}"
        hidden = (
            "core.worktree" if self.chance.random() < 0.9 else "none"
        )  # a repository with it is refused at once
        places = [
            place.line
            for place in git_places(run, self.out)
            if place.local and hidden not in place.line
        ]
        for line in self.chance.sample(places, 25) + self.chance.sample(
            list(PARTS.values()), self.chance.randint(0, 3)
        ):
            beside = self.base / f"beside {self.chance.random()}"
            named = line.replace("RUN", run).replace("OUT/", f"{self.out}/")
            for word in ("HOOKS", "HEADS", "PACKED", "CONFIG", "GIT", "TREE"):
                named = named.replace(f"OUT{word}", f"'{beside} {word}'")
            named = named.replace("OUT", str(self.out))
            settings = folder / ".git" / "config"
            now = settings.read_bytes() if settings.is_file() else b""
            self._run_in(folder, ["/bin/bash", "-c", named])
            if (
                line in places
                and self._run_in(folder, ["git", "status"])
                and not settings.is_symlink()
            ):
                settings.write_bytes(
                    now
                )  # a value that git does not take: it would refuse all the rest as well
        if (folder / ".git").is_dir():
            if not (folder / ".git/hooks").is_symlink():
                self._plant_hooks(folder / ".git/hooks")
            self._run_in(folder, ["git", "config", "core.fsmonitor", run])
        as_a_user(folder, self.environment)
        self.has_bitten |= self.canary.exists()
        self.canary.unlink(missing_ok=True)

    async def copy_and_bring_back(self, bench: Workbench, way: str) -> str:
        """What became of it: "refused", "copied" or "brought back"."""
        try:
            session = await bench.start_conversation_in_copy(
                "Apart", with_changes=self.chance.random() < 0.5
            )
        except ActionRefused:
            return "refused"
        copy = bench.copies.find_copy(session.id)
        assert copy is not None
        (copy.folder / "0" / "file").write_text("theirs\n")
        if self.chance.random() < 0.7:
            self.plant(copy.folder / "0")
            for planted in copy.folder.glob(
                "0/[0-9]*"
            ):  # they are in the user's folder too, and would be in the way
                planted.unlink()
            (copy.folder / "0" / "inc").unlink(missing_ok=True)
        try:
            await bench.copies.read_copy_status(copy)
            await bench.copies.bring_back(copy, way, "theirs")
        except ActionRefused:
            return "copied"
        return "brought back"

    def outside(self) -> Mapping[str, bytes]:
        return contents(self.out)

    def problems(self, before: Mapping[str, bytes]) -> str:
        """What ran, or was written outside; empty for nothing."""
        ran = "something ran" if self.canary.exists() else ""
        return ran or ("something outside was written" if self.outside() != before else "")
