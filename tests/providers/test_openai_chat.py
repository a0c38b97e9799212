from __future__ import annotations

from helix_desktop.engine.blocks import CallDelta, Message, Reply, Request, Role, TextDelta
from helix_desktop.engine.facts import Stop, Text, ToolCall, ToolSpec
from helix_desktop.providers.catalog import ProviderConfig, connect
from helix_desktop.providers.transport import Connections
from tests.peers.chat_server import ChatServer, reply


async def test_smoke() -> None:
    with ChatServer([reply("Hello there, world", calls=[("read", {"path": "a"}), ("read", {"path": "b"})])]) as server:
        connections = Connections()
        client = connect(ProviderConfig("peer", base_url=server.base_url), "scripted", connections=connections)
        request = Request("x", "sys", (Message(Role.USER, (Text("hi"),)),), tools=(ToolSpec("read", "d", "{}"),))
        deltas = [d async for d in client.stream(request)]
        print(deltas[-1])
        print(server.bodies)
        await connections.aclose()
        assert isinstance(deltas[-1], Reply)
