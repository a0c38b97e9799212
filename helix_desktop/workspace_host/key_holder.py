"""The process that holds a key for one conversation, on a computer where the user's agent works alone.

Usually, keys stay on the user's own computer, and the agent there waits while that computer is away.
To let it go on meanwhile, the user may lend it a key. The host never sees that key: this process, and
no other, has it in its memory, and sends the conversation's requests to the provider as the user's own
computer would. It writes the key nowhere. When the turn is done, the user takes the key back, or the
host ends, the process ends, and its memory with it.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput, NotFound
from helix_desktop.processes.starter import (
    DEVNULL,
    PIPE,
    CommandAuthor,
    ProcessLaunch,
    open_process,
)
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.key_lender import KeyLender, ProviderSource
from helix_desktop.providers.provider_catalog import (
    KeySource,
    ProviderConfig,
    check_provider_config,
    find_provider_key,
    require_usable_key,
)
from helix_desktop.secrets import ProviderKey
from helix_desktop.workspace_host.followed_conversation import FollowedConversation
from helix_desktop.workspace_host.host_connection import connect_to_host
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost

LONGEST_OFFER = 1 << 16
KEY_IS_HELD = "the key is held"
_RESTING = (ConversationActivity.IDLE, ConversationActivity.FAILED)


class KeyOffer(msgspec.Struct, frozen=True):
    """What the user's own computer sends. All that is needed to ask the provider, and the key."""

    conversation: str
    name: str
    kind: str
    base_url: str
    key: str
    key_header: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_provider(cls, conversation: str, config: ProviderConfig, key: str) -> "KeyOffer":
        return cls(
            conversation,
            config.name,
            config.kind,
            config.base_url,
            key,
            config.key_header,
            config.headers,
            config.query,
        )


async def build_key_offer(
    conversation: str, provider: str, configured: ProviderSource, keys: KeySource
) -> KeyOffer:
    """Reads the user's key for a provider, to lend it. Raises why there is none to lend."""
    config = check_provider_config(configured.find_provider(provider))
    key = require_usable_key(config, await find_provider_key(config, keys))
    if not key:
        raise InvalidInput(
            f"There is no key for {config.name} to lend.",
            remedy=f"The agent over there asks {config.name} through this computer, which has to stay on.",
        )
    return KeyOffer.of_provider(conversation, config, key)


def decode_key_offer(line: bytes) -> KeyOffer:
    try:
        return msgspec.json.decode(line, type=KeyOffer)
    except (msgspec.MsgspecError, ValueError):
        # The error may have a part of the key in it, so it is not passed on.
        raise InvalidInput("What came over the line is no key to be held.") from None


class _HeldKey:
    """The only provider and the only key of this process."""

    def __init__(self, offer: KeyOffer) -> None:
        self._config = ProviderConfig(
            offer.name,
            offer.kind,
            offer.base_url,
            key_header=offer.key_header,
            headers=offer.headers,
            query=offer.query,
        )
        self._key = offer.key

    def find_provider(self, name: str) -> ProviderConfig:
        if name != self._config.name:
            raise NotFound(f"No key for {name} was lent.")
        return self._config

    def list_providers(self) -> Sequence[ProviderConfig]:
        return (self._config,)

    async def read_secret(self, secret: ProviderKey) -> str | None:
        return self._key


async def hold_key_until_turn_ends(
    run: Path, workspace: str, offer: KeyOffer, announce: Callable[[], Awaitable[None]]
) -> None:
    """Lends the key at the process that has the workspace open. `announce` is called once it is
    lent. ActionRefused if the agent does not work in the conversation.
    """
    host = await connect_to_host(run, workspace)
    if host is None:
        raise ActionRefused("Nobody has the workspace open, so no agent works there.")
    connections = ProviderConnections()
    try:
        held_key = _HeldKey(offer)
        lender = KeyLender(held_key, held_key, connections)
        lender.conversation = offer.conversation
        lender.providers = [lender.describe_provider(offer.name)]
        await _lend_until_turn_ends(host, lender, announce)
    finally:
        await host.close_host()
        await connections.aclose()


async def _lend_until_turn_ends(
    host: RemoteWorkspaceHost,
    lender: KeyLender,
    announce: Callable[[], Awaitable[None]],
) -> None:
    follower = await host.follow_conversation(lender.conversation)
    followed = FollowedConversation()
    is_lent = False
    while True:
        for event in await follower.next_events():
            followed.apply_event(event)
        if not followed.has_caught_up:
            continue
        is_at_rest = followed.running in _RESTING
        if is_at_rest and is_lent:
            return
        if is_at_rest:
            raise ActionRefused(
                "The agent does not work in this conversation, so no key was lent.",
                remedy="Send your message first.",
            )
        if not is_lent:
            await host.lend_providers(lender)
            is_lent = True
            await announce()


def start_key_holder(program: Sequence[str], workspace: str, offer_line: bytes) -> str:
    """Starts the process apart from this one, which is the end of a line. Returns what it says:
    KEY_IS_HELD, or why not.
    """
    argv = list(program) + ["host", "--hold-key", "here", "--workspace", workspace]
    launch = ProcessLaunch(CommandAuthor.PROGRAM, argv, has_own_session=True)
    holder = open_process(launch, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    if holder.stdin is None or holder.stdout is None:
        raise ValueError("the key holder was started without its two pipes")
    with holder.stdout, holder.stdin:
        holder.stdin.write(offer_line.decode())
        holder.stdin.flush()
        answer = holder.stdout.readline()
        return str(answer).strip()


async def lend_key_over_line(
    read: Callable[[], Awaitable[bytes]],
    write: Callable[[bytes], Awaitable[None]],
    offer: KeyOffer,
) -> None:
    """The user's own computer's end. Raises what the other computer says, if it is not lent."""
    await write(msgspec.json.encode(offer) + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        piece = await read()
        if not piece or len(answer) > LONGEST_OFFER:
            break
        answer += piece
    said = answer.decode("utf-8", "replace").strip()
    if said != KEY_IS_HELD:
        reason = said or "The connection broke off. If the key was lent, it ends with the turn."
        raise HelixError(f"The key was not lent. {reason}")
