"""Checks what an extension declares, and offers it where the program's own things are offered.

Either all of a declaration is offered, or nothing of it. Each check raises ExtensionFailed with
the end of the sentence "The extension X was switched off: …".
"""

import importlib.util
import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TypeVar

from helix_desktop.command_nouns import NOUNS
from helix_desktop.documents import document_kinds
from helix_desktop.documents.document_kinds import DocumentKind
from helix_desktop.engine.document_pages import PLURALS
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput
from helix_desktop.extensions import added_actions, added_search_sources
from helix_desktop.extensions.extension_interfaces import (
    INTERFACE_VERSION,
    Extension,
    ExtensionAction,
    ExtensionCheck,
    ExtensionCommand,
    ExtensionHistoryFormat,
    ExtensionSearchSource,
    ExtensionTool,
)
from helix_desktop.extensions.installed_extensions import (
    AllowedExtensions,
    ExtensionState,
    InstalledExtension,
)
from helix_desktop.extensions.limited_calls import ExtensionFailed
from helix_desktop.extensions.read_sessions import HistoryFormatOfExtension
from helix_desktop.extensions.running_extension import RunningExtension, Withdraw
from helix_desktop.histories import added_formats
from helix_desktop.providers import configured_providers, provider_catalog
from helix_desktop.providers.known_provider import KnownProvider
from helix_desktop.secrets import environment_variable_name, host_of_address

LONGEST_NAME = 40
LONGEST_TITLE = 80
LONGEST_CALL_SECONDS = 3_600
LONGEST_MODELS = 100_000
LONGEST_DESCRIPTION = 8_000  # A model is sent the descriptions of all tools with each request.
MOST_OF_A_KIND = 50

T = TypeVar("T")


def check_declaration(installed: InstalledExtension, declared: Extension) -> Extension:
    """Check all that no other part of the program checks. Returns a copy that cannot change."""
    if declared.interface != INTERFACE_VERSION:
        raise ExtensionFailed(
            f"it was written for version {declared.interface!r} of the interface, and this program has version {INTERFACE_VERSION}"
        )
    _check_name("entry point", installed.name)
    _check_title("its title", declared.title)
    copy = Extension(
        declared.title,
        tools=_copy_some("tools", declared.tools, ExtensionTool),
        history_formats=_copy_some(
            "formats of histories", declared.history_formats, ExtensionHistoryFormat
        ),
        document_kinds=_copy_some("kinds of documents", declared.document_kinds, DocumentKind),
        providers=_copy_some("providers", declared.providers, KnownProvider),
        commands=_copy_some("commands", declared.commands, ExtensionCommand),
        actions=_copy_some("actions", declared.actions, ExtensionAction),
        search_sources=_copy_some("searches", declared.search_sources, ExtensionSearchSource),
        doctor_checks=_copy_some("checks of the doctor", declared.doctor_checks, ExtensionCheck),
    )
    for action in copy.actions:
        _check_title("the title of its action", action.title)
        _check_limit(action.title, action.limit_seconds)
    for source in copy.search_sources:
        _check_title("the title of its search", source.title)
    _check_tools(copy)
    for history_format in copy.history_formats:
        _check_name("format", history_format.kind)
        _check_title("the name of its format's program", history_format.program)
        _check_endings(history_format.kind, history_format.endings)
        for folder in history_format.folders:
            _check_folder(history_format.kind, folder)
    for kind in copy.document_kinds:
        _check_document_kind(installed, kind)
    for provider in copy.providers:
        _check_provider(provider)
    for command in copy.commands:
        _check_command(command)
    for check in copy.doctor_checks:
        _check_title("the name of its check", check.name)
    return copy


def _copy_some(title: str, declared: Iterable[T], wanted_type: type[T]) -> tuple[T, ...]:
    """Return the declared things. They may come from an iterator that never ends."""
    things = tuple(islice(declared, MOST_OF_A_KIND + 1))
    if len(things) > MOST_OF_A_KIND:
        raise ExtensionFailed(f"it declares more than {MOST_OF_A_KIND} {title}")
    for thing in things:
        if type(thing) is not wanted_type:
            raise ExtensionFailed(
                f"one of its {title} is no {wanted_type.__name__}, but {type(thing).__name__}"
            )
    return things


def offer_declared_things(extension: RunningExtension) -> list[Withdraw]:
    """Offer what is not asked for at each call, as tools are. Returns how it is withdrawn."""
    decisions = extension.decisions
    installed = extension.installed
    declared = extension.declared
    withdraws: list[Withdraw] = []
    try:
        for history_format in declared.history_formats:
            withdraws.append(_offer_history_format(extension, history_format))
        for kind in declared.document_kinds:
            withdraws.append(_offer_document_kind(decisions, installed, kind))
        for provider in declared.providers:
            withdraws.append(_offer_provider(decisions, provider))
        for command in declared.commands:
            withdraws.append(_reserve_noun(command))
        withdraws.append(_offer_actions(extension))
        for source in declared.search_sources:
            withdraws.append(_offer_search_source(extension, source))
    except HelixError as error:
        for withdraw in withdraws:
            withdraw()
        raise ExtensionFailed(error.what.rstrip(".")) from error
    return withdraws


def _check_name(what: str, name: str) -> None:
    _check_text(f"the name of its {what}", name)
    is_plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    if not is_plain or len(name) > LONGEST_NAME:
        raise ExtensionFailed(
            f"the name of its {what} {name[:LONGEST_NAME]!r} must have only letters, digits, hyphens and underscores"
        )


def _check_text(what: str, text: object) -> None:
    """A class derived from `str` could give another answer at each question."""
    if type(text) is not str:
        raise ExtensionFailed(f"{what} is no text, but {type(text).__name__}")


def _check_title(what: str, title: str) -> None:
    _check_text(what, title)
    if not title.strip() or not title.isprintable() or len(title) > LONGEST_TITLE:
        raise ExtensionFailed(f"{what} must be one line of at most {LONGEST_TITLE} characters")


def _check_limit(name: str, limit_seconds: float) -> None:
    is_number = type(limit_seconds) in (int, float)
    if not is_number or not 0 < limit_seconds <= LONGEST_CALL_SECONDS:
        raise ExtensionFailed(
            f"limit_seconds of {name} must be a number of at most {LONGEST_CALL_SECONDS}"
        )


def _check_tools(declared: Extension) -> None:
    names: set[str] = set()
    for tool in declared.tools:
        _check_tool(tool)
        if tool.name in names:
            raise ExtensionFailed(f"it declares the tool {tool.name} twice")
        names.add(tool.name)


def _check_tool(tool: ExtensionTool) -> None:
    _check_text("the name of its tool", tool.name)
    _check_text("the description of its tool", tool.description)
    is_plain = tool.name.isascii() and tool.name.replace("_", "").isalnum()
    if not is_plain or len(tool.name) > LONGEST_NAME:
        raise ExtensionFailed(
            f"the name of its tool {tool.name[:LONGEST_NAME]!r} must have only letters, digits and underscores"
        )
    _check_limit(tool.name, tool.limit_seconds)
    if len(tool.description) + len(json.dumps(tool.schema)) > LONGEST_DESCRIPTION:
        raise ExtensionFailed(
            f"the description and schema of its tool {tool.name} have more than {LONGEST_DESCRIPTION:,} characters"
        )


# --- Formats of histories


def _check_folder(kind: str, folder: str) -> None:
    _check_text(f"a folder of {kind}", folder)
    if not folder.startswith(("~/", "/")) or not folder.isprintable() or "\0" in folder:
        raise ExtensionFailed(f'a folder of {kind} must begin with "~/" or "/"')


def _offer_history_format(
    extension: RunningExtension, declared: ExtensionHistoryFormat
) -> Withdraw:
    history_format = HistoryFormatOfExtension(extension, declared)
    added = added_formats.AddedFormat(
        declared.kind,
        declared.program,
        history_format.recognizes_file,
        history_format.read_history_file_of_extension,
        tuple(declared.endings),
        tuple(declared.folders),
    )
    added_formats.add_format(added)
    return lambda: added_formats.remove_format(declared.kind)


# --- Kinds of documents


def _check_document_kind(installed: InstalledExtension, kind: DocumentKind) -> None:
    _check_name("kind of document", kind.name)
    _check_title("the title of its kind of document", kind.title)
    for text in (kind.unit, kind.reader, kind.media_type, *kind.endings):
        _check_text(f"a part of its kind of document {kind.name}", text)
    if kind.unit not in PLURALS:
        raise ExtensionFailed(
            f"the unit of {kind.name} must be one of {', '.join(PLURALS)}, not {kind.unit[:LONGEST_NAME]!r}"
        )
    _check_endings(kind.name, kind.endings)
    if not kind.media_type.isascii() or not kind.media_type.isprintable():
        raise ExtensionFailed(f"the media type of {kind.name} must be plain ASCII")
    own_module = _top_module(installed.target)
    if _top_module(kind.reader) != own_module or ":" not in kind.reader:
        raise ExtensionFailed(
            f'the reader of {kind.name} must be a function of its own package, such as "{own_module}:read"'
        )


def _check_endings(name: str, endings: Iterable[str]) -> None:
    for ending in endings:
        _check_text(f"an ending of {name}", ending)
        is_ending = ending.startswith(".") and ending == ending.lower() and ending.isprintable()
        if not is_ending or len(ending) > LONGEST_NAME or "/" in ending:
            raise ExtensionFailed(
                f"the ending {ending[:LONGEST_NAME]!r} of {name} must be in lowercase and begin with a period"
            )


def _offer_document_kind(
    decisions: AllowedExtensions, installed: InstalledExtension, kind: DocumentKind
) -> Withdraw:
    def check_unchanged() -> None:
        """The reader's process loads the files of this moment, not those of the start."""
        state = decisions.find_extension(installed.name).state
        if state is not ExtensionState.ALLOWED:
            raise ActionRefused(
                f"The extension {installed.name} reads {kind.title}, but it is off or has changed since you allowed it.",
                remedy=f"To allow it again, run `helix-desktop extension allow {installed.name}`.",
            )

    folders = _folders_of_module(decisions.folder, _top_module(kind.reader))
    document_kinds.add_document_kind(
        document_kinds.AddedDocumentKind(kind, folders, check_unchanged)
    )
    return lambda: document_kinds.remove_document_kind(kind.name)


def _top_module(target: str) -> str:
    module = target.partition(":")[0]
    return module.partition(".")[0].strip()


def _folders_of_module(extensions_folder: Path, top_module: str) -> tuple[str, ...]:
    """Return where the reader's process finds the module and what is installed beside it."""
    folders = [str(extensions_folder)]
    specification = importlib.util.find_spec(top_module)
    if specification is None or not specification.origin:
        raise InvalidInput(f"The module {top_module} of its reader was not found.")
    origin = Path(specification.origin)
    folder_of_module = origin.parent
    if origin.name == "__init__.py":
        folder_of_module = origin.parent.parent
    folders.append(str(folder_of_module))
    return tuple(dict.fromkeys(folders))


# --- Providers


def _check_provider(provider: KnownProvider) -> None:
    texts = (
        provider.name,
        provider.kind,
        provider.base_url,
        provider.key_variable,
        provider.key_header,
    )
    for text in texts:
        _check_text("a part of its provider", text)
    if not configured_providers.NAME.fullmatch(provider.name):
        raise ExtensionFailed(
            f"the name of its provider {provider.name[:LONGEST_NAME]!r} must have only lowercase letters, digits, periods, hyphens and underscores"
        )
    _check_title(f"the title of its provider {provider.name}", provider.title)
    if len(json.dumps(provider.models)) > LONGEST_MODELS:
        raise ExtensionFailed(
            f"the models of {provider.name} have more than {LONGEST_MODELS:,} characters"
        )
    for model, values in provider.models.items():
        _check_title(f"the name of a model of {provider.name}", model)
        for name in values:
            if name not in configured_providers.CORRECTABLE:
                raise ExtensionFailed(
                    f"the model {model} of {provider.name} has a value named {name!r}, and these are known: {', '.join(configured_providers.CORRECTABLE)}"
                )


def _offer_provider(decisions: AllowedExtensions, provider: KnownProvider) -> Withdraw:
    variable = environment_variable_name(provider.name)
    configured = configured_providers.ConfiguredProviders(decisions.providers_file)
    for config in configured.list_providers():
        has_same_key = environment_variable_name(config.name) == variable
        if has_same_key and config.host != host_of_address(provider.base_url):
            raise InvalidInput(
                f"You have set up a provider named {config.name} with another address."
            )
    provider_catalog.add_known_provider(provider)
    return lambda: provider_catalog.remove_known_provider(provider.name)


# --- Actions and sources of the search


def _offer_actions(extension: RunningExtension) -> Withdraw:
    actions: list[added_actions.AddedAction] = []
    for declared in extension.declared.actions:
        actions.append(added_actions.AddedAction(extension, declared))
    added_actions.add_actions(actions)
    return lambda: added_actions.remove_actions(extension)


def _offer_search_source(extension: RunningExtension, source: ExtensionSearchSource) -> Withdraw:
    added_search_sources.add_search_source(
        added_search_sources.AddedSearchSource(extension, source)
    )
    return lambda: added_search_sources.remove_search_source(source.title)


# --- Commands


_nouns_of_extensions: set[str] = set()


def _check_command(command: ExtensionCommand) -> None:
    _check_name("command", command.noun)
    _check_title(f"the sentence of its command {command.noun}", command.sentence)
    if command.noun.startswith("-") or command.noun in NOUNS:
        raise ExtensionFailed(f"the command {command.noun} belongs to Helix Desktop")


def _reserve_noun(command: ExtensionCommand) -> Withdraw:
    """Commands are found through the running extensions (`commands/added_commands.py`)."""
    if command.noun in _nouns_of_extensions:
        raise ExtensionFailed(f"there is another command named {command.noun}")
    _nouns_of_extensions.add(command.noun)
    return lambda: _nouns_of_extensions.discard(command.noun)
