"""What the author of an extension writes: one `Extension`, named by an entry point.

These classes are a promise. Within one `INTERFACE_VERSION`, fields are only added, with a
default. The help page `extensions.md` shows how they are used. A document kind and a provider
are declared by the classes with which the program declares its own.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from helix_desktop.doctor_findings import DoctorFinding
from helix_desktop.doctor_findings import DoctorFindingState as DoctorFindingState  # noqa: PLC0414 - authors import it from here, and so below
from helix_desktop.documents.document_kinds import DocumentKind
from helix_desktop.engine.strategies.added_strategies import ChosenFold as ChosenFold  # noqa: PLC0414
from helix_desktop.engine.strategies.added_strategies import FoldableContext as FoldableContext  # noqa: PLC0414
from helix_desktop.engine.strategies.added_strategies import FoldableMessage as FoldableMessage  # noqa: PLC0414
from helix_desktop.engine.strategies.added_strategies import MessageToFold as MessageToFold  # noqa: PLC0414
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.recorded_session import RecordedSession
from helix_desktop.providers.known_provider import KnownProvider

INTERFACE_VERSION = 1


@dataclass(frozen=True, slots=True)
class ExtensionTool:
    """A tool that the agent can call, after the user has allowed the call.

    `schema` is a JSON schema of the arguments. `run` gets the checked arguments and returns
    the text that the agent reads. It runs in a thread of its own, and may take
    `limit_seconds`. An exception becomes a failed result with its message.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    run: Callable[[Mapping[str, Any]], Awaitable[str]]
    limit_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class ExtensionHistoryFormat:
    """A format in which another program saves its conversations.

    `recognizes` is asked with a file's path and its first bytes, and must be quick. `read`
    returns the sessions of a file that it recognized, and texts that say what it left out. Both
    must treat what they read as data. `endings`: how the names of its files end. `folders`: where
    the program keeps them, such as "~/.talker/sessions".
    """

    kind: str
    program: str
    recognizes: Callable[[Path, bytes], bool]
    read: Callable[[Path], Iterable[RecordedSession | str]]
    endings: Sequence[str] = (".jsonl", ".json")
    folders: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ExtensionCommand:
    """A command of the command line: `helix-desktop NOUN …`.

    `sentence` is what the help says of it. `add_arguments` gets the command's argparse parser,
    and `run` the arguments; it returns the exit code. `arguments.places` are the program's folders.
    """

    noun: str
    sentence: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]


@dataclass(frozen=True, slots=True)
class ExtensionCheck:
    """A check of `helix-desktop doctor`. `find` returns a DoctorFinding for each thing that it
    looked at, and may take 20 seconds.
    """

    name: str
    find: Callable[[], Iterable[DoctorFinding]]


@dataclass(frozen=True, slots=True)
class FoundPage:
    """A page of the web that a search found. Its `address` is opened in the browser."""

    title: str
    address: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class ExtensionSearchSource:
    """Something that the search of everything asks, too.

    `search` gets what the user has typed, each time they pause, and returns the best pages first,
    within 10 seconds.
    """

    title: str
    search: Callable[[str], Iterable[FoundPage]]


@dataclass(frozen=True, slots=True)
class ActionPlace:
    """Where the user chose an action. What is not open is empty.

    `folder`: the folder of the workspace. `conversation`: the ID of the open conversation.
    """

    workspace: str
    folder: str
    conversation: str


@dataclass(frozen=True, slots=True)
class ExtensionAction:
    """An action of the command palette. `run` returns what the user is told, or an empty text, and
    may take `limit_seconds`. It runs in a thread of its own.
    """

    title: str
    run: Callable[[ActionPlace], str]
    limit_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class ExtensionFoldStrategy:
    """A way of saving context, by summaries of older messages. Each function may be left out.

    `choose` is asked before each step what is to become a summary now, and returns None for
    nothing. `write` gets the messages of a summary that is due and returns its text, or an empty
    text if a model is to write it. Each may take `limit_seconds`, in a thread of its own.
    """

    name: str
    choose: Callable[[FoldableContext], ChosenFold | None] | None = None
    write: Callable[[Sequence[MessageToFold]], str] | None = None
    limit_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Extension:
    """All that a package adds. `interface`: the `INTERFACE_VERSION` it was written for."""

    title: str
    interface: int = INTERFACE_VERSION
    tools: Sequence[ExtensionTool] = ()
    history_formats: Sequence[ExtensionHistoryFormat] = ()
    document_kinds: Sequence[DocumentKind] = ()
    providers: Sequence[KnownProvider] = ()
    commands: Sequence[ExtensionCommand] = ()
    doctor_checks: Sequence[ExtensionCheck] = ()
    search_sources: Sequence[ExtensionSearchSource] = ()
    actions: Sequence[ExtensionAction] = ()
    fold_strategies: Sequence[ExtensionFoldStrategy] = ()
