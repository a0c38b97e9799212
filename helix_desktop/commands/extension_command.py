"""`extension`: lists installed extensions, and lets the user allow them or switch them off."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

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
from helix_desktop.extensions.installed_extensions import (
    AllowedExtensions,
    ExtensionState,
    KnownExtension,
)

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
    known_extensions = AllowedExtensions(arguments.places).list_extensions()
    listed = [_extension_as_json(known) for known in known_extensions]
    lines = [_format_extension_line(known) for known in known_extensions]
    if not lines:
        lines.append("No extensions are installed.")
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


def _extension_as_json(known: KnownExtension) -> dict[str, object]:
    return {
        "name": known.installed.name,
        "package": known.installed.package,
        "version": known.installed.version,
        "state": known.state.value,
        "why": known.why,
        "sha256": known.installed.files_sha256,
    }


def _format_extension_line(known: KnownExtension) -> str:
    installed = known.installed
    state = STATES[known.state]
    if known.why:
        state += f": {known.why}"
    return mark_text(f"{installed.name}  {installed.package} {installed.version}  {state}")


def add_extension_commands(nouns: Subparsers) -> None:
    noun = add_command(nouns, "extension", "list, allow and switch off extensions")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _add_extension_list(verbs)
    _add_extension_allow(verbs)
    _add_extension_off(verbs)


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
