"""Who may come in: programs of the same user on this machine. A page in a browser, another host and another user may not."""

from __future__ import annotations

import hmac
import os
import sys
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

TOKEN_HEADER = "x-helix-token"  # noqa: S105 -- a name


def refusal(
    headers: Mapping[str, str], peer: tuple[str, int] | None, here: tuple[str, int], token: str, given: str
) -> str:
    """Why the request is refused; empty where it is not. `given`: the token of its path."""
    if not _is_loopback(headers.get("host", "")):
        return "The address of this gateway is 127.0.0.1. A request for another host is refused."
    if "origin" in headers or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "A web page asked. Pages in a browser are refused."
    if hmac.compare_digest((given or headers.get(TOKEN_HEADER, "")).encode(), token.encode()):
        return ""
    if peer is None or not _is_loopback(peer[0]) or not _is_same_user(peer, here):
        return "Another user's program asked. It needs the token of this gateway."
    return ""


def _is_loopback(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _is_same_user(peer: tuple[str, int], here: tuple[str, int]) -> bool:
    """By the kernel's table of connections, where there is one; elsewhere loopback has to do."""
    if sys.platform != "linux":
        return True
    tables = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
    end = f":{peer[1]:04X} ", f":{here[1]:04X} "
    for table in tables:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[1].endswith(end[0].strip()) and fields[2].endswith(end[1].strip()):
                return int(fields[7]) in (os.getuid(), 0)
    return False
