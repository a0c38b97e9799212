"""What is declared of a protocol that agents speak to the gateway: one `PROTOCOL` at the end of its
`*_gateway.py`. `protocol_table.py` lists them.
"""

from collections.abc import Callable, Sequence

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.protocols.gateway_message import Json
from helix_desktop.protocols.hidden_calls import HiddenCallFilter


def _as_list(units: Sequence[Json]) -> Json:
    return list(units)


@dataclass(frozen=True, slots=True)
class GatewayProtocol:
    """A protocol of requests and replies.

    `messages_field`: where a request has its messages, and `value_of_messages` what stands there.
    `path_endings`: of the addresses to which requests are sent; one with `/count_tokens` only
    counts. `call_filter` keeps hidden calls from the agent. `provider_address`: where requests go
    if nobody names an address. Agents read an address from one of `address_variables`, and expect
    `address_path` behind the gateway's.
    """

    name: str
    messages_field: str
    call_filter: Callable[..., HiddenCallFilter]
    provider_address: str
    address_variables: Sequence[str]
    address_path: str = ""
    path_endings: Sequence[str] = ()
    value_of_messages: Callable[[Sequence[Json]], Json] = _as_list
