"""Who may do what: the mode of a workspace, its rules, and the decision for one action. Plain values, no I/O.

Order: a rule that denies, a rule that asks, what always asks, a rule that allows, the mode. Rules come from the user
alone, never from a model, a summary or an imported file; the record of a decision in the journal authorises nothing.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from enum import IntEnum, StrEnum
from itertools import takewhile

from helix_desktop.errors import WrongUse
from helix_desktop.tools import confine, narrow
from helix_desktop.tools.own_code import program
from helix_desktop.tools.programs import Known, Unknown, programs
from helix_desktop.tools.shell_words import certain
from helix_desktop.tools.started import Started, Written
from helix_desktop.values import dataclass

SCOPES = ("once", "conversation", "always")
DECISIONS = ("allow", "ask", "deny")


class Mode(StrEnum):
    """What may be done without asking."""

    READ_ONLY = "read only"
    PLAN = "plan"
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
    `strict`: in every mode; `apart`: the name it has to be
    allowed by, where allowing the tool is not enough. `reads`: of a server's tool, that the user marked it as one that only reads.
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
    apart: str = ""
    reads: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """Empty fields fit everything; `tool` and `path` are patterns. `command`: of a rule that allows exact, or a prefix when it
    ends in ` *`; one that asks or denies holds for every command that begins so, however it is started.
    """

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
                f"A permission rule couldn't be understood: {dict(values)}.",
                remedy="A rule needs a decision (allow, ask or deny), and can have a tool, path, command and network.",
            )
        texts = {name: str(value) for name, value in values.items() if name != "network"}
        return cls(**texts, network=values.get("network") is True)

    def plain(self) -> dict[str, str | bool]:
        """For the workspace's settings; defaults are left out."""
        return {item.name: value for item in fields(self) if (value := getattr(self, item.name)) != item.default}


@dataclass(frozen=True, slots=True)
class Decision:
    """`verdict` is allow, ask or deny; `by` is rule or mode; `scopes` is what the user may be offered; `apart`: as of an
    action, or `held` (by a rule) or `hidden` (nobody can tell what it runs).
    """

    verdict: str
    by: str
    why: str
    scopes: tuple[str, ...] = SCOPES
    apart: str = ""


def decide(action: Action, mode: Mode, rules: Sequence[Rule], *, sandboxed: bool) -> Decision:
    """What is to happen with this action."""
    held = _held_back(action, mode, rules, sandboxed=sandboxed)
    if held is not None:
        return held
    if allows(rules, action):
        return Decision("allow", "rule", "a rule in this workspace allows it")
    return _by_mode(action, mode)


def _held_back(action: Action, mode: Mode, rules: Sequence[Rule], *, sandboxed: bool) -> Decision | None:
    """What no rule that allows can get past."""
    if any(rule.decision == "deny" and _holds(rule, action) is _Fit.YES for rule in rules):
        return Decision("deny", "rule", "a rule in this workspace denies it")
    if mode is Mode.READ_ONLY and action.effect in {Effect.EDIT, Effect.RUN}:
        return Decision("deny", "mode", "this workspace is read-only")
    if mode is Mode.PLAN and (why := _changes(action, sandboxed=sandboxed)):
        return Decision("deny", "mode", why)
    return _asked_for(action, mode, rules, sandboxed=sandboxed)


def _changes(action: Action, *, sandboxed: bool) -> str:
    """Why plan mode does not let this happen; empty for what can change nothing."""
    if action.effect is Effect.EDIT:
        return "in plan mode, nothing can be changed; present the plan first"
    if action.effect is Effect.FOREIGN and not action.reads:
        return "in plan mode, only MCP tools that the user marked as read-only can run"
    if action.effect is Effect.RUN and not sandboxed:
        return "in plan mode, commands need a sandbox, and this system has none"
    if action.effect is Effect.RUN and (action.network or action.danger):
        return "in plan mode, commands run inside the sandbox and without the network"
    return ""


def _asked_for(action: Action, mode: Mode, rules: Sequence[Rule], *, sandboxed: bool) -> Decision | None:
    """Why this must be asked each time; None where it need not."""
    fits = {_holds(rule, action) for rule in rules if rule.decision != "allow"}
    if _Fit.YES in fits:
        return Decision("ask", "rule", "a rule in this workspace requires approval", ("once",), "held")
    if _Fit.MAYBE in fits:
        why = "a rule denies some commands here, and this command may run one of them"
        return Decision("ask", "rule", why, ("once",), "held")
    if action.effect is Effect.RUN:
        if isinstance(known := programs(action.command), Unknown):
            why = f"the command hides what it runs: {known.reason}"
            return Decision("ask", "mode", why, ("once",), action.apart or "hidden")
        if not sandboxed:
            why = "there is no sandbox, so every command needs approval"
            return Decision("ask", "mode", why, ("once",), action.apart)
    if action.danger and (action.strict or mode is not Mode.ALLOW_ALL):
        return Decision("ask", "mode", action.danger, ("once",), action.apart)
    return None


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
    scopes = SCOPES if rules_for(action) else ("once",)
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
    known = programs(action.command)
    if isinstance(known, Unknown) or not known.plain or not known.commands:
        return False
    return all(any(_covers(rule.command, one, fitting) for rule in fitting) for one in known.commands)


def _covers(pattern: str, one: Written, fitting: Sequence[Rule]) -> bool:
    """Whether a rule allows this command. One for a prefix allows no code in it, and no other program that has no rule."""
    wanted = _pattern_words(pattern)
    if not wanted or program(one.words[0]) in narrow.KEYWORDS:
        return False
    if not pattern.endswith(" *"):
        return one.words == wanted
    if one.words[: len(wanted)] != wanted or one.code:
        return False
    starts = [Written(start.words) for start in one.starts]
    return all(any(_covers(rule.command, start, fitting) for rule in fitting) for start in starts)


def _pattern_words(pattern: str) -> tuple[str, ...]:
    """The words of a rule's command, without the star at its end; none where it is no single command."""
    known = programs(pattern.removesuffix(" *"))
    if isinstance(known, Unknown) or not known.plain or len(known.commands) != 1:
        return ()
    return known.commands[0].words


def rules_for(action: Action) -> tuple[Rule, ...]:
    """The rules that "always" or "this conversation" could keep, the widest first; none where no rule would be safe."""
    if action.effect is Effect.FETCH:
        return (Rule("allow", tool=action.tool, path=action.path),)
    if action.effect is not Effect.RUN:
        return (Rule("allow", tool=action.tool),)
    known = programs(action.command)
    if isinstance(known, Unknown) or not known.plain or len(known.commands) != 1:
        return ()
    rule = Rule("allow", tool=action.tool, network=action.network)
    rules = [replace(rule, command=command) for command in narrow.commands_for(known.commands[0])]
    return tuple(one for one in rules if allows((one,), action) and not too_wide(one))


def rule_words(rule: Rule) -> str:
    """What a rule that allows is about, for the user who is about to make it."""
    words = rule.command or rule.path or rule.tool
    return f"{words} (with network access)" if rule.network else words


def too_wide(rule: Rule) -> bool:
    """Whether a rule that allows admits other programs than the one it names."""
    if rule.decision != "allow" or not rule.command.endswith(" *"):
        return False
    words = _pattern_words(rule.command)
    return not words or not narrow.safe_prefix(words)


# --- rules that hold something back ----------------------------------------------------------------------------------


class _Fit(IntEnum):
    NO = 0
    MAYBE = 1
    YES = 2


def _holds(rule: Rule, action: Action) -> _Fit:
    """A rule that holds back fits generously: any program the line would start, any spelling of the path."""
    if not _tool_fits(rule, action) or (rule.network and not action.network):
        return _Fit.NO
    if rule.path and not (action.path and _path_fits(rule, action.path, loose=True)):
        return _Fit.NO
    if not rule.command:
        return _Fit.YES
    return _command_held(rule.command, action) if action.effect is Effect.RUN else _Fit.NO


def _command_held(pattern: str, action: Action) -> _Fit:
    wanted = _held_words(pattern)
    known = programs(action.command)
    if isinstance(known, Unknown):  # the words are enough to hold it back
        bare = " ".join(re.sub(r"['\"\\]", "", action.command).split())
        return _Fit.YES if re.search(rf"(?<![\w.-]){re.escape(' '.join(wanted))}(?![\w-])", bare) else _Fit.MAYBE
    fits = [_fit(wanted, one) for one in known.programs]
    if _Fit.YES in fits:
        return _Fit.YES
    return _Fit.MAYBE if _Fit.MAYBE in fits or known.doubts or _named(wanted[0], known) else _Fit.NO


def _held_words(pattern: str) -> list[str]:
    try:
        words = shlex.split(pattern.removesuffix("*"))
    except ValueError:
        words = pattern.removesuffix("*").split()
    return words or ["*"]


def _fit(wanted: Sequence[str], one: Started) -> _Fit:
    """Whether these words begin the command. Options may stand anywhere; what the shell fills in may be any word."""
    if not fnmatch.fnmatchcase(one.name.casefold(), program(wanted[0]).casefold()):
        return _Fit.NO
    told = list(takewhile(certain, one.words[1:]))
    places = [word for word in wanted[1:] if not word.startswith("-")]
    plain = [word for word in told if not word.startswith("-")]
    open_ = len(told) < len(one.words) - 1
    if not _begin(places, plain):
        lead = list(takewhile(lambda word: not word.startswith("-"), told))
        return _Fit.MAYBE if _begin(places, lead) and _in_order(places, plain) else _Fit.NO
    options = [word for word in wanted[1:] if word.startswith("-")]
    whole = len(plain) >= len(places) and all(_has_option(want, one.words) for want in options)
    if not whole:
        return _Fit.MAYBE if open_ else _Fit.NO
    return _Fit.YES if one.sure else _Fit.MAYBE


def _begin(wanted: Sequence[str], words: Sequence[str]) -> bool:
    return all(fnmatch.fnmatchcase(has, want) for want, has in zip(wanted, words, strict=False))


def _in_order(wanted: Sequence[str], words: Sequence[str]) -> bool:
    rest = iter(words)
    return all(any(fnmatch.fnmatchcase(has, want) for has in rest) for want in wanted)


def _has_option(want: str, words: Sequence[str]) -> bool:
    """`-rf` is there also as `-fr` or `-r -f`; `--force` also as `--force=…`."""
    if want.startswith("--"):
        return any(word.partition("=")[0] == want or fnmatch.fnmatchcase(word, want) for word in words)
    letters = {letter for word in words if re.match(r"-[^-]", word) for letter in word[1:]}
    return set(want[1:]) <= letters


def _named(name: str, known: Known) -> bool:
    """Whether a program is named in the arguments of one that may start it."""
    pattern = re.compile(rf"(?:^|[^\w-])(?:-\w)?{re.escape(program(name))}(?![\w-])", re.IGNORECASE)
    return any(pattern.search(text) for text in known.texts)


# --- tools and paths -------------------------------------------------------------------------------------------------


def _tool_fits(rule: Rule, action: Action) -> bool:
    return not rule.tool or fnmatch.fnmatchcase(action.tool, rule.tool)


def _path_fits(rule: Rule, path: str, *, loose: bool) -> bool:
    if not rule.path:
        return True
    if not loose:
        return bool(path) and fnmatch.fnmatchcase(path, rule.path)
    pattern = confine.spelling(rule.path)
    return any(fnmatch.fnmatchcase(confine.spelling(path), one) for one in (pattern, pattern.removeprefix("**/")))
