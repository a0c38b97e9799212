"""The kinds of things that an extension can bring: for each, what is checked of a declared one, and
how it is offered where the program's own are.

Each check raises ExtensionFailed with the end of the sentence "The extension X was switched off: …".
"""

import importlib.util
import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from helix_desktop.command_nouns import NOUNS
from helix_desktop.documents import document_kinds
from helix_desktop.documents.document_kinds import DocumentKind
from helix_desktop.engine.document_pages import PLURALS
from helix_desktop.errors import ActionRefused, InvalidInput
from helix_desktop.extensions import added_actions, added_fold_strategies, added_search_sources
from helix_desktop.extensions.extension_interfaces import (
    ExtensionAction,
    ExtensionCheck,
    ExtensionCommand,
    ExtensionFoldStrategy,
    ExtensionHistoryFormat,
    ExtensionSearchSource,
    ExtensionTool,
)
from helix_desktop.extensions.installed_extensions import ExtensionState, InstalledExtension
from helix_desktop.extensions.limited_calls import ExtensionFailed
from helix_desktop.extensions.read_sessions import HistoryFormatOfExtension
from helix_desktop.extensions.running_extension import RunningExtension, Withdraw
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import added_formats
from helix_desktop.providers import configured_providers, provider_catalog
from helix_desktop.providers.known_provider import KnownProvider
from helix_desktop.secrets import environment_variable_name, host_of_address

LONGEST_NAME = 40
LONGEST_TITLE = 80
LONGEST_CALL_SECONDS = 3_600
LONGEST_MODELS = 100_000
LONGEST_DESCRIPTION = 8_000  # A model is sent the descriptions of all tools with each request.


@dataclass(frozen=True, slots=True)
class OfferedKind:
    """A kind of thing that an extension can bring, by its field of `Extension`.

    `title` and `plural` name it in sentences, and `name_of` a declared one, which no other of the
    extension may have. `check` raises ExtensionFailed. `offer` returns how the thing is withdrawn;
    without it, it is found through the running extensions. `details` is what authors see of it.
    """

    field: str
    title: str
    plural: str
    declared_type: type
    name_of: Callable[[Any], str]
    check: Callable[[InstalledExtension, Any], None]
    offer: Callable[[RunningExtension, Any], Withdraw] | None = None
    details: Callable[[Any], str] = lambda _: ""


def check_name(what: str, name: str) -> None:
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


def _check_list(what: str, values: object) -> None:
    """A text is a sequence of its characters, which nobody means."""
    if type(values) not in (list, tuple):
        raise ExtensionFailed(f"{what} must be a list or a tuple of texts")


def check_title(what: str, title: str) -> None:
    _check_text(what, title)
    if not title.strip() or not title.isprintable() or len(title) > LONGEST_TITLE:
        raise ExtensionFailed(f"{what} must be one line of at most {LONGEST_TITLE} characters")


def _check_limit(name: str, limit_seconds: float) -> None:
    is_number = type(limit_seconds) in (int, float)
    if not is_number or not 0 < limit_seconds <= LONGEST_CALL_SECONDS:
        raise ExtensionFailed(
            f"limit_seconds of {name} must be a number of at most {LONGEST_CALL_SECONDS}"
        )


# --- Tools


def _check_tool(_: InstalledExtension, tool: ExtensionTool) -> None:
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
    if inspect.isfunction(tool.run) and not inspect.iscoroutinefunction(tool.run):
        raise ExtensionFailed(f"the function of its tool {tool.name} must begin with `async def`")


# --- Formats of histories


def _check_folder(kind: str, folder: str) -> None:
    _check_text(f"a folder of {kind}", folder)
    if not folder.startswith(("~/", "/")) or not folder.isprintable() or "\0" in folder:
        raise ExtensionFailed(f'a folder of {kind} must begin with "~/" or "/"')


def check_history_format_declaration(
    _: InstalledExtension | None, declared: ExtensionHistoryFormat
) -> None:
    check_name("format", declared.kind)
    check_title("the name of its format's program", declared.program)
    _check_endings(declared.kind, declared.endings)
    _check_list(f"the folders of {declared.kind}", declared.folders)
    for folder in declared.folders:
        _check_folder(declared.kind, folder)


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
    check_name("kind of document", kind.name)
    check_title("the title of its kind of document", kind.title)
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


def _check_endings(name: str, endings: Sequence[str]) -> None:
    _check_list(f"the endings of {name}", endings)
    for ending in endings:
        _check_text(f"an ending of {name}", ending)
        is_ending = ending.startswith(".") and ending == ending.lower() and ending.isprintable()
        if not is_ending or len(ending) > LONGEST_NAME or "/" in ending:
            raise ExtensionFailed(
                f"the ending {ending[:LONGEST_NAME]!r} of {name} must be in lowercase and begin with a period"
            )


def _offer_document_kind(extension: RunningExtension, kind: DocumentKind) -> Withdraw:
    decisions = extension.decisions
    installed = extension.installed

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


def _check_provider(_: InstalledExtension, provider: KnownProvider) -> None:
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
    check_title(f"the title of its provider {provider.name}", provider.title)
    if len(json.dumps(provider.models)) > LONGEST_MODELS:
        raise ExtensionFailed(
            f"the models of {provider.name} have more than {LONGEST_MODELS:,} characters"
        )
    for model, values in provider.models.items():
        check_title(f"the name of a model of {provider.name}", model)
        for name in values:
            if name not in configured_providers.CORRECTABLE:
                raise ExtensionFailed(
                    f"the model {model} of {provider.name} has a value named {name!r}, and these are known: {', '.join(configured_providers.CORRECTABLE)}"
                )


def _offer_provider(extension: RunningExtension, provider: KnownProvider) -> Withdraw:
    variable = environment_variable_name(provider.name)
    configured = configured_providers.ConfiguredProviders(extension.decisions.providers_file)
    for config in configured.list_providers():
        has_same_key = environment_variable_name(config.name) == variable
        if has_same_key and config.host != host_of_address(provider.base_url):
            raise InvalidInput(
                f"You have set up a provider named {config.name} with another address."
            )
    provider_catalog.add_known_provider(provider)
    return lambda: provider_catalog.remove_known_provider(provider.name)


# --- Actions, searches and checks


def _check_action(_: InstalledExtension, action: ExtensionAction) -> None:
    check_title("the title of its action", action.title)
    _check_limit(action.title, action.limit_seconds)


def _offer_action(extension: RunningExtension, declared: ExtensionAction) -> Withdraw:
    action = added_actions.AddedAction(extension, declared)
    added_actions.add_action(action)
    return lambda: added_actions.remove_action(action)


def _check_search_source(_: InstalledExtension, source: ExtensionSearchSource) -> None:
    check_title("the title of its search", source.title)


def _offer_search_source(extension: RunningExtension, source: ExtensionSearchSource) -> Withdraw:
    added_search_sources.add_search_source(
        added_search_sources.AddedSearchSource(extension, source)
    )
    return lambda: added_search_sources.remove_search_source(source.title)


def _check_doctor_check(_: InstalledExtension, check: ExtensionCheck) -> None:
    check_title("the name of its check", check.name)


# --- Ways of saving context


LONGEST_STRATEGY_SECONDS = 60


def check_fold_strategy_declaration(
    _: InstalledExtension | None, strategy: ExtensionFoldStrategy
) -> None:
    check_name("fold strategy", strategy.name)
    _check_limit(strategy.name, strategy.limit_seconds)
    if strategy.limit_seconds > LONGEST_STRATEGY_SECONDS:
        raise ExtensionFailed(
            f"limit_seconds of {strategy.name} must be a number of at most {LONGEST_STRATEGY_SECONDS}"
        )
    if strategy.choose is None and strategy.write is None:
        raise ExtensionFailed(f"{strategy.name} has neither `choose` nor `write`")
    for function in (strategy.choose, strategy.write):
        if inspect.iscoroutinefunction(function):
            raise ExtensionFailed(
                f"the functions of {strategy.name} must begin with `def`, not `async def`"
            )


def _offer_fold_strategy(extension: RunningExtension, declared: ExtensionFoldStrategy) -> Withdraw:
    strategy = added_fold_strategies.FoldStrategyOfExtension(extension, declared)
    added_fold_strategies.add_fold_strategy(strategy)
    return lambda: added_fold_strategies.remove_fold_strategy(strategy)


# --- Commands


_nouns_of_extensions: set[str] = set()


def _check_command(_: InstalledExtension, command: ExtensionCommand) -> None:
    check_name("command", command.noun)
    check_title(f"the sentence of its command {command.noun}", command.sentence)
    if command.noun.startswith("-") or command.noun in NOUNS:
        raise ExtensionFailed(f"the command {command.noun} belongs to Helix Desktop")


def _reserve_noun(_: RunningExtension, command: ExtensionCommand) -> Withdraw:
    """Commands are found through the running extensions (`commands/added_commands.py`)."""
    if command.noun in _nouns_of_extensions:
        raise ExtensionFailed(f"there is another command named {command.noun}")
    _nouns_of_extensions.add(command.noun)
    return lambda: _nouns_of_extensions.discard(command.noun)


# --- All kinds


def _name(declared: Any) -> str:
    return str(declared.name)


def _title(declared: Any) -> str:
    return str(declared.title)


def _kind_of_format(declared: ExtensionHistoryFormat) -> str:
    return declared.kind


def _noun(declared: ExtensionCommand) -> str:
    return declared.noun


def _details_of_format(declared: ExtensionHistoryFormat) -> str:
    return f"{declared.program}, {', '.join(declared.endings)}"


def _details_of_document_kind(declared: DocumentKind) -> str:
    return f"{declared.title}, {', '.join(declared.endings)}"


def _address(declared: KnownProvider) -> str:
    return declared.base_url


OFFERED_KINDS: Sequence[OfferedKind] = (
    OfferedKind("tools", "tool", "tools", ExtensionTool, _name, _check_tool),
    OfferedKind(
        "history_formats",
        "format of histories",
        "formats of histories",
        ExtensionHistoryFormat,
        _kind_of_format,
        check_history_format_declaration,
        _offer_history_format,
        _details_of_format,
    ),
    OfferedKind(
        "document_kinds",
        "kind of documents",
        "kinds of documents",
        DocumentKind,
        _name,
        _check_document_kind,
        _offer_document_kind,
        _details_of_document_kind,
    ),
    OfferedKind(
        "providers",
        "provider",
        "providers",
        KnownProvider,
        _name,
        _check_provider,
        _offer_provider,
        _address,
    ),
    OfferedKind(
        "commands", "command", "commands", ExtensionCommand, _noun, _check_command, _reserve_noun
    ),
    OfferedKind(
        "actions", "action", "actions", ExtensionAction, _title, _check_action, _offer_action
    ),
    OfferedKind(
        "search_sources",
        "search",
        "searches",
        ExtensionSearchSource,
        _title,
        _check_search_source,
        _offer_search_source,
    ),
    OfferedKind(
        "fold_strategies",
        "fold strategy",
        "fold strategies",
        ExtensionFoldStrategy,
        _name,
        check_fold_strategy_declaration,
        _offer_fold_strategy,
    ),
    OfferedKind(
        "doctor_checks",
        "check of the doctor",
        "checks of the doctor",
        ExtensionCheck,
        _name,
        _check_doctor_check,
    ),
)
