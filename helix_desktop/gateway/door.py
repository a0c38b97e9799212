"""Who may come in: programs of the same user on this machine. A page in a browser, another host and another user may not."""

from __future__ import annotations

import hmac
import os
import socket
import struct
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
        return "The request came from another user's program. It needs the token of this gateway."
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
    """By the kernel, where it can be asked; elsewhere loopback has to do."""
    if sys.platform != "linux":
        return True
    owner = _asked(peer, here)
    if owner is None:
        owner = _listed(peer, here)
    return owner in (os.getuid(), 0)


def _asked(peer: tuple[str, int], here: tuple[str, int]) -> int | None:
    """Whose socket the other end is: the kernel is asked for this one. None where it does not say."""
    try:
        ends = struct.pack(">HH", peer[1], here[1]) + _address(peer[0]) + _address(here[0])
        wanted = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends + _ANY
        header = struct.pack("=IHHII", 16 + len(wanted), _BY_FAMILY, _REQUEST, 1, 0)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.send(header + wanted)
            answer = kernel.recv(4096)
    except (OSError, AttributeError):
        return None
    if struct.unpack_from("=H", answer, 4)[0] != _BY_FAMILY or len(answer) < _OWNER + 4:
        return None
    found: int = struct.unpack_from("=I", answer, _OWNER)[0]
    return found


# linux/sock_diag.h and linux/inet_diag.h
_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_ANY = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # any interface, no cookie
_OWNER = 16 + 4 + 48 + 12


def _address(name: str) -> bytes:
    return socket.inet_aton(name) + bytes(12)


def _listed(peer: tuple[str, int], here: tuple[str, int]) -> int | None:
    """The same by the kernel's tables of all connections: slower."""
    end = f":{peer[1]:04X}", f":{here[1]:04X}"
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[1].endswith(end[0]) and fields[2].endswith(end[1]):
                return int(fields[7])
    return None
