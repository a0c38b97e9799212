"""A command in the sandbox that may use the network, and an agent that is wrapped: the
command finds no token, and no door without one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from helix_desktop import program_folders
from helix_desktop.gateway import address_in_agent_settings
from helix_desktop.gateway.known_agents import KNOWN_AGENTS
from helix_desktop.tools.sandbox import Sandbox, SandboxKind, is_sandbox_effective
from helix_desktop.workbench.all_workbenches import folders_closed_to_tools
from tests.gateway.running import Agent, wrapped
from tests.peers.agent_provider import Provider, Says
from tests.tools.test_sandbox import KINDS, ran

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="sandboxes are Linux's"
)
LOOK = """
import os, sys
at, token = sys.argv[1], bytes.fromhex(sys.argv[2])[::-1]
for base in ('/proc', sys.argv[3]):
    for folder, _, names in os.walk(base):
        for name in names:
            path = os.path.join(folder, name)
            if base == '/proc' and name not in ('environ', 'cmdline'):
                continue
            try:
                with open(path, 'rb') as file:
                    found = token in file.read(1 << 20)
            except OSError:
                continue
            if found and not path.startswith(('/proc/self', '/proc/%d/' % os.getpid())):
                print('FOUND', path)
print('looked')
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """Not in /tmp, of which commands get one of their own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_sandboxed_command_with_the_network_finds_no_token_and_gets_nothing_without_one(
    base: Path, kind: SandboxKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("root", "scratch", "user"):
        (base / name).mkdir()
    monkeypatch.setenv("HOME", str(base / "user"))
    where = program_folders.find_program_folders(base / "home")
    with (
        Provider(lambda _: [Says("fine")]) as provider,
        wrapped(base / "home", provider.url, agent="claude") as held,
    ):
        box = Sandbox(kind, (base / "root",), base / "scratch", folders_closed_to_tools(where))
        if not await is_sandbox_effective(box):
            pytest.skip(f"{kind} does not work here")
        change = address_in_agent_settings.plan_address_install(
            KNOWN_AGENTS["claude"], 4356, base / "user", {}
        )
        address_in_agent_settings.install_address(change, where.config)
        agent = Agent("anthropic", held.addresses[0])
        agent.say("a secret of another project")
        agent.ask()
        (base / "root" / "look.py").write_text(LOOK)
        for token in (
            held.addresses[0].rpartition("/")[2],
            next(iter(address_in_agent_settings.read_written_registrations(where.config))).token,
        ):
            hidden = token.encode()[::-1].hex()
            told = await ran(box, f"python3 look.py x {hidden} {base}", network=True)
            assert told.strip() == "looked"
        port = urlsplit(held.addresses[0]).port
        code = f"import urllib.request as u, urllib.error as e\ntry: print(u.urlopen('http://127.0.0.1:{port}/.helix/status').status)\nexcept e.HTTPError as x: print(x.code)\nexcept OSError as x: print('closed')"
        (base / "root" / "ask.py").write_text(code)
        assert (await ran(box, "python3 ask.py", network=True)).strip() in ("403", "closed")
        assert os.environ["HOME"] == str(base / "user")
