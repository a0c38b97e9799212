"""Decides which requests are let in: those with a valid token that no web page in a browser sent.

The owner of the client's socket is not checked, since the kernel names root for a closed connection.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from helix_desktop.gateway.registration import GatewayRegistration, GatewayRegistrations

TOKEN_HEADER = "x-helix-token"  # noqa: S105 -- a name
NOT_ADMITTED = (
    "The address has no valid token. Nothing was sent on. Use the address that helix-desktop gateway or the window shows; "
    "if an agent's settings have an older one, disconnect that agent and connect it again."
)


def find_registration_or_refusal(
    headers: Mapping[str, str], registrations: GatewayRegistrations, token_in_path: str
) -> GatewayRegistration | str:
    """Return the request's registration, or why it is refused. `token_in_path`: the token in its path."""
    if not _is_loopback(headers.get("host", "")):
        return "The address of this gateway is 127.0.0.1. A request for another host is refused."
    if "origin" in headers or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "A web page asked. Pages in a browser are refused."
    return registrations.find_by_token(token_in_path or headers.get(TOKEN_HEADER, "")) or NOT_ADMITTED


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
