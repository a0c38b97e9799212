"""Describes what this agent can do. Imports no library, so that the answer is fast."""

from typing import Any

from helix_desktop import __version__

PROTOCOL = 1
SIGN_IN = "Add the provider's key in Helix Desktop's window, or with `helix-desktop provider add` in a terminal."


def build_initialize_result() -> dict[str, Any]:
    """The answer to `initialize`, which is the same for every client."""
    return {
        "protocolVersion": PROTOCOL,
        "agentInfo": {"name": "helix-desktop", "title": "Helix Desktop", "version": __version__},
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "embeddedContext": True},
            "sessionCapabilities": {
                name: {}
                for name in ("list", "delete", "fork", "resume", "close", "additionalDirectories")
            },
        },
        "authMethods": [{"id": "provider-key", "name": "A provider's key", "description": SIGN_IN}],
    }
