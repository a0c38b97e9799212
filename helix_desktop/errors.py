"""The error tree. A class exists only where somebody catches it.

HelixError                       something the user can be told in a sentence
├── NotFound                     what was asked for does not exist, or no longer
│   └── AmbiguousName            a shortened name fits more than one thing
├── InvalidInput                 the request itself is wrong: an argument, a setting, a file to import
│   └── ConfigFileMistake        a mistake in a file that people edit: line, key, what was expected
├── StoreFailed                  the disk or a database refused; nothing acknowledged is lost
│   ├── CacheCorrupt             the bytes of one entry do not match their hash
│   ├── JournalCorrupt           a fact does not match its hash
│   ├── StoreFull                the disk is full; writing goes on when there is room
│   ├── StoreBusy                another process owns the workspace
│   ├── SharedStoreUnreachable   a shared store does not answer; asking later may help
│   └── WrittenByNewerVersion    written by a newer version of the program; left untouched
├── ModelFailed                  the model or the way to it failed
│   ├── ContextTooLong           the request does not fit the model's window
│   ├── ProviderKeyRefused       there is no key, or the provider refuses it
│   ├── NoCreditLeft             the account with the provider has no credit left (402)
│   ├── UnknownModel             the provider does not know this model
│   ├── ModelOverloaded          429, 529, 5xx: worth another try, perhaps after `retry_after` seconds
│   └── ProviderUnreachable      connection refused, lost, silent or cut
├── NoUsableKeyring              the system has no keyring, or it is locked, silent or refuses
├── OwnerEnded                   the process that had the workspace open ended before it answered
├── ActionRefused                a rule of the program or the user said no (permission, confinement, undo)
└── StoppedByUser                the user stopped it

A HelixError is a failure of the surroundings and is shown. Anything else is a bug and is reported with its trace.
"""

TO_WRITABLE_FOLDER = "Make the folder writable, or start the program with another folder (--home)."


class HelixError(Exception):
    """`what` happened, in a sentence; `remedy`: what the reader can do about it, or empty."""

    def __init__(self, what: str, *, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}".strip()


class NotFound(HelixError):
    """What was asked for does not exist."""


class AmbiguousName(NotFound):
    """A shortened name fits more than one thing."""


class InvalidInput(HelixError):
    """The request itself is wrong."""


class ConfigFileMistake(InvalidInput):
    """A mistake in a file that people edit. `mistake` says what is wrong, `where` the place."""

    def __init__(self, mistake: str, *, remedy: str = "", where: str = "") -> None:
        what = mistake
        if where:
            what = f"{where}: {mistake}"
        super().__init__(what, remedy=remedy)
        self.mistake = mistake


class StoreFailed(HelixError):
    """The disk or a database refused."""


class CacheCorrupt(StoreFailed):
    """The bytes of one entry do not match their hash."""


class JournalCorrupt(StoreFailed):
    """A fact does not match its hash."""


class StoreFull(StoreFailed):
    """No room on the disk."""


class StoreBusy(StoreFailed):
    """Another process has the workspace open."""


class SharedStoreUnreachable(StoreFailed):
    """A shared store does not answer; what waits for it is kept here."""


class WrittenByNewerVersion(StoreFailed):
    def __init__(
        self, what: str, *, remedy: str = "Update Helix Desktop. Nothing was changed."
    ) -> None:
        super().__init__(what, remedy=remedy)


class ModelFailed(HelixError):
    """The model failed, or the connection to it."""


class ContextTooLong(ModelFailed):
    """The request does not fit the model's window. `window`: its size in tokens, or 0
    if unknown.
    """

    def __init__(self, what: str, *, remedy: str = "", window: int = 0) -> None:
        super().__init__(what, remedy=remedy)
        self.window = window


class ProviderKeyRefused(ModelFailed):
    """No key, or the provider refuses it."""


class NoCreditLeft(ModelFailed):
    """The account with the provider has no credit left."""


class UnknownModel(ModelFailed):
    """The provider does not know this model."""


class ModelOverloaded(ModelFailed):
    """The request is worth another try after `retry_after` seconds."""

    def __init__(self, what: str, *, remedy: str = "", retry_after: float | None = None) -> None:
        super().__init__(what, remedy=remedy)
        self.retry_after = retry_after


class ProviderUnreachable(ModelFailed):
    """The connection was refused, lost, silent or cut."""


class NoUsableKeyring(HelixError):
    """The system has no keyring that keeps and gives back a key."""


class OwnerEnded(HelixError):
    """The process that had the workspace open ended before it answered."""


class ActionRefused(HelixError):
    """A rule of the program or the user said no."""


class RefusedByUser(ActionRefused):
    """The user was asked and said no."""


class StoppedByUser(HelixError):
    """The user stopped it."""


def format_things(number: int, one: str, many: str) -> str:
    """Formats a number of things for a sentence: "1 entry", "2,000 entries"."""
    noun = many
    if number == 1:
        noun = one
    return f"{number:,} {noun}"


def shorten_to_line(text: str, most: int) -> str:
    """Puts a text on one line of at most this many characters."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    return f"{line[: most - 1].rstrip()}…"
