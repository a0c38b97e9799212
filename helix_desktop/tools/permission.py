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
from pathlib import PurePath

from helix_desktop.engine.ports import AskedProgram
from helix_desktop.engine.tool_names import EDITS, ToolName
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
    name_without_version,
    program_base_name,
)
from helix_desktop.tools.command_lines.risky_uses import find_risk
from helix_desktop.tools.command_lines.shell_parser import is_certain_word
from helix_desktop.tools.command_lines.starting_uses import (
    starts_alias_or_extension,
    starts_unnamed_program,
)
from helix_desktop.tools.workspace_roots import normalise_spelling

SCOPES = ("once", "conversation", "always")
DECISIONS = ("allow", "ask", "deny")
# How the names of scripts end. A word without such an ending may be a subcommand.
SCRIPT_ENDINGS = {".cjs", ".js", ".lua", ".mjs", ".php", ".pl", ".py", ".rb", ".sh"}


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
    `named_path`: a path with links that lead to `path`. Rules that deny or ask are also for it.
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
    named_path: str = ""


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
        field_names = {item.name for item in fields(cls)}
        has_unknown_name = not field_names.issuperset(values)
        if has_unknown_name or values.get("decision") not in DECISIONS:
            raise InvalidInput(
                f"A permission rule could not be understood: {dict(values)}.",
                remedy="A rule needs a decision (allow, ask or deny), and can have a tool, path, command and network.",
            )
        texts: dict[str, str] = {}
        for name, value in values.items():
            if name != "network":
                texts[name] = str(value)
        may_use_network = values.get("network") is True
        return cls(**texts, network=may_use_network)

    def as_rule_table(self) -> dict[str, str | bool]:
        """Return a table for the workspace's settings, without default values."""
        table: dict[str, str | bool] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if value != item.default:
                table[item.name] = value
        return table


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
    restricting_decision = _decide_without_allow_rules(action, mode, rules, sandboxed=sandboxed)
    if restricting_decision is not None:
        return restricting_decision
    if rules_allow_action(rules, action):
        return PermissionDecision("allow", "rule", "a rule in this workspace allows it")
    return _decide_by_mode(action, mode, rules)


def _decide_without_allow_rules(
    action: ToolAction, mode: PermissionMode, rules: Sequence[PermissionRule], *, sandboxed: bool
) -> PermissionDecision | None:
    """Return what no allowing rule can override, or None."""
    for rule in rules:
        if rule.decision == "deny" and _match_restricting_rule(rule, action) is _RuleFit.YES:
            return PermissionDecision("deny", "rule", "a rule in this workspace denies it")
    if mode is PermissionMode.READ_ONLY and action.effect in {ActionEffect.EDIT, ActionEffect.RUN}:
        return PermissionDecision("deny", "mode", "this workspace is read-only")
    if mode is PermissionMode.PLAN:
        reason = _reason_refused_in_plan_mode(action, sandboxed=sandboxed)
        if reason:
            return PermissionDecision("deny", "mode", reason)
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
    """Return the decision to ask each time, or None if that is not necessary.

    The user's own rules come first, then commands that nobody can vouch for, then what
    the tool itself gives as a reason to ask.
    """
    restricting_rules = [rule for rule in rules if rule.decision != "allow"]
    rule_fits = {_match_restricting_rule(rule, action) for rule in restricting_rules}
    if _RuleFit.YES in rule_fits:
        return _ask_once("rule", "a rule in this workspace requires approval", "held")
    if _RuleFit.MAYBE in rule_fits:
        reason = "this command may run other commands that a rule denies here"
        return _ask_once("rule", reason, "held")
    if action.effect is ActionEffect.RUN:
        decision = _decide_if_doubtful_command(action, sandboxed=sandboxed)
        if decision is not None:
            return decision
    is_asked_in_this_mode = action.asks_in_every_mode or mode is not PermissionMode.ALLOW_ALL
    if action.reason_to_ask and is_asked_in_this_mode:
        return _ask_once("mode", action.reason_to_ask, action.separate_permission)
    return None


def _decide_if_doubtful_command(
    action: ToolAction, *, sandboxed: bool
) -> PermissionDecision | None:
    """Return the decision to ask about a command of which it is not known what it runs, or
    that no sandbox restricts. None for any other command.
    """
    programs = find_started_programs(action.command)
    if isinstance(programs, UnknownPrograms):
        reason = f"the command hides what it runs: {programs.reason}"
        separate_permission = action.separate_permission or "hidden"
        return _ask_once("mode", reason, separate_permission)
    if not sandboxed:
        reason = "there is no sandbox, so every command needs approval"
        return _ask_once("mode", reason, action.separate_permission)
    return None


def _ask_once(decided_by: str, reason: str, separate_permission: str) -> PermissionDecision:
    """Return the decision to ask for this one call, with no answer that lasts longer."""
    return PermissionDecision("ask", decided_by, reason, ("once",), separate_permission)


_WHAT_IS_ASKED_BEFORE = {
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
    if action.network and rules_allow_action(rules, replace(action, network=False)):
        reason = "a rule in this workspace allows it, but not with network access"
        return PermissionDecision("ask", "mode", reason)
    if choices_to_offer(action, rules):
        reason = f"this workspace asks before {_WHAT_IS_ASKED_BEFORE[action.effect]}"
        return PermissionDecision("ask", "mode", reason)
    reason = _reason_to_ask_only_once(action.command)
    return PermissionDecision("ask", "mode", reason, ("once",))


def _reason_to_ask_only_once(command: str) -> str:
    """Say why no rule can be offered that would cover this command the next time."""
    known_programs = find_started_programs(command)
    if isinstance(known_programs, KnownPrograms) and _may_pipe_code(known_programs):
        return "this workspace asks before commands; this one can only be allowed once, because a program in it may run what another one prints"
    if isinstance(known_programs, KnownPrograms) and known_programs.unsure:
        return f"this workspace asks before commands; this one can only be allowed once, because {known_programs.unsure[0]}"
    return "this workspace asks before commands, and no rule could safely cover this one, so it can only be allowed once"


def rules_allow_action(rules: Iterable[PermissionRule], action: ToolAction) -> bool:
    """Whether allowing rules cover the whole action, which means every command of a
    command line.
    """
    fitting_rules = _list_fitting_rules(rules, action)
    if any(_rule_covers_whole_action(rule, action) for rule in fitting_rules):
        return True
    if action.effect is not ActionEffect.RUN:
        return False
    known_programs = _find_programs_for_rules(action.command)
    if known_programs is None:
        return False
    return all(_is_covered(command, fitting_rules) for command in known_programs.commands)


def _rule_covers_whole_action(rule: PermissionRule, action: ToolAction) -> bool:
    """Whether a rule without a command covers the action. It is about a path, or about
    all that a tool does.
    """
    if rule.command:
        return False
    if action.effect is ActionEffect.RUN:
        # A command may touch any path, so a rule about one path says nothing about it.
        return not rule.path
    return _path_fits(rule, action.path, any_spelling=False)


def _find_programs_for_rules(command: str) -> KnownPrograms | None:
    """Return the programs of a command line, or None if no allowing rule may cover it
    because it is not certain what would run.
    """
    known_programs = find_started_programs(command)
    if (
        isinstance(known_programs, UnknownPrograms)
        or known_programs.unsure
        or not known_programs.commands
    ):
        return None
    if _may_pipe_code(known_programs):
        return None
    return known_programs


def _is_covered(command: WrittenCommand, fitting_rules: Sequence[PermissionRule]) -> bool:
    return any(_rule_covers_command(rule.command, command, fitting_rules) for rule in fitting_rules)


def _rule_covers_command(
    pattern: str, command: WrittenCommand, fitting_rules: Sequence[PermissionRule]
) -> bool:
    """Whether a rule allows this command. A prefix rule covers no inline code, nor
    started programs without a rule.
    """
    pattern_words = _words_of_command_pattern(pattern)
    if not pattern_words or program_base_name(command.words[0]) in program_tables.SHELL_KEYWORDS:
        return False
    if not pattern.endswith(" *"):
        return command.words == pattern_words
    if command.words[: len(pattern_words)] != pattern_words or command.has_own_code:
        return False
    names_program_only = len(pattern_words) == 1
    is_foreign = names_program_only and starts_alias_or_extension(command.words)
    if is_foreign or starts_unnamed_program(command.words):
        return False
    for started in command.started_programs:
        if not _is_covered(WrittenCommand(started.words), fitting_rules):
            return False
    return True


def _words_of_command_pattern(pattern: str) -> tuple[str, ...]:
    """Return the words of a rule's command without a final star, or none if it is not a
    single command.
    """
    known_programs = find_started_programs(pattern.removesuffix(" *"))
    if (
        isinstance(known_programs, UnknownPrograms)
        or known_programs.unsure
        or len(known_programs.commands) != 1
    ):
        return ()
    return known_programs.commands[0].words


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
    """Return what the user can choose to allow from now on: each choice is a tuple of rules
    that together allow this command. No choices if it is not known what the command runs.
    """
    known_programs = _find_programs_for_rules(action.command)
    if known_programs is None:
        return ()
    fitting_rules = _list_fitting_rules(rules, action)
    uncovered_commands = [
        command for command in known_programs.commands if not _is_covered(command, fitting_rules)
    ]
    suggested_rules = [_rules_for_command(command, action) for command in uncovered_commands]
    # A dictionary keeps the order, and each choice once.
    safe_choices: dict[tuple[PermissionRule, ...], None] = {}
    for choice in _combine_suggested_rules(suggested_rules):
        rules_with_choice = list(rules)
        rules_with_choice.extend(choice)
        if choice and rules_allow_action(rules_with_choice, action):
            safe_choices[choice] = None
    return tuple(safe_choices)


def _combine_suggested_rules(
    suggested: Sequence[Sequence[PermissionRule]],
) -> list[tuple[PermissionRule, ...]]:
    """Return choices, each with one rule for every command. `suggested`: the rules for
    each command, best first.
    """
    if len(suggested) == 1:
        return [(rule,) for rule in suggested[0]]
    if not all(suggested):
        return []
    # The widest or, for what changes files, the narrowest of each; then each exactly as it is.
    first_of_each = [rules_of_command[0] for rules_of_command in suggested]
    exact_of_each = [_find_exact_rule(rules_of_command) for rules_of_command in suggested]
    return [tuple(dict.fromkeys(first_of_each)), tuple(dict.fromkeys(exact_of_each))]


def _may_pipe_code(known_programs: KnownPrograms) -> bool:
    """Whether one command may be another's program, as in `cat x | python3`: no word says
    what would run.
    """
    if len(known_programs.commands) < 2:
        return False
    return any(may_read_code_from_input(command.words) for command in known_programs.commands)


def _list_fitting_rules(
    rules: Iterable[PermissionRule], action: ToolAction
) -> list[PermissionRule]:
    """Return the rules that allow this tool and, if the action needs it, the network."""
    fitting_rules: list[PermissionRule] = []
    for rule in rules:
        if rule.decision != "allow" or not _tool_fits(rule, action):
            continue
        if action.network and not rule.network:
            continue
        fitting_rules.append(rule)
    return fitting_rules


def _edits_to_offer(action: ToolAction) -> tuple[tuple[PermissionRule, ...], ...]:
    """Edits in the file's folder, and in the whole workspace. Who allows edits means new files, too,
    which another tool creates.
    """
    if action.tool not in EDITS:
        return ((PermissionRule("allow", tool=action.tool),),)
    everywhere_choice = tuple(PermissionRule("allow", tool=tool) for tool in sorted(EDITS))
    folder = action.path.rpartition("/")[0]
    if not folder:
        return (everywhere_choice,)

    pattern = f"{glob.escape(folder)}/*"
    rules_for_folder = []
    for tool in sorted(EDITS):
        rules_for_folder.append(PermissionRule("allow", tool=tool, path=pattern))
    if not rules_allow_action(rules_for_folder, action):
        return (everywhere_choice,)
    return (tuple(rules_for_folder), everywhere_choice)


def list_folders_of_choices(
    action: ToolAction, choices: Sequence[Sequence[PermissionRule]]
) -> tuple[str, ...]:
    """Return the folder in which each choice would allow edits, "." for the whole workspace.
    Empty for anything but an edit in the workspace's folders.
    """
    is_elsewhere = PurePath(action.path).is_absolute() or action.path.startswith("..")
    if action.effect is not ActionEffect.EDIT or action.tool not in EDITS or is_elsewhere:
        return ()
    folders = []
    for choice in choices:
        folder = "."
        # The only choice with a path is that of the file's own folder.
        if any(rule.path for rule in choice):
            folder = action.path.rpartition("/")[0]
        folders.append(folder)
    return tuple(folders)


def _rules_for_command(command: WrittenCommand, action: ToolAction) -> list[PermissionRule]:
    """Return the rules that could cover this command alone, best first."""
    rules = []
    for pattern in command_analysis.suggest_rule_commands(command):
        rule = PermissionRule("allow", tool=action.tool, network=action.network, command=pattern)
        if _is_covered(command, (rule,)) and not is_rule_too_wide(rule):
            rules.append(rule)
    return rules


def _find_exact_rule(rules: Sequence[PermissionRule]) -> PermissionRule:
    for rule in rules:
        if not rule.command.endswith(" *"):
            return rule
    return rules[0]


def rules_to_offer(action: ToolAction) -> tuple[PermissionRule, ...]:
    """Return the single rules that would cover the whole action."""
    return tuple(choice[0] for choice in choices_to_offer(action) if len(choice) == 1)


def describe_choice(choice: Sequence[PermissionRule]) -> str:
    """Describe the rules that one press would add."""
    descriptions = [describe_allowing_rule(rule) for rule in choice]
    return ", ".join(dict.fromkeys(descriptions))


def describe_allowing_rule(rule: PermissionRule) -> str:
    """Describe an allowing rule for the user who is about to create it."""
    covered = rule.command or rule.path or rule.tool
    if rule.network:
        return f"{covered} (with network access)"
    return covered


def list_asked_programs(
    action: ToolAction, rules: Sequence[PermissionRule]
) -> tuple[AskedProgram, ...]:
    """Return what a command line starts, each with its state, for the user who is asked."""
    if action.effect is not ActionEffect.RUN:
        return ()
    known_programs = find_started_programs(action.command)
    if isinstance(known_programs, UnknownPrograms):
        return ()
    fitting_rules = _list_fitting_rules(rules, action)
    programs: dict[AskedProgram, None] = {}
    for command in known_programs.commands:
        is_allowed = not known_programs.unsure and _is_covered(command, fitting_rules)
        redirected_to = tuple(map(command_analysis.describe_word, command.written_files))
        own_program = _describe_program(command.words, redirected_to, is_allowed=is_allowed)
        programs[own_program] = None
        for started in command.started_programs:
            programs[_describe_program(started.words, (), is_allowed=is_allowed)] = None
    return tuple(programs)


def _describe_program(
    words: Sequence[str], redirected_to: tuple[str, ...], *, is_allowed: bool
) -> AskedProgram:
    return AskedProgram(
        command_analysis.name_of_command(words),
        is_allowed,
        writes=command_analysis.list_written_files(words) + redirected_to,
        deletes=command_analysis.list_deleted_files(words),
        risk=find_risk(words),
    )


def describe_command_access(action: ToolAction, *, sandboxed: bool) -> str:
    """Return where a command would run, as `PermissionQuestion.command_access` names it."""
    if not sandboxed or action.separate_permission == "outside_sandbox":
        return "no_sandbox"
    if action.network:
        return "sandbox_network"
    return "sandbox"


def covers_nothing(rule: PermissionRule) -> bool:
    """Whether an allowing rule can never apply, because its command names no program: `*`."""
    return (
        rule.decision == "allow"
        and bool(rule.command)
        and not _words_of_command_pattern(rule.command)
    )


def covers_every_command(rule: PermissionRule) -> bool:
    """Whether a rule allows all commands without asking, whatever they run."""
    if rule.decision != "allow" or rule.command or rule.path:
        return False
    return fnmatch.fnmatchcase(ToolName.RUN_COMMAND, rule.tool or "*")


# What rules can allow in each mode that would otherwise ask. The other uses a mode allows or refuses.
_USES_THAT_RULES_DECIDE = {
    PermissionMode.READ_ONLY: (ActionEffect.FETCH, ActionEffect.FOREIGN),
    PermissionMode.PLAN: (ActionEffect.RUN, ActionEffect.FETCH, ActionEffect.FOREIGN),
    PermissionMode.ASK: tuple(_WHAT_IS_ASKED_BEFORE),
    PermissionMode.ALLOW_EDITS: (ActionEffect.RUN, ActionEffect.FETCH, ActionEffect.FOREIGN),
    PermissionMode.ALLOW_ALL: (),
}


def list_uses_allowed_by_rules(
    rules: Iterable[PermissionRule], mode: PermissionMode, *, sandboxed: bool
) -> tuple[str, ...]:
    """Return what rules allow without a question although the mode asks, as the table "what rules
    allow" of the shown names has it: "edits" if it is all of them, otherwise "some edits".
    """
    allowing_rules = [rule for rule in rules if rule.decision == "allow"]
    uses: list[str] = []
    for effect in _USES_THAT_RULES_DECIDE[mode]:
        # Without a sandbox, every command is asked about.
        if effect is ActionEffect.RUN and not sandboxed:
            continue
        use = _name_use_allowed_by_rules(allowing_rules, effect)
        if use:
            uses.append(use)
    return tuple(uses)


def _name_use_allowed_by_rules(rules: Sequence[PermissionRule], effect: ActionEffect) -> str:
    if effect is ActionEffect.EDIT:
        return _name_edits_allowed_by_rules(rules)
    if effect is ActionEffect.RUN:
        return _name_commands_allowed_by_rules(rules)
    for rule in rules:
        allows_all_tools = not rule.tool and not rule.path
        if rule.command:
            continue
        if effect is ActionEffect.FETCH:
            is_about_web = fnmatch.fnmatchcase(ToolName.FETCH_URL, rule.tool)
            if is_about_web or allows_all_tools:
                return "some web pages"
        elif ("__" in rule.tool and not rule.path) or allows_all_tools:
            return "some MCP tools"
    return ""


def _name_edits_allowed_by_rules(rules: Sequence[PermissionRule]) -> str:
    wholly_allowed_tools: set[str] = set()
    allows_some = False
    for rule in rules:
        if rule.command:
            continue
        edit_tools = {tool for tool in EDITS if fnmatch.fnmatchcase(tool, rule.tool or "*")}
        if edit_tools:
            allows_some = True
        if not rule.path:
            wholly_allowed_tools |= edit_tools
    if wholly_allowed_tools == EDITS:
        return "edits"
    if allows_some:
        return "some edits"
    return ""


def _name_commands_allowed_by_rules(rules: Sequence[PermissionRule]) -> str:
    if any(covers_every_command(rule) for rule in rules):
        return "commands"
    for rule in rules:
        is_about_commands = fnmatch.fnmatchcase(ToolName.RUN_COMMAND, rule.tool or "*")
        if is_about_commands and rule.command and not covers_nothing(rule):
            return "some commands"
    return ""


def is_rule_too_wide(rule: PermissionRule) -> bool:
    """Whether an allowing rule also admits programs other than the one it names."""
    if rule.decision != "allow" or not rule.command.endswith(" *"):
        return False
    words = _words_of_command_pattern(rule.command)
    return not words or not command_analysis.is_safe_prefix(words)


def is_rule_for_script(rule: PermissionRule) -> bool:
    """Whether an allowing rule names a script, so that its star stands for arguments of this
    script alone: `python3 report.py *`, `./report.sh *`.

    What stands behind a script's name is never an option of the interpreter, so no argument
    can make it run other code. What the script itself does with its arguments is not known.
    """
    if rule.decision != "allow" or not rule.command.endswith(" *"):
        return False
    words = _words_of_command_pattern(rule.command)
    if not words:
        return False
    if words[0].startswith("./"):
        return len(words) == 1 and _is_script_file(words[0])
    interpreter = name_without_version(words[0])
    if interpreter not in program_tables.SCRIPT_INTERPRETERS or len(words) < 2:
        return False
    return _is_script_file(words[1])


def _is_script_file(word: str) -> bool:
    """Whether a word of a command names a file with a script, not an option or a subcommand."""
    is_option = word.startswith(("-", "+"))
    return not is_option and is_certain_word(word) and PurePath(word).suffix in SCRIPT_ENDINGS


def does_rule_fit(rule: PermissionRule, tried: str) -> bool:
    """Whether a rule decides about a command, or about a path if its tool runs no commands."""
    action = ToolAction(ToolName.RUN_COMMAND, ActionEffect.RUN, "", "", command=tried)
    if not _tool_fits(rule, action):
        action = ToolAction(rule.tool, ActionEffect.EDIT, "", "", path=tried)
    if rule.decision == "allow":
        return rules_allow_action([rule], action)
    return _match_restricting_rule(rule, action) is _RuleFit.YES


# --- Rules that deny an action, or ask first


class _RuleFit(IntEnum):
    NO = 0
    MAYBE = 1
    YES = 2


def _match_restricting_rule(rule: PermissionRule, action: ToolAction) -> _RuleFit:
    """Match generously, since the rule restricts: any program that is started, any
    spelling of the path.
    """
    needs_network = rule.network and not action.network
    if needs_network or not _tool_fits(rule, action):
        return _RuleFit.NO
    if rule.path and not _action_is_about_path(rule, action):
        return _RuleFit.NO
    if not rule.command:
        return _RuleFit.YES
    if action.effect is ActionEffect.RUN:
        return _match_restricting_command_rule(rule.command, action)
    # In a rule for a tool that runs no commands, a path is meant.
    rule_about_path = replace(rule, path=rule.command)
    if rule.tool and _action_is_about_path(rule_about_path, action):
        return _RuleFit.YES
    return _RuleFit.NO


def _action_is_about_path(rule: PermissionRule, action: ToolAction) -> bool:
    for path in (action.path, action.named_path):
        if path and _path_fits(rule, path, any_spelling=True):
            return True
    return False


def _match_restricting_command_rule(pattern: str, action: ToolAction) -> _RuleFit:
    """Return whether a rule that denies or asks fits a command: YES, NO, or MAYBE if that cannot
    be known. Such a rule also fits a program that the command starts through another.
    """
    pattern_words = _split_restricting_pattern(pattern)
    known_programs = find_started_programs(action.command)
    if isinstance(known_programs, UnknownPrograms):
        # To deny or to ask, a rule only has to find its words.
        without_quotes = " ".join(re.sub(r"['\"\\]", "", action.command).split())
        words = _wildcards_as_regex(" ".join(pattern_words))
        if re.search(rf"(?<![\w.-]){words}(?![\w-])", without_quotes):
            return _RuleFit.YES
        return _RuleFit.MAYBE
    fits = [
        _match_words_to_program(pattern_words, program) for program in known_programs.all_programs
    ]
    if _RuleFit.YES in fits:
        return _RuleFit.YES
    if (
        _RuleFit.MAYBE in fits
        or known_programs.doubts
        or _is_named_in_arguments(pattern_words[0], known_programs)
    ):
        return _RuleFit.MAYBE
    return _RuleFit.NO


def _split_restricting_pattern(pattern: str) -> list[str]:
    command = pattern.removesuffix(" *")
    try:
        words = shlex.split(command)
    except ValueError:  # A quote that is not closed must not make the rule void.
        words = command.split()
    return words or ["*"]


def _wildcards_as_regex(words: str) -> str:
    return re.escape(words).replace(r"\*", r"[\w-]*")


def _match_words_to_program(pattern_words: Sequence[str], program: StartedProgram) -> _RuleFit:
    """Whether these words begin the command. Options may be anywhere; shell expansions
    may be any word.
    """
    name_pattern = program_base_name(pattern_words[0]).casefold()
    if not fnmatch.fnmatchcase(program.program_name.casefold(), name_pattern):
        return _RuleFit.NO
    return _match_words_to_arguments(pattern_words[1:], program)


def _match_words_to_arguments(pattern_words: Sequence[str], program: StartedProgram) -> _RuleFit:
    """Return whether a program's arguments are those of a rule: YES only if it is certain, NO
    only if it cannot be, whatever the shell fills in, and otherwise MAYBE.
    """
    pattern_arguments = _list_arguments(pattern_words)
    # Up to the first word that the shell expands, because behind it any word may be any other.
    certain_words = list(takewhile(is_certain_word, program.words[1:]))
    certain_arguments = _list_arguments(certain_words)
    if not _begins_with_words(pattern_arguments, certain_arguments):
        if _fits_without_option_values(pattern_arguments, certain_words):
            return _RuleFit.MAYBE
        return _RuleFit.NO

    has_all_arguments = len(certain_arguments) >= len(pattern_arguments)
    is_complete = has_all_arguments and _has_all_options(pattern_words, program.words)
    if is_complete and program.is_certain:
        return _RuleFit.YES
    # What is missing may be among the words that the shell fills in.
    has_uncertain_words = len(certain_words) < len(program.words) - 1
    if is_complete or has_uncertain_words:
        return _RuleFit.MAYBE
    return _RuleFit.NO


def _fits_without_option_values(pattern_arguments: Sequence[str], words: Sequence[str]) -> bool:
    """Whether the arguments fit if some words behind options are these options' values."""
    words_before_options = list(takewhile(_is_argument, words))
    if not _begins_with_words(pattern_arguments, words_before_options):
        return False
    return _occur_in_order(pattern_arguments, _list_arguments(words))


def _is_option(word: str) -> bool:
    return word.startswith("-")


def _is_argument(word: str) -> bool:
    return not _is_option(word)


def _list_arguments(words: Sequence[str]) -> list[str]:
    return [word for word in words if not _is_option(word)]


def _begins_with_words(patterns: Sequence[str], words: Sequence[str]) -> bool:
    """Whether the words fit the patterns, as far as there are both."""
    return all(map(fnmatch.fnmatchcase, words, patterns))


def _occur_in_order(patterns: Sequence[str], words: Sequence[str]) -> bool:
    """Whether each pattern fits a word, with other words between them."""
    next_pattern = 0
    for word in words:
        if next_pattern < len(patterns) and fnmatch.fnmatchcase(word, patterns[next_pattern]):
            next_pattern += 1
    return next_pattern == len(patterns)


def _has_all_options(pattern_words: Sequence[str], words: Sequence[str]) -> bool:
    """Whether each option of the pattern is among the words."""
    for pattern_word in pattern_words:
        if _is_option(pattern_word) and not _has_option(pattern_word, words):
            return False
    return True


def _has_option(option: str, words: Sequence[str]) -> bool:
    """Whether an option is present: `-rf` also as `-fr` or `-r -f`, `--force` also as
    `--force=…` or, cut short, `--fo`.
    """
    if option.startswith("--"):
        return any(_is_long_option(option, word) for word in words)
    present_letters: set[str] = set()
    for word in words:
        if re.match(r"-[^-]", word):
            present_letters.update(word[1:])
    wanted_letters = set(option[1:].rstrip("*"))
    return wanted_letters <= present_letters


def _is_long_option(option: str, word: str) -> bool:
    name = word.partition("=")[0]
    is_cut_short = len(name) > len("--") and option.startswith(name)
    return is_cut_short or fnmatch.fnmatchcase(word, option)


def _is_named_in_arguments(name: str, known_programs: KnownPrograms) -> bool:
    """Whether a program's name is a word of an argument, which the program that gets it may run."""
    name_pattern = _wildcards_as_regex(program_base_name(name))
    pattern = re.compile(rf"(?:^|[^\w-])(?:-\w)?{name_pattern}(?![\w-])", re.IGNORECASE)
    return any(pattern.search(text) for text in known_programs.texts)


# --- Whether a rule fits a tool and a path


def _tool_fits(rule: PermissionRule, action: ToolAction) -> bool:
    return not rule.tool or fnmatch.fnmatchcase(action.tool, rule.tool)


def _path_fits(rule: PermissionRule, path: str, *, any_spelling: bool) -> bool:
    if not rule.path:
        return True
    if not any_spelling:
        return bool(path) and fnmatch.fnmatchcase(path, rule.path)
    pattern = normalise_spelling(rule.path)
    spelling = normalise_spelling(path)
    if fnmatch.fnmatchcase(spelling, pattern):
        return True
    # A pattern for files in any folder is also for those in the root itself.
    return fnmatch.fnmatchcase(spelling, pattern.removeprefix("**/"))
