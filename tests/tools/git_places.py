"""Repositories in which a setting of git's names a program or a path, made from git's
own list of settings.

`RUN` in a value stands for a command line that must never run, `OUT` for a folder
outside that must stay as it is.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.tools.autorun_guard import AutorunGuard
from helix_desktop.tools.workspace_roots import WorkspaceRoots

# Every setting in `git help --config` (2.39) that names a program, with those that came
# later (hook.*, 2.54).
PROGRAMS = (
    "core.fsmonitor", "core.sshCommand", "core.gitProxy", "core.askPass", "core.editor", "core.pager", "core.alternateRefsCommand", "alias.status", "alias.co",
    "browser.x.cmd", "browser.x.path", "credential.helper", "credential.https://x.helper", "diff.external", "diff.x.command", "diff.x.textconv", "diff.guitool", "diff.tool",
    "difftool.x.cmd", "difftool.x.path", "filter.x.clean", "filter.x.smudge", "filter.x.process", "gpg.program", "gpg.openpgp.program", "gpg.ssh.program", "gpg.x509.program",
    "gpg.ssh.defaultKeyCommand", "guitool.x.cmd", "help.browser", "hook.x.command", "imap.tunnel", "instaweb.browser", "instaweb.httpd", "interactive.diffFilter", "man.viewer",
    "man.x.cmd", "man.x.path", "merge.x.driver", "merge.tool", "merge.guitool", "mergetool.x.cmd", "mergetool.x.path", "pager.status", "pager.log", "pager.diff",
    "remote.origin.receivepack", "remote.origin.uploadpack", "remote.origin.vcs", "sendemail.ccCmd", "sendemail.tocmd", "sendemail.smtpServer", "sequence.editor", "submodule.m.update",
    "trailer.x.command", "trailer.x.cmd", "uploadpack.packObjectsHook", "web.browser", "gitcvs.dbDriver", "receive.procReceiveRefs",
)  # fmt: skip
# Every one that names a path or an address: what is read or written there, or what is
# read from there as settings.
PATHS = (
    "core.worktree", "core.hooksPath", "core.attributesFile", "core.excludesFile", "commit.template", "init.templateDir", "include.path", "includeIf.gitdir:/.path",
    "blame.ignoreRevsFile", "bundle.x.uri", "diff.orderFile", "fetch.fsck.skipList", "format.outputDirectory", "format.signatureFile", "fsck.skipList", "fsmonitor.socketDir",
    "gitcvs.logFile", "gpg.ssh.allowedSignersFile", "gpg.ssh.revocationFile", "help.htmlPath", "http.cookieFile", "http.proxySSLCAInfo", "http.proxySSLCert", "http.proxySSLKey",
    "http.sslCAInfo", "http.sslCAPath", "http.sslCert", "http.sslKey", "http.proxy", "http.https://x.proxy", "instaweb.modulePath", "mailmap.file", "maintenance.repo",
    "receive.fsck.skipList", "remote.origin.proxy", "safe.directory", "sendemail.aliasesFile", "sendemail.smtpsslcertpath", "trace2.destinationDebug", "trace2.eventTarget",
    "trace2.normalTarget", "trace2.perfTarget", "url.ext::x.insteadOf", "user.signingKey", "credential.store.file", "protocol.allow", "protocol.ext.allow", "core.protectNTFS",
)  # fmt: skip
# How a setting gets where git reads it: {name} and {value} are written by git itself,
# so that the form is git's.
MEANS = {
    "config": "git config -f .git/config {name} {value}",
    "config.worktree": "git config extensions.worktreeConfig true; git config -f .git/config.worktree {name} {value}",
    "included": "git config -f inc {name} {value}; git config -f .git/config include.path ../inc",
    "a submodule's": "git init -q --bare .git/modules/m; mkdir m; echo 'gitdir: ../.git/modules/m' > m/.git; git config -f .git/modules/m/config {name} {value}",
    "a bare folder's": "git init -q --bare bare; git config -f bare/config {name} {value}",
    "a nested one's": "git init -q deep/er; git config -f deep/er/.git/config {name} {value}",
    "behind a folder that looks like git's": "mkdir -p objects refs sub; echo 'ref: refs/heads/x' > HEAD; git init -q sub/x; git config -f sub/x/.git/config {name} {value}",
}  # fmt: skip
# What needs no setting: links and files in a git directory through which git writes or
# reads elsewhere.
TRICKS = {
    "the index as a link": "git clone -q . c; rm c/.git/index; ln -s OUT/new c/.git/index",
    "the log as a link": "git clone -q . c; rm -rf c/.git/logs; ln -s OUT c/.git/logs",
    "branches as a link": "git clone -q . c; rm -rf c/.git/refs/heads; ln -s OUT c/.git/refs/heads",
    "objects as a link": "git clone -q . c; cp -r c/.git/objects/. OBJ; rm -rf c/.git/objects; ln -s OUT c/.git/objects",
    "packs as a link": "git init -q c; rm -rf c/.git/objects/pack; ln -s OUT c/.git/objects/pack",
    "a git directory outside": "mkdir c; echo 'gitdir: OUT' > c/.git",
    "a worktree of a module outside": "git init -q --bare .git/modules/m; git config -f .git/modules/m/config core.bare false; git config -f .git/modules/m/config core.worktree OUT; mkdir m; echo 'gitdir: ../.git/modules/m' > m/.git",
    "a worktree through a link": "ln -s OUT w; git config core.worktree ../w",
    "a worktree beside": "mkdir w; echo x > w/file; git config core.worktree ../w",
    "a file run in what looks like git's": "mkdir -p objects refs sub; echo 'ref: refs/heads/x' > HEAD; echo RUN > sub/.envrc",
    "very deep": "d=$(printf 'd/%.0s' $(seq 90)); mkdir -p $d; git init -q $d; git config -f $d/.git/config core.fsmonitor RUN",
}  # fmt: skip
ATTRIBUTES = "* filter=x diff=x merge=x"


@dataclass(frozen=True)
class GitPlace:
    """`line` plants a setting; `local` where the repository in the folder itself has it."""

    name: str
    line: str
    local: bool


def git_places(run: str, out: Path) -> list[GitPlace]:
    """Every setting in one way, every way with some settings, and what needs no setting."""
    found = []
    for number, (setting, (means, line)) in enumerate(
        itertools.product((*PROGRAMS, *PATHS), MEANS.items())
    ):
        if number % len(MEANS) == (number // len(MEANS)) % len(MEANS) or means == "config":
            value = _value(setting, run, out)
            form = line.format(name=f"'{setting}'", value=f"'{value}'")
            found.append(
                GitPlace(
                    f"{setting}, {means}", form, means in ("config", "config.worktree", "included")
                )
            )
    for name, line in TRICKS.items():
        found.append(
            GitPlace(
                name,
                line.replace("OUT", str(out)).replace("OBJ", str(out)).replace("RUN", run),
                False,
            )
        )
    return found


def _value(setting: str, run: str, out: Path) -> str:
    if setting.startswith(("alias", "submodule")):
        return f"!{run}"
    if setting in PATHS:
        return {
            "core.protectNTFS": "false",
            "protocol.allow": "always",
            "protocol.ext.allow": "always",
        }.get(setting, str(out))
    return run


def make_repository(folder: Path) -> None:
    """A repository with two commits and attributes that call for filters and drivers."""
    for words in (
        ["init", "-q", "-b", "main", "."],
        ["config", "user.name", "a"],
        ["config", "user.email", "a@b"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    (folder / ".gitattributes").write_text(f"{ATTRIBUTES}\n")
    for text in ("one\n", "two\n"):
        (folder / "file").write_text(text)
        subprocess.run(["git", "add", "."], cwd=folder, check=True)
        subprocess.run(["git", "commit", "-qm", text.strip()], cwd=folder, check=True)


def as_a_user(folder: Path, environment: dict[str, str]) -> None:
    """What somebody types next, in every folder that git may take for a repository;
    nothing is asked and nothing is reached.
    """
    places = [folder, *(folder / name for name in ("m", "c", "bare", "deep/er", "sub/x", "w"))]
    for place in filter(Path.is_dir, places):
        for words in (["status"], ["checkout", "--", "."], ["diff"], ["log", "-1", "-p"]):
            subprocess.run(
                ["git", *words], cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=20
            )  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def what_got_through(base: Path, name: str) -> str:
    """Plant it in a repository below `base`, have the guard take it back, and use git;
    what ran or was touched then.
    """
    out = base / "out"
    folder = base / "root"
    for each in (out, folder):
        each.mkdir(parents=True)
    (out / "file").write_text("outside\n")
    make_repository(folder)
    place = next(place for place in git_places(f"touch {base}/canary", out) if place.name == name)
    environment = {
        **os.environ,
        "HOME": str(base),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
    }
    guard = AutorunGuard(WorkspaceRoots.from_folders([folder]))
    before = guard.scan_autorun_files()
    subprocess.run(
        ["/bin/bash", "-c", place.line],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
    )
    there = contents(out)
    planted = guard.find_autorun_changes(before)
    failed = guard.revert_autorun_changes(planted)
    as_a_user(folder, environment)
    if failed or not planted:
        return "not found" if not planted else f"not put back: {failed}"
    if (base / "canary").exists():
        return "it ran"
    return "" if contents(out) == there else "a file outside was touched"
