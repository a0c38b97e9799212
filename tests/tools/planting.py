"""Ways of leaving something behind that another program runs later: shell commands,
made from places and payloads.

`RUN` in a payload stands for a command line that must never run. The folder they start
from is made by `prepare`.
"""

from __future__ import annotations

import atexit
import itertools
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HOOKS = (
    "pre-commit", "post-checkout", "post-index-change", "reference-transaction", "post-commit", "commit-msg", "prepare-commit-msg",
    "pre-push", "post-merge", "post-rewrite", "pre-auto-gc", "pre-rebase", "fsmonitor-watchman", "pre-receive", "update", "post-receive", "pre-merge-commit", "applypatch-msg",
)  # fmt: skip
SETTINGS = (
    "core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.askPass", "core.gitProxy", "core.alternateRefsCommand", "diff.external", "diff.x.command", "diff.x.textconv",
    "filter.x.clean", "filter.x.smudge", "filter.x.process", "merge.x.driver", "credential.helper", "gpg.program", "sequence.editor", "pager.status", "pager.log", "interactive.diffFilter",
    "difftool.x.cmd", "mergetool.x.cmd", "remote.origin.uploadpack", "remote.origin.receivepack", "uploadpack.packObjectsHook", "trailer.x.command", "browser.x.cmd", "man.x.cmd",
    "alias.st", "alias.co", "submodule.x.update", "sendemail.smtpServer", "gc.x.command", "web.browser", "notes.x", "guitool.x.cmd", "hook.x.command", "init.templateDir", "core.attributesFile", "log.showSignature.x",
)  # fmt: skip
# How git comes to read a folder: {git} is where its settings then are. Each starts from
# a repository in `.`.
PLACES = {
    "as it is": ("true", ".git"),
    "moved aside": ("mv .git .g2; cp -r .g2 .git", ".git"),
    "removed": ("rm -rf .git; git init -q .", ".git"),
    "a new one below": ("git init -q sub", "sub/.git"),
    "copied deeper": ("mkdir -p a/b/c; cp -r .git a/b/c/.git", "a/b/c/.git"),
    "cloned": ("git clone -q . clone", "clone/.git"),
    "bare": ("git init -q --bare bare", "bare"),
    "a file that leads in": ("git init -q --bare evil; mkdir w; echo 'gitdir: ../evil' > w/.git", "evil"),
    "the file of the root": ("mv .git evil; echo 'gitdir: evil' > .git", "evil"),
    "a link": ("mv .git evil; ln -s evil .git", "evil"),
    "by hand": ("mkdir -p h/.git/objects h/.git/refs; echo 'ref: refs/heads/x' > h/.git/HEAD", "h/.git"),
    "renamed into place": ("git init -q t; mv t/.git t/git; mv t u", "u/git"),
    "among packages": ("mkdir -p node_modules/p; git init -q node_modules/p", "node_modules/p/.git"),
    "a module": ("mkdir -p .git/modules; git init -q --bare .git/modules/m; mkdir m; echo 'gitdir: ../.git/modules/m' > m/.git", ".git/modules/m"),
    "a worktree": ("git worktree add -q tree; git config extensions.worktreeConfig true", ".git/worktrees/tree"),
}  # fmt: skip
NAMED = {
    ".envrc": "RUN", ".vscode/tasks.json": '{"tasks": "RUN"}', ".vscode/settings.json": '{"x": "RUN"}', ".idea/workspace.xml": "<x>RUN</x>", "x.code-workspace": "RUN",
    ".exrc": "!RUN", ".vimrc": "!RUN", ".nvim.lua": "RUN", ".dir-locals.el": "RUN", ".gdbinit": "shell RUN", ".npmrc": "script-shell=RUN", ".yarnrc.yml": "yarnPath: RUN",
    ".yarn/releases/yarn.cjs": "RUN", ".pnpmfile.cjs": "RUN", ".cargo/config.toml": "[build]\nrustc-wrapper='RUN'", "package.json": '{"scripts": {"postinstall": "RUN"}}',
    "sub/package.json": '{"scripts": {"prepare": "RUN"}}', ".husky/pre-commit": "RUN", ".githooks/pre-commit": "RUN", ".pre-commit-config.yaml": "RUN", "lefthook.yml": "RUN", ".lintstagedrc.json": "RUN",
    ".mise.toml": "RUN", "mise.toml": "RUN", ".tool-versions": "RUN", ".devcontainer/devcontainer.json": "RUN", ".devcontainer.json": "RUN", ".zed/tasks.json": "RUN", ".fleet/run.json": "RUN",
    ".cursor/mcp.json": "RUN", ".claude/settings.json": "RUN", ".mcp.json": "RUN", ".codex/config.toml": "RUN", ".gemini/settings.json": "RUN", ".bazelrc": "RUN", ".mvn/jvm.config": "RUN",
    "gradle/wrapper/gradle-wrapper.properties": "distributionUrl=RUN", ".bashrc": "RUN", ".profile": "RUN", ".zshenv": "RUN", ".gitconfig": "[core]\nfsmonitor=RUN", ".ssh/authorized_keys": "RUN",
    ".config/autostart/x.desktop": "RUN", ".local/bin/git": "RUN", "composer.json": '{"scripts": {"post-install-cmd": "RUN"}}', ".bundle/config": "RUN", "rust-toolchain.toml": "RUN", "opencode.json": "RUN",
    # what other version systems, direnv's and mise's further files, language servers,
    # notebooks, hook managers and agents run
    ".hg/hgrc": "[hooks]\nupdate=RUN", ".jj/repo/config.toml": "RUN", ".sl/config": "RUN", "_darcs/prefs/defaults": "ALL posthook RUN", ".pijul/config": "RUN",
    "mise.local.toml": "RUN", "mise/config.toml": "RUN", ".direnv/flake-profile-1.rc": "RUN", "flake.nix": "RUN", "shell.nix": "RUN", "devenv.nix": "RUN", "devbox.json": "RUN", ".shadowenv.d/1.lisp": "RUN",
    ".bsp/x.json": '{"argv": ["RUN"]}', ".pylintrc": "[MAIN]\ninit-hook=RUN", ".luarc.json": "RUN", "rust-analyzer.toml": "RUN", "eslint.config.mjs": "RUN", ".prettierrc.cjs": "RUN", ".stylelintrc.js": "RUN",
    ".externalToolBuilders/x.launch": "RUN", "jupyter_server_config.py": "RUN", ".theia/tasks.json": "RUN", "pnpm-workspace.yaml": "scriptShell: RUN", ".pnpmfile.mjs": "RUN",
    "prek.toml": "RUN", "hk.pkl": "RUN", ".lefthook.yaml": "RUN", "commitlint.config.js": "RUN", ".cargo-husky/hooks/pre-commit": "RUN", ".trunk/trunk.yaml": "RUN", ".nano-staged.js": "RUN",
    ".amp/settings.json": "RUN", ".factory/mcp.json": "RUN", ".kilocode/mcp.json": "RUN", ".trae/mcp.json": "RUN", ".agents/skills/x/SKILL.md": "RUN", ".openhands/setup.sh": "RUN", ".pi/settings.json": "RUN", ".crush/x": "RUN",
}  # fmt: skip
# What makes a look at the folders fail, or take long, beside something that is planted.
BLINDING = {
    "a NUL in the file that names git's folder": "mkdir w; printf 'gitdir: a\\0b' > w/.git",
    "a NUL in commondir": "printf 'a\\0b' > t/.git/commondir",
    "a NUL in the path of an include": "printf '[include]\\npath=a\\0b\\n' >> t/.git/config",
    "a NUL in core.hooksPath": "printf '[core]\\nhooksPath=a\\0b\\n' >> t/.git/config",
    "a NUL in core.worktree": "printf '[core]\\nworktree=a\\0b\\n' >> t/.git/config",
    "a NUL in the name of a user's home": "printf '[include]\\npath=~a\\0/b\\n' >> t/.git/config",
    "1500 includes one in another": "git config -f t/.git/config include.path ../../i0; for i in $(seq 0 1500); do printf '[include]\\npath=i%d\\n[user]\\nname=!x\\n' $((i+1)) > i$i; done",
    "1500 git folders that name the next": "mkdir -p c{0..1500}/{objects,refs}; for i in $(seq 0 1500); do echo x > c$i/HEAD; echo ../c$((i+1)) > c$i/commondir; done",
    "hooks 1200 folders deep": "mkdir -p t/.git/hooks/$(printf 'd/%.0s' $(seq 1200))",
    "an editor's folder as a link to the disk": "rm -rf .vscode; ln -s / .vscode",
    "80000 settings": "yes fsmonitor=x | (echo '[core]'; head -80000) >> t/.git/config",
    "a loop of includes": "git config -f t/.git/config include.path config",
    "a loop of links": "rm -rf .vscode; ln -s .vscode .vscode; rm .envrc; ln -s .envrc .envrc",
    "a pipe for a file": "rm .envrc; mkfifo .envrc; mkfifo t/.git/hooks/pre-commit",
    "a file without an end": "truncate -s 20G .envrc",
    "JSON without an end": "python3 -c \"print('[' * 200000)\" > package.json",
}  # fmt: skip
# How a named file gets there: {path} and {text}.
MEANS = {
    "written": "mkdir -p {folder}; printf %s {text} > {path}",
    "moved": "mkdir -p {folder} q; printf %s {text} > q/f; mv -f q/f {path}",
    "linked": "mkdir -p {folder}; printf %s {text} > target; ln -sf $PWD/target {path}",
    "by python": "mkdir -p {folder}; python3 -c 'import sys; open(sys.argv[1], \"w\").write(sys.argv[2])' {path} {text}",
    "deeper": "mkdir -p deep/er; cd deep/er; mkdir -p {folder}; printf %s {text} > {path}",
}  # fmt: skip
THERE = (
    ".envrc",
    ".vscode/tasks.json",
    ".npmrc",
    "package.json",
    ".husky/pre-commit",
    ".pre-commit-config.yaml",
)


@dataclass(frozen=True)
class Way:
    name: str
    line: str


def ways(run: str) -> list[Way]:
    """All of them, with `run` as what must never run."""
    found = [*_settings(run), *_hooks(run), *_tricks(run)]
    for number, ((path, text), (means, line)) in enumerate(
        itertools.product(NAMED.items(), MEANS.items())
    ):
        if number % 3 == 0 or means == "written":
            words = {
                "path": path,
                "folder": str(Path(path).parent),
                "text": _quoted(text.replace("RUN", run)),
            }
            found.append(Way(f"{path}, {means}", line.format(**words)))
    return found


def _settings(run: str) -> list[Way]:
    found = []
    for number, (setting, (place, (line, git))) in enumerate(
        itertools.product(SETTINGS, PLACES.items())
    ):
        if number % 4 == 0 or setting == "core.fsmonitor":
            value = f"!{run}" if setting.startswith(("alias", "submodule", "credential")) else run
            name = "config.worktree" if place == "a worktree" else "config"
            found.append(
                Way(
                    f"{setting}, {place}",
                    f"{line}; git config -f {git}/{name} {setting} {_quoted(value)}",
                )
            )
    return found


def _hooks(run: str) -> list[Way]:
    found = []
    for number, (hook, (place, (line, git))) in enumerate(itertools.product(HOOKS, PLACES.items())):
        if number % 4 == 1 or hook == "post-index-change":
            file = f"{'.git' if place == 'a worktree' else git}/hooks/{hook}"
            script = f"mkdir -p $(dirname {file}); printf '#!/bin/sh\\n%s\\n' {_quoted(run)} > {file}; chmod +x {file}"
            found.append(Way(f"hook {hook}, {place}", f"{line}; {script}"))
    return found


def _tricks(run: str) -> list[Way]:
    lines = {
        "include": f"printf '[core]\\nfsmonitor = \"%s\"\\n' {_quoted(run)} > inc; git config -f .git/config include.path ../inc",
        "include of one below": f"git init -q s; printf '[core]\\nfsmonitor = \"%s\"\\n' {_quoted(run)} > inc; git config -f s/.git/config include.path ../../inc",
        "includeIf": f"git init -q s; printf '[core]\\nfsmonitor = \"%s\"\\n' {_quoted(run)} > inc; git config -f s/.git/config includeIf.gitdir:/.path ../../inc",
        "hooksPath": f"git init -q s; mkdir hk; printf '#!/bin/sh\\n%s\\n' {_quoted(run)} > hk/post-index-change; chmod +x hk/*; git config -f s/.git/config core.hooksPath ../hk",
        "hooks as a link": f"mkdir hk; printf '#!/bin/sh\\n%s\\n' {_quoted(run)} > hk/post-index-change; chmod +x hk/*; git init -q s; rm -rf s/.git/hooks; ln -s ../../hk s/.git/hooks",
        "hooks of the root as a link": f"mkdir hk; printf '#!/bin/sh\\n%s\\n' {_quoted(run)} > hk/post-index-change; chmod +x hk/*; rm -rf .git/hooks; ln -s ../hk .git/hooks",
        "git's folder in /tmp": f'git init -q --bare $TMPDIR/e; git -C $TMPDIR/e config core.fsmonitor {_quoted(run)}; mkdir w; echo "gitdir: $TMPDIR/e" > w/.git',
        "git's folder as a link to /tmp": f"git init -q --bare $TMPDIR/e; git -C $TMPDIR/e config core.fsmonitor {_quoted(run)}; mkdir w; ln -s $TMPDIR/e w/.git",
        "commondir": f"git init -q --bare e; git -C e config core.fsmonitor {_quoted(run)}; git init -q s; echo ../../e > s/.git/commondir",
        "written without git": f"git init -q s; printf '[core]\\n\\tfsmonitor = \"%s\"\\n' {_quoted(run)} >> s/.git/config",
        "on one line": f"git init -q s; printf '[core]fsmonitor=\"%s\"\\n' {_quoted(run)} >> s/.git/config",
        "in capitals": f"git init -q s; printf '[CORE]\\nFSMonitor=\"%s\"\\n' {_quoted(run)} >> s/.git/config",
        "with a continued line": f"git init -q s; printf '[core]\\nfsmonitor=\\\\\\n\"%s\"\\n' {_quoted(run)} >> s/.git/config",
        "the whole folder moved": f"git init -q s; git -C s config core.fsmonitor {_quoted(run)}; mv s moved",
        "in the background": f"(git init -q s; git -C s config core.fsmonitor {_quoted(run)}) & wait",
        "by a program it leaves": f"setsid sh -c {_quoted(f'sleep 0.2; git init -q s; git -C s config core.fsmonitor {_quoted(run)}')} & sleep 0.6",
        "vscode as a link": "mkdir vs; echo RUN > vs/tasks.json; rm -rf .vscode; ln -s vs .vscode".replace("RUN", _quoted(run)),
        "vscode moved in": "mkdir vs; echo RUN > vs/tasks.json; rm -rf .vscode; mv vs .vscode".replace("RUN", _quoted(run)),
        "600 folders deep": f"mkdir -p $(printf 'd/%.0s' $(seq 600)) && cd $(printf 'd/%.0s' $(seq 600)); git init -q s; git -C s config core.fsmonitor {_quoted(run)}",
        "in a folder whose name is no text": f"d=$(printf 'a\\377b'); git init -q $d; git -C $d config core.fsmonitor {_quoted(run)}",
        "a rebase to go on with": f"mkdir -p .git/rebase-merge; echo {_quoted('exec ' + run)} > .git/rebase-merge/git-rebase-todo",
        "a changed script": "printf %s " + _quoted(json.dumps({"scripts": {"test": run}})) + " > package.json",
        "husky in package.json": "printf %s " + _quoted(json.dumps({"scripts": {"test": "true"}, "husky": {"hooks": {"pre-commit": run}}})) + " > package.json",
        "a script of a hook's": f"printf '#!/bin/sh\\n%s\\n' {_quoted(run)} > tools/monitor.sh",
    }  # fmt: skip
    plant = f"git init -q s; git -C s config core.fsmonitor {_quoted(run)}; git init -q t"
    return [
        *(Way(name, line) for name, line in lines.items()),
        *(Way(name, f"{plant}; {line}") for name, line in BLINDING.items()),
    ]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def prepare(folder: Path) -> None:
    """A repository with a commit, hooks and files of the kind that must not change."""
    shutil.copytree(_prepared_once(), folder, symlinks=True, dirs_exist_ok=True)


@cache
def _prepared_once() -> Path:
    """Where it was made, as git is started six times for it. It goes with the process."""
    made = tempfile.TemporaryDirectory(prefix="helix-planted-")
    atexit.register(made.cleanup)
    folder = Path(made.name, "work")
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main", ".")
    for name, value in (("user.name", "a"), ("user.email", "a@b")):
        git(folder, "config", name, value)
    for name in THERE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(
            '{"scripts": {"test": "true"}}' if name == "package.json" else "mine\n"
        )
    (folder / "tools").mkdir(exist_ok=True)
    (folder / "tools/monitor.sh").write_text("#!/bin/sh\nexit 1\n")
    (folder / "tools/monitor.sh").chmod(0o755)
    git(folder, "config", "core.fsmonitor", "./tools/monitor.sh")
    (folder / "file").write_text("x\n")
    git(folder, "add", "file")
    git(folder, "commit", "-qm", "first")
    return folder


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=False, capture_output=True, timeout=60)


def empty_folder(folder: Path) -> None:
    """Also of folders that are deeper than Python's own way of removing them goes."""
    subprocess.run(["find", folder, "-mindepth", "1", "-delete"], check=True, timeout=60)
