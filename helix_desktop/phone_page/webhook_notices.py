"""Which changes the user's phone is told of, through a webhook that they named.

Somebody at the desk answers at once and reads as the agent writes. So only what has waited for a
while, or has taken long, is worth a notice.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.workspace_host.host_interface import HostListRow

WAITING_SECONDS = 20.0
LONG_TURN_SECONDS = 60.0
LONGEST_CONTENT = 300
_AT_WORK = frozenset({ConversationActivity.THINKING, ConversationActivity.TOOLS})


class NoticeKind(StrEnum):
    """The words of a notice without content. They are for the user's phone, and in English as the page."""

    WAITS = "An agent needs you."
    DONE = "An agent has finished."
    FAILED = "An agent has stopped with an error."
    GONE = "The program in which an agent worked has ended."
    TEST = "This is a test."


@dataclass(frozen=True, slots=True)
class Notice:
    """`content`: what it is about, which is sent only if the user says so."""

    kind: NoticeKind
    content: str = ""

    def text(self, *, has_content: bool) -> str:
        if has_content and self.content:
            return f"{self.kind.value} {self.content}"[:LONGEST_CONTENT]
        return self.kind.value


@dataclass(slots=True)
class _ObservedConversation:
    """`since`: when it began to do what it does now. `turn_began`: 0 while no turn runs."""

    running: ConversationActivity
    since: float
    turn_began: float = 0.0
    is_told: bool = False
    content: str = ""


class NoticeChooser:
    """Is shown all rows of a workspace again and again, and says what is worth a notice."""

    def __init__(self) -> None:
        self._observed: dict[tuple[str, str], _ObservedConversation] = {}

    def choose_notices(
        self, workspace: str, rows: Iterable[HostListRow], now: float
    ) -> list[Notice]:
        notices: list[Notice] = []
        for entry in rows:
            observed = self._find_or_begin_observation(workspace, entry, now)
            observed.content = _describe_conversation(entry)
            kind = _observe_change(observed, entry.running, now)
            # The end of a sub-agent concerns the agent that started it.
            is_end = kind in (NoticeKind.DONE, NoticeKind.FAILED)
            is_end_of_sub_agent = is_end and bool(entry.row.parent)
            if kind is not None and not is_end_of_sub_agent:
                notices.append(Notice(kind, observed.content))
        return notices

    def _find_or_begin_observation(
        self, workspace: str, entry: HostListRow, now: float
    ) -> _ObservedConversation:
        key = (workspace, entry.row.id)
        observed = self._observed.get(key)
        if observed is None:
            observed = _ObservedConversation(ConversationActivity.IDLE, now)
            self._observed[key] = observed
        return observed

    def choose_notices_of_closed(
        self, open_workspaces: Collection[str], now: float
    ) -> list[Notice]:
        """A command such as `ask` ends with its turn, and with it the host that would tell of the end."""
        notices: list[Notice] = []
        for key, observed in list(self._observed.items()):
            workspace, _ = key
            if workspace in open_workspaces:
                continue
            del self._observed[key]
            if observed.turn_began and now - observed.turn_began >= LONG_TURN_SECONDS:
                notices.append(Notice(NoticeKind.GONE, observed.content))
        return notices


def _describe_conversation(entry: HostListRow) -> str:
    title = entry.row.title or "A conversation without a title"
    if entry.why:
        return f"{title}: {entry.why}"
    return title


def _observe_change(
    observed: _ObservedConversation, running: ConversationActivity, now: float
) -> NoticeKind | None:
    """Notes what a conversation does now. Returns what is to be told of it, if anything."""
    if running is not observed.running:
        observed.running = running
        observed.since = now
        observed.is_told = False
    if running in _AT_WORK or running is ConversationActivity.ASKING:
        return _observe_turn(observed, now)
    return _observe_rest(observed, now)


def _observe_turn(observed: _ObservedConversation, now: float) -> NoticeKind | None:
    """A question that waits for long is told, once."""
    if observed.turn_began == 0:
        observed.turn_began = now
    is_asking = observed.running is ConversationActivity.ASKING
    has_waited = now - observed.since >= WAITING_SECONDS
    if is_asking and has_waited and not observed.is_told:
        observed.is_told = True
        return NoticeKind.WAITS
    return None


def _observe_rest(observed: _ObservedConversation, now: float) -> NoticeKind | None:
    """The end of a turn is told if the turn was long."""
    was_in_turn = observed.turn_began > 0
    turn_seconds = now - observed.turn_began
    observed.turn_began = 0.0
    if not was_in_turn or turn_seconds < LONG_TURN_SECONDS:
        return None
    if observed.running is ConversationActivity.FAILED:
        return NoticeKind.FAILED
    return NoticeKind.DONE
