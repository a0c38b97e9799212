"""What a user can request in the chat, as values; the window carries them out."""

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Cover, FoldKind, Stored
from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RecallEntry:
    """Put an entry, or its lines from the first to the last of `lines`, into the next message."""

    digest: Digest
    lines: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class OpenEntry:
    digest: Digest


@dataclass(frozen=True, slots=True)
class OpenPicture:
    stored: Stored
    name: str


@dataclass(frozen=True, slots=True)
class OpenFold:
    fold: str


@dataclass(frozen=True, slots=True)
class OpenChanges:
    """What a turn did to files; `seq` is a fact of it. `path`: one of the files."""

    seq: int
    path: str = ""


@dataclass(frozen=True, slots=True)
class OpenConversation:
    conversation: str


@dataclass(frozen=True, slots=True)
class OpenSubAgent:
    """The conversation a call that still runs has begun."""

    call: str


@dataclass(frozen=True, slots=True)
class ShowInChat:
    conversation: str
    seq: int


@dataclass(frozen=True, slots=True)
class OpenLink:
    """The user has seen the address and said yes."""

    address: str


@dataclass(frozen=True, slots=True)
class EditMessage:
    seq: int


@dataclass(frozen=True, slots=True)
class RegenerateAnswer:
    seq: int


@dataclass(frozen=True, slots=True)
class ChooseAnswer:
    """Another answer to the same message: the one that ends with the fact `end`."""

    end: int


@dataclass(frozen=True, slots=True)
class ShowRequest:
    """What the model was sent for the reply `seq`."""

    seq: int


@dataclass(frozen=True, slots=True)
class ContinueTurn:
    """Take the turn up again where it failed."""


@dataclass(frozen=True, slots=True)
class RetryModelNow:
    """Do not wait any longer before the model is asked again."""


@dataclass(frozen=True, slots=True)
class OpenKeySettings:
    """Where a provider's key is set."""


@dataclass(frozen=True, slots=True)
class OpenModelChooser:
    """Another model, from the list of all."""


@dataclass(frozen=True, slots=True)
class ForkConversation:
    seq: int


@dataclass(frozen=True, slots=True)
class RewindConversation:
    seq: int


@dataclass(frozen=True, slots=True)
class PinPart:
    ref: Cover


@dataclass(frozen=True, slots=True)
class UnpinPart:
    ref: Cover


@dataclass(frozen=True, slots=True)
class AskToFold:
    """A fold that a model writes is wanted: asked first, with its price."""

    kind: FoldKind = FoldKind.HANDOVER


@dataclass(frozen=True, slots=True)
class SetModelPrice:
    """The price of the main model, which is not known."""


ChatIntent = (
    RecallEntry | OpenEntry | OpenPicture | OpenFold | OpenChanges | OpenConversation
    | OpenSubAgent | ShowInChat | OpenLink | EditMessage | RegenerateAnswer | ChooseAnswer
    | ShowRequest | ContinueTurn | RetryModelNow | OpenKeySettings | OpenModelChooser
    | ForkConversation | RewindConversation | PinPart | AskToFold | SetModelPrice | UnpinPart
)  # fmt: skip
