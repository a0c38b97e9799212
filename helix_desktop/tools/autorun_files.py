"""Knows by name which files other programs run later: git, shells, editors, package managers, other agents.

`extract_runnable_text` extracts the part that can be run, so that other changes do not count.
`autorun_guard.py` handles git's own files.
"""

import fnmatch
import hashlib
import json
import re
from collections.abc import Mapping

from helix_desktop.json_values import object_at, parse_object
from helix_desktop.tools.workspace_roots import normalise_spelling

# Files with these names, wherever they are, make some program run code without asking.
AUTORUN_FILES = (
    # Read by shells, and by tools that switch environments when someone enters a folder.
    ".envrc", ".autoenv", ".autoenv.zsh", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile",
    ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".inputrc", ".pam_environment",
    ".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".tool-versions", ".mise.toml", "mise.toml", ".mise.*.toml", "mise.*.toml", ".rtx.toml",
    ".autoenv_leave.zsh", "flake-profile*.rc", "nix-profile*.rc", "flake.nix", "shell.nix", "devenv.nix", "devbox.json", ".tmux.conf", ".screenrc",
    # Read by editors and debuggers.
    "*.code-workspace", "*.sublime-project", "*.sublime-workspace", ".exrc", ".vimrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".lnvim.lua",
    ".local.vim", "_vimrc", ".gvimrc", ".dir-locals.el", ".dir-locals-2.el", ".emacs", ".gdbinit", ".lldbinit", ".pdbrc", ".pythonrc", ".devcontainer.json",
    ".gitpod.yml", ".editorconfig.js", ".kakrc", ".nanorc", ".projectionist.vim",
    # Read by editors' language servers, linters and notebooks as soon as a folder is opened.
    ".luarc.json", ".luarc.jsonc", "rust-analyzer.toml", ".rust-analyzer.toml", ".pylintrc", "pylintrc", "eslint.config.*", ".eslintrc.js", ".eslintrc.cjs", "prettier.config.*", ".prettierrc.?js", ".prettierrc.js",
    "stylelint.config.*", ".stylelintrc.js", ".stylelintrc.?js", "jupyter*_config.py", "jupyter*_config.json", "ipython_config.py",
    # A user's git settings, and settings of tools that git hooks run.
    ".gitconfig", ".pre-commit-config.yaml", ".pre-commit-config.yml", "lefthook*.yml", "lefthook*.yaml", "lefthook*.toml", "lefthook*.json", ".lefthook*.yml", ".lefthook*.yaml", ".lefthook*.toml", ".lefthook*.json",
    ".overcommit.yml", ".huskyrc*", ".lintstagedrc*", "lint-staged.config.*", ".simple-git-hooks.*", "simple-git-hooks.*", "captainhook.json", "grumphp.yml", ".hgrc", ".p4config",
    "prek.toml", "hk.pkl", "rusty-hook.toml", ".rusty-hook.toml", "commitlint.config.*", ".commitlintrc.?[jt]s", ".commitlintrc.[jt]s", ".nano-staged.*", "nano-staged.config.*",
    # Read by package managers and build tools.
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pnpmfile.mjs", ".pnpmfile.js", "pnpmfile.js", "pnpm-workspace.yaml", ".bazelrc", ".bazeliskrc", ".buckconfig", ".condarc", "pip.conf", ".pip.conf", ".pydistutils.cfg",
    "rust-toolchain.toml", "rust-toolchain", ".jvmopts", ".sbtopts", ".mavenrc", "gradle-wrapper.properties", "maven-wrapper.properties", "bunfig.toml", ".noderc", ".node_repl_history.js",
    ".rspec", ".irbrc", ".pryrc", ".rdebugrc", ".perltidyrc", ".Rprofile", ".Renviron", ".octaverc", ".ghci", ".sqliterc", ".psqlrc", ".mailcap", ".lesskey", ".lessfilter", ".ackrc", ".curlrc", ".wgetrc", ".ripgreprc",
    # Read by other agents.
    ".mcp.json", "mcp.json", "opencode.json", "opencode.jsonc", ".aider.conf.yml", ".goosehints.json", "crush.json", ".crush.json",
    "authorized_keys", "crontab", ".crontab", ".forward", ".procmailrc",
)  # fmt: skip
# In folders with these names, wherever they are, every file can make some program run code.
AUTORUN_FOLDERS = (
    ".vscode", ".idea", ".fleet", ".zed", ".vs", ".nova", ".devcontainer", ".helix", ".cursor", ".claude", ".codex", ".gemini", ".windsurf",
    ".theia", ".bsp", ".externalToolBuilders", ".shadowenv.d", ".cargo-husky", ".trunk", ".qlty", ".amp", ".factory", ".augment", ".kilocode", ".trae", ".junie", ".pi", ".openhands", ".agents", ".codebuddy", ".crush",
    ".kiro", ".opencode", ".continue", ".roo", ".cline", ".amazonq", ".qwen", ".husky", ".lefthook", ".lefthook-local", ".githooks", ".git-hooks", ".overcommit", ".mvn", ".mise",
    ".vim", ".nvim", ".kak", ".emacs.d", ".ssh",
)  # fmt: skip
# Files and folders that are run in this way only if they are inside certain other folders.
AUTORUN_PATHS = (
    ".hg/hgrc", ".jj/repo/config.toml", ".sl/config", "_darcs/prefs/defaults", ".pijul/config", "mise/config.toml", "mise/config.local.toml",
    ".yarn/releases", ".yarn/plugins", ".cargo/config", ".cargo/config.toml", ".cargo/env", ".cargo/bin", ".bundle/config", ".gnupg/gpg.conf",
    ".gnupg/gpg-agent.conf", ".config/autostart", ".config/systemd", ".config/fish", ".config/git", ".config/nvim", ".config/environment.d",
    ".config/mise", ".config/direnv", ".config/Code/User", ".config/containers", ".config/pip", ".config/zsh", ".config/kitty", ".config/sway",
    ".config/i3", ".config/helix", ".config/gh", ".local/share/applications", ".local/share/systemd", ".local/bin", ".github/hooks",
)  # fmt: skip
# Folders with thousands of installed packages. Nobody opens such a folder as a project.
PACKAGE_FOLDERS = ("node_modules", "site-packages", "dist-packages", ".venv", "venv", ".tox", ".nox", "__pycache__")
SCRIPTS = "package.json"
COMPOSER = "composer.json"
_AUTOMATIC = ("install", "prepare", "publish", "pack", "version", "uninstall", "shrinkwrap", "rebuild", "dependencies")
_HOOKS = ("husky", "lint-staged", "simple-git-hooks", "gitHooks", "pre-commit", "pre-push", "ghooks", "yorkie")
MOST_BYTES = 1 << 20


_EXACT = frozenset(normalise_spelling(name) for name in AUTORUN_FILES if not set(name) & set("*?["))
_PATTERNS = re.compile(
    "|".join(fnmatch.translate(normalise_spelling(name)) for name in AUTORUN_FILES if set(name) & set("*?["))
)
_FOLDERS = frozenset(map(normalise_spelling, AUTORUN_FOLDERS))
_BELOW: dict[str, tuple[str, ...]] = {}
for _each in map(normalise_spelling, AUTORUN_PATHS):
    _BELOW[_each.rpartition("/")[2]] = (*_BELOW.get(_each.rpartition("/")[2], ()), "/" + _each)


def is_autorun_entry(name: str, path: str, *, folder: bool) -> bool:
    """Whether other programs later run the entry, or files in it. `path` is relative to its root."""
    name = normalise_spelling(name)
    if name in _BELOW and ("/" + normalise_spelling(path)).endswith(_BELOW[name]):
        return True
    if folder:
        return name in _FOLDERS
    return name in _EXACT or name in (SCRIPTS, COMPOSER) or _PATTERNS.match(name) is not None


def is_autorun_path(path: str) -> bool:
    """Whether other programs later run a file that is written to this path, relative to its root."""
    parts = path.split("/")
    above = ("/".join(parts[: at + 1]) for at in range(len(parts) - 1))
    if ".git" in map(normalise_spelling, parts) or is_autorun_entry(parts[-1], path, folder=False):
        return True
    return any(is_autorun_entry(part, inside, folder=True) for part, inside in zip(parts, above, strict=False))


def changes_what_runs(path: str, before: bytes, after: bytes) -> bool:
    """Whether this change to a file makes another program run something else later."""
    name = path.rpartition("/")[2]
    return is_autorun_path(path) and (not is_only_partly_run(name) or bool(extract_runnable_text(name, after, before)))


def is_only_partly_run(name: str) -> bool:
    """Whether only a part of such a file is run, which also depends on the file's content before."""
    return normalise_spelling(name) in (SCRIPTS, COMPOSER)


def extract_runnable_text(name: str, content: bytes, before: bytes | None = None) -> str:
    """Return, for comparison, the text in a file that can be run, or an empty string. `before`: the old content."""
    if is_only_partly_run(name):
        return _changed_or_automatic_scripts(content, before)
    return hashlib.sha256(content).hexdigest() if content.strip() else ""


def _changed_or_automatic_scripts(content: bytes, before: bytes | None) -> str:
    """Return changed scripts, and new ones that are run automatically. Other new scripts run only by name."""
    now, old = parse_object(content or b"{}"), parse_object(before or b"{}")
    if now is None:
        return hashlib.sha256(content).hexdigest()
    scripts, had = object_at(now, "scripts"), object_at(old, "scripts")
    kept = {
        name: text
        for name, text in scripts.items()
        if (_is_automatic_script(name, scripts) and name not in had) or had.get(name, text) != text
    }
    hooks = {name: now[name] for name in _HOOKS if name in now and now[name] != (old or {}).get(name)}
    return json.dumps([kept, hooks], sort_keys=True) if kept or hooks else ""


def _is_automatic_script(name: str, scripts: Mapping[str, object]) -> bool:
    if any(word in name for word in _AUTOMATIC) or ("-" in name and name.startswith(("pre-", "post-"))):
        return True
    return name.startswith(("pre", "post")) and any(name.removeprefix(each) in scripts for each in ("pre", "post"))
