"""Describes what this agent can do. Imports no library, so that the answer is fast."""

from typing import Any

from helix_desktop import __version__

PROTOCOL = 1
SIGN_IN = "Add the provider's key in Helix Desktop's window, or with `helix-desktop provider add` in a terminal."


def build_initialize_result() -> dict[str, Any]:
    """The answer to `initialize`, which is the same for every client."""
    agent_info = {"name": "helix-desktop", "title": "Helix Desktop", "version": __version__}
    # A request that is supported has an empty object: none of them has options.
    session_capabilities: dict[str, dict[str, Any]] = {}
    for request in ("list", "delete", "fork", "resume", "close", "additionalDirectories"):
        session_capabilities[request] = {}
    agent_capabilities = {
        "loadSession": True,
        "promptCapabilities": {"image": True, "embeddedContext": True},
        "sessionCapabilities": session_capabilities,
    }
    sign_in_method = {"id": "provider-key", "name": "A provider's key", "description": SIGN_IN}
    return {
        "protocolVersion": PROTOCOL,
        "agentInfo": agent_info,
        "agentCapabilities": agent_capabilities,
        "authMethods": [sign_in_method],
    }
