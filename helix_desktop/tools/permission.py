"""Decides whether an action is allowed, by the workspace's mode and rules. Plain values, no I/O.

In this order: rules that deny, rules that ask, what is always asked, rules that allow,
the mode. Only the user makes rules, never a model, a summary or an imported file. A
recorded decision authorises nothing.
"""

import fnmatch
import glob
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from enum import IntEnum, StrEnum
from itertools import takewhile

from helix_desktop.engine.ports import AskedProgram
from helix_desktop.engine.tool_names import EDITS
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.command_lines import command_analysis, program_tables
from helix_desktop.tools.command_lines.command_analysis import (
    KnownPrograms,
    UnknownPrograms,
    find_started_programs,
)
from helix_desktop.tools.command_lines.program_finder import (
    StartedProgram,
    WrittenCommand,
    may_read_code_from_input,
    program_base_name,
)
from helix_desktop.tools.command_lines.shell_parser import is_certain_word
from helix_desktop.tools.command_lines.starting_uses import starts_unnamed_program
from helix_desktop.tools.workspace_roots import normalise_spelling

SCOPES = ("once", "conversation", "always")
DECISIONS = ("allow", "ask", "deny")


class PermissionMode(StrEnum):
    READ_ONLY = "read only"
    PLAN = "plan"
    ASK = "ask"
    ALLOW_EDITS = "allow edits"
    ALLOW_ALL = "allow all"


class ActionEffect(StrEnum):
    """What an action does. `READ` stays inside the roots and the cache, and is never
    asked about.
    """

    READ = "read"
    EDIT = "edit"
    RUN = "run"
    FETCH = "fetch"
    FOREIGN = "foreign"  # A tool of one of the user's MCP servers. Its effects are unknown.


@dataclass(frozen=True, slots=True)
class ToolAction:
    """One action of a tool. `reason_to_ask`: why to ask even if a rule or the mode allows it, or in
    every mode (`asks_in_every_mode`). `separate_permission`: a name to allow it by, if allowing the
    tool is not enough. `only_reads`: the user marked this server's tool as one that only reads.
    """

    tool: str
    effect: ActionEffect
    title: str
    preview: str
    path: str = ""
    command: str = ""
    network: bool = False
    reason_to_ask: str = ""
    asks_in_every_mode: bool = False
    separate_permission: str = ""
    only_reads: bool = False


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """Empty fields match everything; `tool` and `path` are patterns. In a rule that
    allows, `command` is exact, or a prefix if it ends in ` *`. In others, it matches
    all commands that begin so.
    """

    decision: str
    tool: str = ""
    path: str = ""
    command: str = ""
    network: bool = False

    @classmethod
    def parse_permission_rule(cls, values: Mapping[str, object]) -> "PermissionRule":
        """Parse a rule from the workspace's settings. A mistake there must never become
        a permission.
        """
        known = {item.name for item in fields(cls)}
        strange = [name for name in values if name not in known]
        if strange or values.get("decision") not in DECISIONS:
            raise InvalidInput(
                f"A permission rule could not be understood: {dict(values)}.",
                remedy="A rule needs a decision (allow, ask or deny), and can have a tool, path, command and network.",
            )
        texts = {name: str(value) for name, value in values.items() if name != "network"}
        return cls(**texts, network=values.get("network") is True)

    def as_rule_table(self) -> dict[str, str | bool]:
        """Return a table for the workspace's settings, without default values."""
        return {
            item.name: value
            for item in fields(self)
            if (value := getattr(self, item.name)) != item.default
        }


@dataclass(frozen=True, slots=True)
class PermissionDecision:
    """`verdict`: allow, ask or deny. `decided_by`: rule or mode. `scopes`: what to offer the user.
    `separate_permission`: the action's, or `held` (by a rule) or `hidden` (what runs is unknown).
    """

    verdict: str
    decided_by: str
    reason: str
    scopes: tuple[str, ...] = SCOPES
    separate_permission: str = ""


def decide_permission(
    action: ToolAction, mode: PermissionMode, rules: Sequence[PermissionRule], *, sandboxed: bool
) -> PermissionDecision:
    held = _decide_without_allow_rules(action, mode, rules, sandboxed=sandboxed)
    if held is not None:
        return held
    if rules_allow_action(rules, action):
        return PermissionDecision("allow", "rule", "a rule in this workspace allows it")
    return _decide_by_mode(action, mode, rules)


def _decide_without_allow_rules(
    action: ToolAction, mode: PermissionMode, rules: Sequence[PermissionRule], *, sandboxed: bool
) -> PermissionDecision | None:
    """Return what no allowing rule can override, or None."""
    if any(
        rule.decision == "deny" and _match_restricting_rule(rule, action) is _RuleFit.YES
        for rule in rules
    ):
        return PermissionDecision("deny", "rule", "a rule in this workspace denies it")
    if mode is PermissionMode.READ_ONLY and action.effect in {ActionEffect.EDIT, ActionEffect.RUN}:
        return PermissionDecision("deny", "mode", "this workspace is read-only")
    if mode is PermissionMode.PLAN and (
        why := _reason_refused_in_plan_mode(action, sandboxed=sandboxed)
    ):
        return PermissionDecision("deny", "mode", why)
    return _decide_if_always_asked(action, mode, rules, sandboxed=sandboxed)


def _reason_refused_in_plan_mode(action: ToolAction, *, sandboxed: bool) -> str:
    """Say why plan mode refuses the action. Return an empty string if it can change nothing."""
    if action.effect is ActionEffect.EDIT:
        return "in plan mode, nothing can be changed; present the plan first"
    if action.effect is ActionEffect.FOREIGN and not action.only_reads:
        return "in plan mode, only MCP tools that the user marked as read-only can run"
    if action.effect is ActionEffect.RUN and not sandboxed:
        return "in plan mode, commands need a sandbox, and this system has none"
    if action.effect is ActionEffect.RUN and (action.network or action.reason_to_ask):
        return "in plan mode, commands run inside the sandbox and without the network"
    return ""


def _decide_if_always_asked(
    action: ToolAction, mode: PermissionMode, rules: Sequence[PermissionRule], *, sandboxed: bool
) -> PermissionDecision | None:
    """Return the decision to ask each time, or None if that is not necessary."""
    fits = {_match_restricting_rule(rule, action) for rule in rules if rule.decision != "allow"}
    if _RuleFit.YES in fits:
        return PermissionDecision(
            "ask", "rule", "a rule in this workspace requires approval", ("once",), "held"
        )
    if _RuleFit.MAYBE in fits:
        why = "this command may run other commands that a rule denies here"
        return PermissionDecision("ask", "rule", why, ("once",), "held")
    if action.effect is ActionEffect.RUN:
        if isinstance(known := find_started_programs(action.command), UnknownPrograms):
            why = f"the command hides what it runs: {known.reason}"
            return PermissionDecision(
                "ask", "mode", why, ("once",), action.separate_permission or "hidden"
            )
        if not sandboxed:
            why = "there is no sandbox, so every command needs approval"
            return PermissionDecision("ask", "mode", why, ("once",), action.separate_permission)
    if action.reason_to_ask and (action.asks_in_every_mode or mode is not PermissionMode.ALLOW_ALL):
        return PermissionDecision(
            "ask", "mode", action.reason_to_ask, ("once",), action.separate_permission
        )
    return None


_ASKED = {
    ActionEffect.EDIT: "changes",
    ActionEffect.RUN: "commands",
    ActionEffect.FETCH: "anything is fetched from the web",
    ActionEffect.FOREIGN: "a server's tools are used",
}


def _decide_by_mode(
    action: ToolAction, mode: PermissionMode, rules: Sequence[PermissionRule]
) -> PermissionDecision:
    if action.effect is ActionEffect.READ:
        return PermissionDecision("allow", "mode", "reading in the workspace needs no permission")
    if mode is PermissionMode.ALLOW_ALL:
        return PermissionDecision("allow", "mode", "this workspace allows everything")
    if mode is PermissionMode.ALLOW_EDITS and action.effect is ActionEffect.EDIT:
        return PermissionDecision("allow", "mode", "this workspace allows edits")
    if choices_to_offer(action, rules):
        return PermissionDecision(
            "ask", "mode", f"this workspace asks before {_ASKED[action.effect]}"
        )
    known = find_started_programs(action.command)
    if isinstance(known, KnownPrograms) and _may_pipe_code(known):
        why = "this workspace asks before commands, and it can only be allowed once: a program in it may run what another one prints"
    elif isinstance(known, KnownPrograms) and known.unsure:
        why = f"this workspace asks before commands, and it can only be allowed once: {known.unsure[0]}"
    else:
        why = "this workspace asks before commands, and no rule could safely cover this one, so it can only be allowed once"
    return PermissionDecision("ask", "mode", why, ("once",))


def rules_allow_action(rules: Iterable[PermissionRule], action: ToolAction) -> bool:
    """Whether allowing rules cover the whole action, which means every command of a
    command line.
    """
    fitting = _list_fitting_rules(rules, action)
    for rule in fitting:
        if rule.command:
            continue
        # A rule without a command is about a path, or about all that a tool does.
        if action.effect is ActionEffect.RUN:
            is_covered = not rule.path
        else:
            is_covered = _path_fits(rule, action.path, any_spelling=False)
        if is_covered:
            return True
    if action.effect is not ActionEffect.RUN:
        return False
    known = find_started_programs(action.command)
    if isinstance(known, UnknownPrograms) or known.unsure or not known.commands:
        return False
    if _may_pipe_code(known):
        return False
    return all(_is_covered(command, fitting) for command in known.commands)


def _is_covered(command: WrittenCommand, fitting: Sequence[PermissionRule]) -> bool:
    return any(_rule_covers_command(rule.command, command, fitting) for rule in fitting)


def _rule_covers_command(
    pattern: str, command: WrittenCommand, fitting: Sequence[PermissionRule]
) -> bool:
    """Whether a rule allows this command. A prefix rule covers no inline code, nor
    started programs without a rule.
    """
    wanted = _words_of_command_pattern(pattern)
    if not wanted or program_base_name(command.words[0]) in program_tables.SHELL_KEYWORDS:
        return False
    if not pattern.endswith(" *"):
        return command.words == wanted
    if command.words[: len(wanted)] != wanted or command.has_own_code:
        return False
    if starts_unnamed_program(command.words):
        return False
    starts = [WrittenCommand(start.words) for start in command.started_programs]
    return all(
        any(_rule_covers_command(rule.command, start, fitting) for rule in fitting)
        for start in starts
    )


def _words_of_command_pattern(pattern: str) -> tuple[str, ...]:
    """Return the words of a rule's command without a final star, or none if it is not a
    single command.
    """
    known = find_started_programs(pattern.removesuffix(" *"))
    if isinstance(known, UnknownPrograms) or known.unsure or len(known.commands) != 1:
        return ()
    return known.commands[0].words


def choices_to_offer(
    action: ToolAction, rules: Sequence[PermissionRule] = ()
) -> tuple[tuple[PermissionRule, ...], ...]:
    """Return what to offer for "always" or "this conversation", best first, or nothing if
    nothing would be safe.

    Each choice is all that is still missing: a rule for each program of a command line that
    no rule covers yet.
    """
    if action.effect is ActionEffect.EDIT:
        return _edits_to_offer(action)
    if action.effect is ActionEffect.FETCH:
        return ((PermissionRule("allow", tool=action.tool, path=action.path),),)
    if action.effect is not ActionEffect.RUN:
        return ((PermissionRule("allow", tool=action.tool),),)
    return _choices_for_command_line(action, rules)


def _choices_for_command_line(
    action: ToolAction, rules: Sequence[PermissionRule]
) -> tuple[tuple[PermissionRule, ...], ...]:
    known = find_started_programs(action.command)
    if isinstance(known, UnknownPrograms) or known.unsure or not known.commands:
        return ()
    if _may_pipe_code(known):
        return ()
    fitting = _list_fitting_rules(rules, action)
    missing = [command for command in known.commands if not _is_covered(command, fitting)]
    suggested = [_rules_for_command(command, action) for command in missing]
    choices: list[tuple[PermissionRule, ...]] = []
    if len(suggested) == 1:
        choices = [(rule,) for rule in suggested[0]]
    elif all(suggested):
        # The widest or, for what changes files, the narrowest of each; then each exactly as it is.
        first_of_each = [rules_of_command[0] for rules_of_command in suggested]
        exact_of_each = [_find_exact_rule(rules_of_command) for rules_of_command in suggested]
        choices = [tuple(dict.fromkeys(first_of_each)), tuple(dict.fromkeys(exact_of_each))]
    covering = [
        choice for choice in choices if choice and rules_allow_action((*rules, *choice), action)
    ]
    return tuple(dict.fromkeys(covering))


def _may_pipe_code(known: KnownPrograms) -> bool:
    """Whether one command may be another's program, as in `cat x | python3`: no word says
    what would run.
    """
    return len(known.commands) > 1 and any(
        may_read_code_from_input(command.words) for command in known.commands
    )


def _list_fitting_rules(
    rules: Iterable[PermissionRule], action: ToolAction
) -> list[PermissionRule]:
    """Return the rules that allow this tool and, if the action needs it, the network."""
    allowing = [rule for rule in rules if rule.decision == "allow" and _tool_fits(rule, action)]
    if action.network:
        return [rule for rule in allowing if rule.network]
    return allowing


def _edits_to_offer(action: ToolAction) -> tuple[tuple[PermissionRule, ...], ...]:
    """Edits in the file's folder, and in the whole workspace."""
    everywhere = (PermissionRule("allow", tool=action.tool),)
    folder = action.path.rpartition("/")[0]
    if action.tool not in EDITS or not folder:
        return (everywhere,)
    pattern = f"{glob.escape(folder)}/*"
    here = tuple(PermissionRule("allow", tool=tool, path=pattern) for tool in sorted(EDITS))
    if not rules_allow_action(here, action):
        return (everywhere,)
    return (here, everywhere)


def _rules_for_command(command: WrittenCommand, action: ToolAction) -> list[PermissionRule]:
    """Return the rules that could cover this command alone, best first."""
    rules = []
    for pattern in command_analysis.suggest_rule_commands(command):
        rule = PermissionRule("allow", tool=action.tool, network=action.network, command=pattern)
        if _is_covered(command, (rule,)) and not is_rule_too_wide(rule):
            rules.append(rule)
    return rules


def _find_exact_rule(rules: Sequence[PermissionRule]) -> PermissionRule:
    return next((rule for rule in rules if not rule.command.endswith(" *")), rules[0])


def rules_to_offer(action: ToolAction) -> tuple[PermissionRule, ...]:
    """Return the single rules that would cover the whole action."""
    return tuple(choice[0] for choice in choices_to_offer(action) if len(choice) == 1)


def describe_choice(choice: Sequence[PermissionRule]) -> str:
    """Describe the rules that one press would add."""
    return ", ".join(dict.fromkeys(map(describe_allowing_rule, choice)))


def describe_allowing_rule(rule: PermissionRule) -> str:
    """Describe an allowing rule for the user who is about to create it."""
    words = rule.command or rule.path or rule.tool
    return f"{words} (with network access)" if rule.network else words


def list_asked_programs(
    action: ToolAction, rules: Sequence[PermissionRule]
) -> tuple[AskedProgram, ...]:
    """Return what a command line starts, each with its state, for the user who is asked."""
    if action.effect is not ActionEffect.RUN:
        return ()
    known = find_started_programs(action.command)
    if isinstance(known, UnknownPrograms):
        return ()
    fitting = _list_fitting_rules(rules, action)
    programs: dict[AskedProgram, None] = {}
    for command in known.commands:
        is_allowed = not known.unsure and _is_covered(command, fitting)
        for started in (StartedProgram(command.words), *command.started_programs):
            label = command_analysis.name_of_command(started.words)
            writes = command_analysis.list_written_files(started.words)
            programs[AskedProgram(label, is_allowed, writes)] = None
    return tuple(programs)


def is_rule_too_wide(rule: PermissionRule) -> bool:
    """Whether an allowing rule also admits programs other than the one it names."""
    if rule.decision != "allow" or not rule.command.endswith(" *"):
        return False
    words = _words_of_command_pattern(rule.command)
    return not words or not command_analysis.is_safe_prefix(words)


# --- Rules that deny an action, or ask first


class _RuleFit(IntEnum):
    NO = 0
    MAYBE = 1
    YES = 2


def _match_restricting_rule(rule: PermissionRule, action: ToolAction) -> _RuleFit:
    """Match generously, since the rule restricts: any program that is started, any
    spelling of the path.
    """
    if not _tool_fits(rule, action) or (rule.network and not action.network):
        return _RuleFit.NO
    if rule.path and not (action.path and _path_fits(rule, action.path, any_spelling=True)):
        return _RuleFit.NO
    if action.effect is ActionEffect.RUN and rule.command:
        return _match_restricting_command_rule(rule.command, action)
    # In a rule for a tool that runs no commands, a path is meant.
    meant = replace(rule, path=rule.command)
    fits = not rule.command or (
        rule.tool and action.path and _path_fits(meant, action.path, any_spelling=True)
    )
    return _RuleFit.YES if fits else _RuleFit.NO


def _match_restricting_command_rule(pattern: str, action: ToolAction) -> _RuleFit:
    try:
        words = shlex.split(pattern.removesuffix(" *"))
    except ValueError:
        words = pattern.removesuffix(" *").split()
    wanted = words or ["*"]
    known = find_started_programs(action.command)
    if isinstance(known, UnknownPrograms):  # To deny or to ask, a rule only has to find its words.
        bare = " ".join(re.sub(r"['\"\\]", "", action.command).split())
        found = re.search(rf"(?<![\w.-]){_wildcards_as_regex(' '.join(wanted))}(?![\w-])", bare)
        return _RuleFit.YES if found else _RuleFit.MAYBE
    fits = [_match_words_to_program(wanted, one) for one in known.all_programs]
    if _RuleFit.YES in fits:
        return _RuleFit.YES
    may_fit = _RuleFit.MAYBE in fits or known.doubts or _is_named_in_arguments(wanted[0], known)
    return _RuleFit.MAYBE if may_fit else _RuleFit.NO


def _wildcards_as_regex(words: str) -> str:
    return re.escape(words).replace(r"\*", r"[\w-]*")


def _match_words_to_program(pattern_words: Sequence[str], program: StartedProgram) -> _RuleFit:
    """Whether these words begin the command. Options may be anywhere; shell expansions
    may be any word.
    """
    if not fnmatch.fnmatchcase(
        program.program_name.casefold(), program_base_name(pattern_words[0]).casefold()
    ):
        return _RuleFit.NO
    told = list(takewhile(is_certain_word, program.words[1:]))
    places = [word for word in pattern_words[1:] if not word.startswith("-")]
    plain = [word for word in told if not word.startswith("-")]
    open_ = len(told) < len(program.words) - 1
    if not _begins_with_words(places, plain):
        lead = list(takewhile(lambda word: not word.startswith("-"), told))
        return (
            _RuleFit.MAYBE
            if _begins_with_words(places, lead) and _occur_in_order(places, plain)
            else _RuleFit.NO
        )
    options = [word for word in pattern_words[1:] if word.startswith("-")]
    whole = len(plain) >= len(places) and all(_has_option(want, program.words) for want in options)
    if not whole:
        return _RuleFit.MAYBE if open_ else _RuleFit.NO
    return _RuleFit.YES if program.is_certain else _RuleFit.MAYBE


def _begins_with_words(patterns: Sequence[str], words: Sequence[str]) -> bool:
    return all(fnmatch.fnmatchcase(has, want) for want, has in zip(patterns, words, strict=False))


def _occur_in_order(patterns: Sequence[str], words: Sequence[str]) -> bool:
    rest = iter(words)
    return all(any(fnmatch.fnmatchcase(has, want) for has in rest) for want in patterns)


def _has_option(want: str, words: Sequence[str]) -> bool:
    """Whether an option is present: `-rf` also as `-fr` or `-r -f`, `--force` also as
    `--force=…` or, cut short, `--fo`.
    """
    if want.startswith("--"):
        names = [name for word in words if len(name := word.partition("=")[0]) > len("--")]
        return any(map(want.startswith, names)) or any(
            fnmatch.fnmatchcase(word, want) for word in words
        )
    letters = {letter for word in words if re.match(r"-[^-]", word) for letter in word[1:]}
    return set(want[1:].rstrip("*")) <= letters


def _is_named_in_arguments(name: str, known: KnownPrograms) -> bool:
    pattern = re.compile(
        rf"(?:^|[^\w-])(?:-\w)?{_wildcards_as_regex(program_base_name(name))}(?![\w-])",
        re.IGNORECASE,
    )
    return any(pattern.search(text) for text in known.texts)


# --- Whether a rule fits a tool and a path


def _tool_fits(rule: PermissionRule, action: ToolAction) -> bool:
    return not rule.tool or fnmatch.fnmatchcase(action.tool, rule.tool)


def _path_fits(rule: PermissionRule, path: str, *, any_spelling: bool) -> bool:
    if not rule.path:
        return True
    if not any_spelling:
        return bool(path) and fnmatch.fnmatchcase(path, rule.path)
    pattern = normalise_spelling(rule.path)
    return any(
        fnmatch.fnmatchcase(normalise_spelling(path), one)
        for one in (pattern, pattern.removeprefix("**/"))
    )
