"""Who may do what: the mode of a workspace, its rules, and the decision for one action. Plain values, no I/O.

Order: a rule that denies, a rule that asks, what always asks, a rule that allows, the mode. Rules come from the user
alone, never from a model, a summary or an imported file; the record of a decision in the journal authorises nothing.
"""

from __future__ import annotations

import fnmatch
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

from helix_desktop.errors import WrongUse
from helix_desktop.tools.command_line import Simple, simple_commands

SCOPES = ("once", "conversation", "always")
DECISIONS = ("allow", "ask", "deny")

# Changing these makes other programs run something: they are asked for in every mode but `allow all`.
RUNS_LATER = (".git/*", "*/.git/*", ".envrc", "*/.envrc", ".vscode/*", "*/.vscode/*", ".idea/*", "*/.idea/*")
# Their arguments are programs of their own: "always" for these means this very command and nothing longer.
INTERPRETERS = frozenset(
    [
        "bash",
        "sh",
        "zsh",
        "dash",
        "fish",
        "env",
        "sudo",
        "doas",
        "su",
        "xargs",
        "find",
        "python",
        "python3",
        "node",
        "deno",
        "bun",
        "ruby",
        "perl",
        "php",
        "lua",
        "awk",
        "sed",
        "ssh",
        "eval",
        "exec",
        "time",
        "nohup",
        "nice",
        "timeout",
        "watch",
        "parallel",
        "osascript",
        "powershell",
        "pwsh",
        "cmd",
        "npx",
        "uvx",
        "bunx",
        "make",
    ]
)
SUBCOMMANDS = frozenset(
    [
        "git",
        "npm",
        "pnpm",
        "yarn",
        "cargo",
        "go",
        "pip",
        "uv",
        "poetry",
        "docker",
        "kubectl",
        "gh",
        "apt",
        "brew",
        "dotnet",
        "mvn",
        "gradle",
    ]
)


class Mode(StrEnum):
    """What may be done without asking."""

    READ_ONLY = "read only"
    ASK = "ask"
    ALLOW_EDITS = "allow edits"
    ALLOW_ALL = "allow all"


class Effect(StrEnum):
    """What an action does to the world. `READ` stays inside the roots and the cache and is never asked for."""

    READ = "read"
    EDIT = "edit"
    RUN = "run"
    FETCH = "fetch"
    FOREIGN = "foreign"  # a tool of one of the user's MCP servers: nobody knows what it does


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a tool is about to do. `danger`: why it is asked for even where a rule or the mode would allow it;
    `strict`: in every mode.
    """

    tool: str
    effect: Effect
    title: str
    preview: str
    path: str = ""
    command: str = ""
    network: bool = False
    danger: str = ""
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """Empty fields fit everything; `tool` and `path` are patterns; `command` is exact, or a prefix when it ends in ` *`."""

    decision: str
    tool: str = ""
    path: str = ""
    command: str = ""
    network: bool = False

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Rule:
        """From the workspace's settings; a mistake in there must never read as permission."""
        known = {item.name for item in fields(cls)}
        strange = [name for name in values if name not in known]
        if strange or values.get("decision") not in DECISIONS:
            raise WrongUse(
                f"A permission rule is not understood: {dict(values)}.",
                remedy="It needs decision (allow, ask or deny), and may have tool, path, command and network.",
            )
        texts = {name: str(value) for name, value in values.items() if name != "network"}
        return cls(**texts, network=values.get("network") is True)

    def plain(self) -> dict[str, str | bool]:
        """For the workspace's settings; defaults are left out."""
        return {item.name: value for item in fields(self) if (value := getattr(self, item.name)) != item.default}


@dataclass(frozen=True, slots=True)
class Decision:
    """`verdict` is allow, ask or deny; `by` is rule or mode; `scopes` is what the user may be offered."""

    verdict: str
    by: str
    why: str
    scopes: tuple[str, ...] = SCOPES


def decide(action: Action, mode: Mode, rules: Sequence[Rule], *, sandboxed: bool) -> Decision:
    """What is to happen with this action."""
    held = _held_back(action, mode, rules, sandboxed=sandboxed)
    if held is not None:
        return held
    if allows(rules, action):
        return Decision("allow", "rule", "a rule of this workspace allows it")
    return _by_mode(action, mode)


def _held_back(action: Action, mode: Mode, rules: Sequence[Rule], *, sandboxed: bool) -> Decision | None:
    """What no rule that allows can get past."""
    if any(rule.decision == "deny" and _forbids(rule, action) for rule in rules):
        return Decision("deny", "rule", "a rule of this workspace forbids it")
    if mode is Mode.READ_ONLY and action.effect in {Effect.EDIT, Effect.RUN}:
        return Decision("deny", "mode", "this workspace is read only")
    why = _asked_for(action, mode, rules, sandboxed=sandboxed)
    return Decision("ask", "rule" if why.startswith("a rule") else "mode", why, ("once",)) if why else None


def _asked_for(action: Action, mode: Mode, rules: Sequence[Rule], *, sandboxed: bool) -> str:
    """Why this has to be asked each time; empty where it need not."""
    if any(rule.decision == "ask" and _forbids(rule, action) for rule in rules):
        return "a rule of this workspace asks for it"
    if _unreadable(action) and any(rule.command and rule.decision != "allow" for rule in rules):
        return "a rule holds commands back here, and this one cannot be read"
    if action.effect is Effect.RUN and not sandboxed:
        return "there is no sandbox, so every command is asked for"
    return action.danger if action.strict or mode is not Mode.ALLOW_ALL else ""


_ASKED = {
    Effect.EDIT: "changes",
    Effect.RUN: "commands",
    Effect.FETCH: "anything is fetched",
    Effect.FOREIGN: "a server's tools are used",
}


def _by_mode(action: Action, mode: Mode) -> Decision:
    if action.effect is Effect.READ:
        return Decision("allow", "mode", "reading inside the workspace")
    if mode is Mode.ALLOW_ALL:
        return Decision("allow", "mode", "this workspace allows everything")
    if mode is Mode.ALLOW_EDITS and action.effect is Effect.EDIT:
        return Decision("allow", "mode", "this workspace allows edits")
    scopes = SCOPES if rule_for(action) else ("once",)
    return Decision("ask", "mode", f"this workspace asks before {_ASKED[action.effect]}", scopes)


def allows(rules: Iterable[Rule], action: Action) -> bool:
    """Whether allowing rules cover the whole action; of a command line, every single command in it."""
    fitting = [rule for rule in rules if rule.decision == "allow" and _tool_fits(rule, action)]
    if action.network:
        fitting = [rule for rule in fitting if rule.network]
    if action.effect is not Effect.RUN:
        return any(not rule.command and _path_fits(rule, action.path, loose=False) for rule in fitting)
    if any(not rule.command and not rule.path for rule in fitting):
        return True
    commands = simple_commands(action.command)
    return bool(commands) and all(any(_command_fits(rule.command, item) for rule in fitting) for item in commands or ())


def rule_for(action: Action) -> Rule | None:
    """The rule that "always" or "this conversation" would keep; None where no rule would be safe."""
    if action.effect is Effect.FETCH:
        return Rule("allow", tool=action.tool, path=action.path)
    if action.effect is not Effect.RUN:
        return Rule("allow", tool=action.tool)
    commands = simple_commands(action.command)
    if not commands or len(commands) > 1:
        return None
    return Rule("allow", tool=action.tool, command=_remembered(commands[0].words), network=action.network)


def _remembered(words: Sequence[str]) -> str:
    """`git status *` for `git status -s`; the whole command where the program runs other programs."""
    program = words[0].rpartition("/")[2]
    if program in INTERPRETERS or "/" in words[0]:
        return _joined(words)
    if program in SUBCOMMANDS:
        return _joined(words[:2]) + " *" if len(words) > 1 and not words[1].startswith("-") else _joined(words)
    return f"{_joined(words[:1])} *"


def _joined(words: Sequence[str]) -> str:
    return " ".join(f"'{word}'" if " " in word or word in ("*", "") else word for word in words)


def _forbids(rule: Rule, action: Action) -> bool:
    """A rule that holds back fits generously: any command in the line, any spelling of the path."""
    if not _tool_fits(rule, action) or (rule.network and not action.network):
        return False
    if rule.path and not (action.path and _path_fits(rule, action.path, loose=True)):
        return False
    if not rule.command:
        return True
    if action.effect is not Effect.RUN:
        return False
    commands = simple_commands(action.command)
    if commands is None:  # cannot be taken apart: the words are enough to hold it back
        return rule.command.removesuffix("*").strip() in " ".join(
            action.command.replace("'", " ").replace('"', " ").split()
        )
    return any(_command_fits(rule.command, item) for item in commands)


def _unreadable(action: Action) -> bool:
    return action.effect is Effect.RUN and simple_commands(action.command) is None


def _tool_fits(rule: Rule, action: Action) -> bool:
    return not rule.tool or fnmatch.fnmatchcase(action.tool, rule.tool)


def _path_fits(rule: Rule, path: str, *, loose: bool) -> bool:
    if not rule.path:
        return True
    if not loose:
        return bool(path) and fnmatch.fnmatchcase(path, rule.path)
    pattern = _spelling(rule.path)
    return any(fnmatch.fnmatchcase(_spelling(path), one) for one in (pattern, pattern.removeprefix("**/")))


def _spelling(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _command_fits(pattern: str, command: Simple) -> bool:
    if not pattern:
        return False
    parsed = simple_commands(pattern.removesuffix(" *"))
    if not parsed or len(parsed) != 1 or command.assigns:
        return False
    wanted = parsed[0].words
    return command.words[: len(wanted)] == wanted if pattern.endswith(" *") else command.words == wanted


def runs_later(path: str) -> bool:
    """Whether changing this file makes another program run something later on."""
    return any(fnmatch.fnmatchcase(_spelling(path), pattern) for pattern in RUNS_LATER)
