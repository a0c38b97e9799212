"""What a user can request in the chat, as values. The window carries them out."""

from enum import Enum, auto

from helix_desktop.engine.facts import Attachment, Cover, FoldKind, Stored
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RecallEntry:
    """Recall an entry, or its lines from the first to the last of `lines`, into the
    next message.
    """

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
class OpenAttachment:
    """Show an attachment in the preview: of a document, the document itself."""

    attachment: Attachment


@dataclass(frozen=True, slots=True)
class OpenFile:
    """Show a file in the preview, as it was written: the path may be of any form. `first_line` is 0
    where no line was named. For a PDF, it is a page.
    """

    path: str
    first_line: int = 0
    last_line: int = 0


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
class PinPart:
    """Keep a part from being folded, or no longer."""

    ref: Cover
    is_pinned: bool = True


@dataclass(frozen=True, slots=True)
class AskToFold:
    """Fold with a model, after a question with the price."""

    kind: FoldKind = FoldKind.HANDOVER


class MessageAct(Enum):
    EDIT = auto()
    REGENERATE = auto()
    CHOOSE = auto()  # Show another answer to the same message: the one that ends with the fact.
    SHOW_REQUEST = auto()  # Show the request for the reply.
    FORK = auto()
    REWIND = auto()
    RETURN = auto()  # Go on from the fact: the last one that a rewind left.


@dataclass(frozen=True, slots=True)
class ActOnMessage:
    """Do something with a message or a reply, which is the fact `seq`."""

    act: MessageAct
    seq: int


class ConversationAct(Enum):
    """What needs to know nothing but the conversation in front."""

    CONTINUE_TURN = auto()  # Continue the turn where it failed.
    RETRY_MODEL_NOW = auto()  # Ask the model again without waiting any longer.
    STOP_FOLD = auto()  # Send the next request without the summary that it waits for.
    OPEN_KEY_SETTINGS = auto()
    OPEN_MODEL_CHOOSER = auto()
    SET_MODEL_PRICE = auto()


ChatIntent = (
    RecallEntry | OpenEntry | OpenAttachment | OpenFile | OpenPicture | OpenFold | OpenChanges
    | OpenConversation | OpenSubAgent | ShowInChat | OpenLink | PinPart | AskToFold | ActOnMessage | ConversationAct
)  # fmt: skip
