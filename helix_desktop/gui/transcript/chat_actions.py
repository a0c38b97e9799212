"""What a user can request in the chat, as values. The window carries them out."""

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Cover, FoldKind, Stored
from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RecallEntry:
    """Recall an entry, or its lines from the first to the last of `lines`, into the next message."""

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
    """Show what a turn did to files. `seq` is a fact of the turn, `path` one of the files."""

    seq: int
    path: str = ""


@dataclass(frozen=True, slots=True)
class OpenConversation:
    conversation: str


@dataclass(frozen=True, slots=True)
class OpenSubAgent:
    """Open the conversation that a running call started."""

    call: str


@dataclass(frozen=True, slots=True)
class ShowInChat:
    conversation: str
    seq: int


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Open a link whose address the user has seen and accepted."""

    address: str


@dataclass(frozen=True, slots=True)
class EditMessage:
    seq: int


@dataclass(frozen=True, slots=True)
class RegenerateAnswer:
    seq: int


@dataclass(frozen=True, slots=True)
class ChooseAnswer:
    """Show another answer to the same message: the one that ends with the fact `end`."""

    end: int


@dataclass(frozen=True, slots=True)
class ShowRequest:
    """Show the request for the reply `seq`."""

    seq: int


@dataclass(frozen=True, slots=True)
class ContinueTurn:
    """Continue the turn where it failed."""


@dataclass(frozen=True, slots=True)
class RetryModelNow:
    """Ask the model again without waiting any longer."""


@dataclass(frozen=True, slots=True)
class OpenKeySettings:
    """Open the settings with the provider's key."""


@dataclass(frozen=True, slots=True)
class OpenModelChooser:
    """Open the list of all models."""


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
    """Fold with a model, after a question with the price."""

    kind: FoldKind = FoldKind.HANDOVER


@dataclass(frozen=True, slots=True)
class SetModelPrice:
    """Set the unknown price of the main model."""


ChatIntent = (
    RecallEntry | OpenEntry | OpenPicture | OpenFold | OpenChanges | OpenConversation
    | OpenSubAgent | ShowInChat | OpenLink | EditMessage | RegenerateAnswer | ChooseAnswer
    | ShowRequest | ContinueTurn | RetryModelNow | OpenKeySettings | OpenModelChooser
    | ForkConversation | RewindConversation | PinPart | AskToFold | SetModelPrice | UnpinPart
)  # fmt: skip
