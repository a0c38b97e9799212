"""Remembers what users took out of agents' contexts, for requests forwarded without a view."""

from helix_desktop.errors import ActionRefused
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.conversations_port import Arrival
from helix_desktop.gateway.folded_request import build_folded_body
from helix_desktop.gateway.incremental_parsing import BodyPieces
from helix_desktop.gateway.request_parsing import ParsedRequest
from helix_desktop.gateway.view_entries import ChangedMessage, Entry, UnchangedMessage
from helix_desktop.protocols.gateway_message import Json

NOT_SENT = (
    "Nothing was sent to the provider: you excluded part of this conversation from the context, and Helix "
    "Desktop cannot leave this part out at the moment. Nothing was lost. Send the message again in a minute, or "
    "start a new conversation."
)


@dataclass(frozen=True, slots=True)
class TakenOutMessage:
    """A message of which something was taken out. `change`: the message without it."""

    session: str
    change: ChangedMessage


class TakenOutMessages:
    """The messages of which something was taken out, in all sessions."""

    def __init__(self) -> None:
        # By the hash of a message and all before it (`Arrival.chain`).
        self._messages_by_hash: dict[str, TakenOutMessage] = {}

    def remember_taken_out(self, arrival: Arrival, taken_out: tuple[ChangedMessage, ...]) -> None:
        """Remember what the user has taken out of this request, replacing what was known."""
        if not self._messages_by_hash and not taken_out:
            return  # Usually: most users take nothing out, and a chain may be long.

        # What is known of other requests stays.
        hashes_of_request = frozenset(arrival.chain)
        messages_by_hash: dict[str, TakenOutMessage] = {}
        for message_hash, message in self._messages_by_hash.items():
            if message_hash not in hashes_of_request:
                messages_by_hash[message_hash] = message

        for change in taken_out:
            if change.at < len(arrival.chain):
                message_hash = arrival.chain[change.at]
                messages_by_hash[message_hash] = TakenOutMessage(arrival.session, change)
        self._messages_by_hash = messages_by_hash

    def build_body_without_taken_out(
        self, request: ParsedRequest
    ) -> tuple[BodyPieces | None, dict[str, Json]]:
        """Return the agent's request without what the user took out, in bytes (None: its own) and
        as a value. Raises ActionRefused if that cannot be built, so that nothing is sent.
        """
        whole_request = request
        if self._messages_by_hash and request.body.read_rest:
            whole_request = request.with_all_messages()
        parsed = whole_request.body
        chain = whole_request.arrival.chain
        if self._messages_by_hash.keys().isdisjoint(chain):
            return None, parsed.value

        # Whatever goes wrong here, the message must not be sent with what was taken out.
        try:
            entries: list[Entry] = []
            for position, message_hash in enumerate(chain):
                message = self._messages_by_hash.get(message_hash)
                if message is None:
                    entries.append(UnchangedMessage(position))
                else:
                    entries.append(message.change)
            body = build_folded_body(parsed.wire, parsed.value, parsed.messages, entries)
            return parsed.encode_changed_body(body), body
        except Exception as error:
            raise ActionRefused(NOT_SENT) from error

    def refuse_if_anything_taken_out(self, session: str) -> None:
        """Raise ActionRefused if something was taken out of this session, whose request
        can't be read.
        """
        if not session:
            return
        for message in self._messages_by_hash.values():
            if message.session == session:
                raise ActionRefused(NOT_SENT)
