from __future__ import annotations

import subprocess
import sys

import pytest

from helix_desktop.mcp_server import cache_operations
from helix_desktop.mcp_server.offered_tools import OFFERS


@pytest.mark.parametrize(
    "module",
    [
        "helix_desktop.cli",
        "helix_desktop.commands.mcp_command",
        "helix_desktop.mcp_server.offered_tools",
        "helix_desktop.mcp_client.server_host",
        "helix_desktop.tools.workspace_tools",
    ],
)
def test_nothing_of_mcp_is_imported_before_it_is_needed(module: str) -> None:
    heavy = ("mcp", "mcp_types", "pydantic", "starlette", "uvicorn", "httpx2", "jsonschema")
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_every_offer_is_described() -> None:
    for offer in OFFERS:
        assert len(offer.description) > 20
        assert all("description" in value for value in offer.input_schema["properties"].values())


def test_the_described_limits_are_those_of_the_operations() -> None:
    inputs = {offer.name: offer.input_schema["properties"] for offer in OFFERS}
    assert inputs["put_cached_content"]["content"]["maxLength"] == cache_operations.MOST_PUT
    assert inputs["list_cached_content"]["limit"]["maximum"] == cache_operations.MOST_LISTED
    assert len(OFFERS) == 9
