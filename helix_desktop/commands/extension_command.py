"""`extension`: lists installed extensions, lets the user allow them or switch them off, and helps
their authors to try them.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop.commands import workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_yes_option,
)
from helix_desktop.commands.workspace_access import print_result
from helix_desktop.console import Terminal, print_text
from helix_desktop.engine.hidden_characters import mark_text
from helix_desktop.errors import ActionRefused, InvalidInput, NotFound
from helix_desktop.extensions.installed_extensions import (
    AllowedExtensions,
    ExtensionState,
    KnownExtension,
    check_can_be_allowed,
    describe_changed_extension,
    describe_failed_extension,
    describe_several_places,
)
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import parse_object

if TYPE_CHECKING:
    from helix_desktop.extensions.running_extension import RunningExtension

# What `extension list` says of each state.
STATES: Mapping[ExtensionState, str] = {
    ExtensionState.OFF: "off",
    ExtensionState.ALLOWED: "allowed",
    ExtensionState.CHANGED: "off, because it has changed since you allowed it",
    ExtensionState.FAILED: "switched off",
}
CONSENT = (
    "The code of an extension can do everything that you can do on this computer: read, change "
    "and send any of your files. Allow only an extension whose author you trust."
)


async def print_extension_list(arguments: Namespace) -> int:
    extensions = AllowedExtensions(arguments.places)
    known_extensions = extensions.list_extensions()
    listed = [_extension_as_json(known) for known in known_extensions]
    lines = [_format_extension_line(known) for known in known_extensions]
    if not lines:
        lines.append(f"No extensions are installed. Their folder is {extensions.folder}.")
    return await print_result(arguments, Terminal(), listed, *lines)


def allow_extension(arguments: Namespace) -> int:
    return workspace_access.run_and_confirm(arguments, _allow_if_confirmed)


def _allow_if_confirmed(arguments: Namespace) -> int:
    """Prints what would be allowed, and asks for consent; with `--yes`, allows it.

    What is allowed is the extension's code as it is now, by the hash of its files. The question
    therefore shows that hash, and the package that the code comes from.
    """
    extensions = AllowedExtensions(arguments.places)
    installed = extensions.find_extension(arguments.name).installed
    check_can_be_allowed(installed)
    if not arguments.yes:
        question = [
            f"Extension: {mark_text(installed.name)}",
            f"Package: {mark_text(installed.package)} {mark_text(installed.version)}",
            f"Code: {mark_text(installed.target)}",
            f"Files: {len(installed.files)}, SHA-256 {installed.files_sha256}",
            CONSENT,
        ]
        print_text("\n".join(question))
        return workspace_access.ASKING
    extensions.allow_extension(installed)
    print_text(
        f"{mark_text(installed.name)} {mark_text(installed.version)} is allowed. It runs in programs that you start from now on."
    )
    return 0


async def switch_extension_off(arguments: Namespace) -> int:
    extensions = AllowedExtensions(arguments.places)
    installed = extensions.find_extension(arguments.name).installed
    extensions.switch_off(installed.name)
    line = f"{mark_text(installed.name)} is off. Programs that are running use it until they end."
    return await print_result(arguments, Terminal(), {"name": installed.name, "state": "off"}, line)


async def check_extension(arguments: Namespace) -> int:
    """Loads an allowed extension, says what it brings, and checks its formats of histories and its
    kinds of documents with examples of their files. Returns 1 if something is wrong.
    """
    from helix_desktop.extensions.extension_checks import check_fold_strategy, check_tool_schema

    extension = await _load_extension(arguments)
    lines = list(_describe_declared_things(extension))
    problems: list[str] = []
    for tool in extension.declared.tools:
        problems += check_tool_schema(tool)
    for strategy in extension.declared.fold_strategies:
        problems += check_fold_strategy(strategy)
    for example in arguments.files:
        checked = await _check_example(extension, example)
        lines += checked.read_things
        problems += checked.problems
    if arguments.files and not problems:
        lines.append("The examples are read as they should be.")
    lines = [mark_text(line) for line in lines + problems]
    result = {"name": extension.installed.name, "problems": problems}
    await print_result(arguments, Terminal(), result, *lines)
    return int(bool(problems))


async def _load_extension(arguments: Namespace) -> RunningExtension:
    from helix_desktop.extensions.extension_loading import load_extensions_once

    loaded = await load_extensions_once(arguments.places)
    for extension in loaded.running:
        if extension.installed.name == arguments.name:
            return extension

    known = loaded.decisions.find_extension(arguments.name)
    if known.state is ExtensionState.CHANGED:
        raise ActionRefused(describe_changed_extension(known.installed))
    reason = f"The extension {arguments.name} is {STATES[known.state]}."
    if known.state is ExtensionState.FAILED:
        reason = describe_failed_extension(known.installed, known.why)
    raise ActionRefused(
        reason, remedy=f"To let it run, use `helix-desktop extension allow {arguments.name}`."
    )


def _describe_declared_things(extension: RunningExtension) -> Iterator[str]:
    from helix_desktop.extensions.offered_kinds import OFFERED_KINDS

    declared = extension.declared
    yield f"{declared.title} can be loaded. It brings:"
    for kind in OFFERED_KINDS:
        for thing in getattr(declared, kind.field):
            line = f"  {kind.title}  {kind.name_of(thing)}"
            details = kind.details(thing)
            if details:
                line += f" ({details})"
            yield line


@dataclass(frozen=True, slots=True)
class CheckedExample:
    """What is wrong with how an example is read, and what was read of it."""

    problems: Sequence[str]
    read_things: Sequence[str] = ()


async def _check_example(extension: RunningExtension, example: Path) -> CheckedExample:
    from helix_desktop.extensions.extension_checks import (
        check_document_kind,
        check_history_format,
        describe_read_sessions,
    )

    _require_file(example)
    for kind in extension.declared.document_kinds:
        if example.name.lower().endswith(tuple(kind.endings)):
            return CheckedExample(await check_document_kind(kind, example))
    if not extension.declared.history_formats:
        raise InvalidInput("This extension has no format or kind of documents to read the file.")
    least_problems: list[str] | None = None
    for history_format in extension.declared.history_formats:
        problems = check_history_format(history_format, example)
        if not problems:
            return CheckedExample((), describe_read_sessions(history_format, example))
        # An extension with several formats has an example for each.
        if least_problems is None or len(problems) < len(least_problems):
            least_problems = problems
    return CheckedExample(least_problems or ())


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise NotFound(f"{path} is not a file.")


async def call_tool_of_extension(arguments: Namespace) -> int:
    """Calls a tool with the arguments that a model would give, and prints what the model reads."""
    from helix_desktop.extensions.extension_loading import ToolOfExtension
    from helix_desktop.tools.tools_on_demand import check_arguments_of_server_tool

    values = parse_object(arguments.values)
    if values is None:
        raise InvalidInput(
            f"{arguments.values} is not a JSON object.", remedy='Write it like {"text": "a b"}.'
        )
    extension = await _load_extension(arguments)
    names = [tool.name for tool in extension.declared.tools]
    if arguments.tool not in names:
        raise NotFound(
            f"There is no tool named {arguments.tool}.",
            remedy=f"Available: {', '.join(names) or 'none'}.",
        )
    declared = extension.declared.tools[names.index(arguments.tool)]
    check_arguments_of_server_tool(values, declared.schema, declared.name)
    result = await ToolOfExtension(extension, declared).call_with_limit(values)
    json_result = {"ok": result.ok, "text": result.text}
    await print_result(arguments, Terminal(), json_result, mark_text(result.text))
    return int(not result.ok)


async def search_with_extension(arguments: Namespace) -> int:
    """Asks the searches of an extension as the window does, and prints the pages that they find."""
    from helix_desktop.extensions.added_search_sources import AddedSearchSource

    extension = await _load_extension(arguments)
    if not extension.declared.search_sources:
        raise NotFound(f"The extension {arguments.name} has no search.")
    lines: list[str] = []
    found: list[dict[str, str]] = []
    failures: list[str] = []
    for declared in extension.declared.search_sources:
        answer = await AddedSearchSource(extension, declared).search(arguments.text)
        lines.append(f"{declared.title}: {len(answer.pages)} found")
        for page in answer.pages:
            lines.append(f"  {page.title}  {page.address}  {page.note}".rstrip())
            found.append({"title": page.title, "address": page.address, "note": page.note})
        if answer.failure:
            failures.append(f"{declared.title} failed: {answer.failure}.")
    result = {"pages": found, "problems": failures}
    marked_lines = [mark_text(line) for line in lines + failures]
    await print_result(arguments, Terminal(), result, *marked_lines)
    return int(bool(failures))


def _extension_as_json(known: KnownExtension) -> dict[str, object]:
    return {
        "name": known.installed.name,
        "package": known.installed.package,
        "version": known.installed.version,
        "state": known.state.value,
        "why": known.why,
        "sha256": known.installed.files_sha256,
        "unused_places": list(known.installed.unused_places),
    }


def _format_extension_line(known: KnownExtension) -> str:
    installed = known.installed
    state = STATES[known.state]
    if known.why:
        state += f": {known.why}"
    line = f"{installed.name}  {installed.package} {installed.version}  {state}"
    if installed.unused_places:
        line += f"  {describe_several_places(installed)}"
    return mark_text(line)


def add_extension_commands(nouns: Subparsers) -> None:
    noun = add_command(nouns, "extension", "list, allow, switch off and check extensions")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _add_extension_list(verbs)
    _add_extension_allow(verbs)
    _add_extension_off(verbs)
    _add_extension_check(verbs)
    _add_extension_call(verbs)
    _add_extension_search(verbs)


def _add_extension_list(verbs: Subparsers) -> None:
    command = add_command(verbs, "list", "list the extensions that are installed")
    add_json_option(command)
    command.set_defaults(run=print_extension_list)


def _add_extension_allow(verbs: Subparsers) -> None:
    command = add_command(verbs, "allow", "let an extension run, as it is installed now")
    command.add_argument("name", metavar="EXTENSION", help="its name, as shown by `extension list`")
    add_yes_option(command)
    add_json_option(command)
    command.set_defaults(run=allow_extension)


def _add_extension_off(verbs: Subparsers) -> None:
    command = add_command(verbs, "off", "do not let an extension run any more")
    command.add_argument("name", metavar="EXTENSION", help="its name, as shown by `extension list`")
    add_json_option(command)
    command.set_defaults(run=switch_extension_off)


def _add_extension_check(verbs: Subparsers) -> None:
    command = add_command(verbs, "check", "load an allowed extension and check what it brings")
    command.add_argument("name", metavar="EXTENSION", help="its name, as shown by `extension list`")
    command.add_argument(
        "files",
        metavar="FILE",
        type=Path,
        nargs="*",
        help="an example of a history or a document that it reads",
    )
    add_json_option(command)
    command.set_defaults(run=check_extension)


def _add_extension_call(verbs: Subparsers) -> None:
    command = add_command(verbs, "call", "call a tool of an allowed extension")
    command.add_argument("name", metavar="EXTENSION", help="its name, as shown by `extension list`")
    command.add_argument("tool", metavar="TOOL", help="the tool's name")
    command.add_argument(
        "values", metavar="ARGUMENTS", nargs="?", default="{}", help="its arguments, as JSON"
    )
    add_json_option(command)
    command.set_defaults(run=call_tool_of_extension)


def _add_extension_search(verbs: Subparsers) -> None:
    command = add_command(verbs, "search", "ask the searches of an allowed extension")
    command.add_argument("name", metavar="EXTENSION", help="its name, as shown by `extension list`")
    command.add_argument("text", metavar="TEXT", help="what to search for")
    add_json_option(command)
    command.set_defaults(run=search_with_extension)
