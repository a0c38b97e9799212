"""Remembers what users took out of agents' contexts, for requests forwarded without a view."""

from helix_desktop.errors import ActionRefused
from helix_desktop.gateway.conversations_port import Arrival
from helix_desktop.gateway.folded_request import build_folded_body
from helix_desktop.gateway.incremental_parsing import BodyPieces
from helix_desktop.gateway.request_parsing import ParsedRequest
from helix_desktop.gateway.view_entries import As, Changed
from helix_desktop.protocols.gateway_message import Json

NOT_SENT = (
    "Nothing was sent to the provider: you excluded part of this conversation from the context, and Helix "
    "Desktop cannot leave this part out at the moment. Nothing was lost. Send the message again in a minute, or "
    "start a new conversation."
)


class TakenOutMessages:
    """By the hash of a message and all before it (`Arrival.chain`): its session, and
    the changed message.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Changed]] = {}

    def remember_taken_out(self, arrival: Arrival, taken_out: tuple[Changed, ...]) -> None:
        """Remember what the user has taken out of this request, replacing what was known."""
        chain, session = arrival.chain, arrival.session
        fresh = {chain[one.at]: (session, one) for one in taken_out if one.at < len(chain)}
        if self._known or fresh:
            here = frozenset(chain)
            self._known = {
                name: one for name, one in self._known.items() if name not in here
            } | fresh

    def build_body_without_taken_out(
        self, request: ParsedRequest
    ) -> tuple[BodyPieces | None, dict[str, Json]]:
        """Return the agent's request without what was taken out, in bytes (None: its
        own) and as a value.
        """
        if self._known and request.body.read_rest:
            request = request.with_all_messages()
        read, chain = request.body, request.arrival.chain
        if self._known.keys().isdisjoint(chain):
            return None, read.value
        try:
            changed = {hashed: one for hashed, (_, one) in self._known.items()}
            entries = [changed.get(hashed) or As(at) for at, hashed in enumerate(chain)]
            body = build_folded_body(read.wire, read.value, read.messages, entries)
            return read.encode_changed_body(body), body
        except Exception as error:
            raise ActionRefused(NOT_SENT) from error

    def refuse_if_anything_taken_out(self, session: str) -> None:
        """Raise ActionRefused if something was taken out of this session, whose request
        can't be read.
        """
        if session and any(session == known for known, _ in self._known.values()):
            raise ActionRefused(NOT_SENT)
