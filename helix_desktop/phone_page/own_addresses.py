"""The addresses of this computer at which other devices can reach it."""

import socket
import sys
from ipaddress import ip_address

_GET_INTERFACE_ADDRESS = 0x8915  # SIOCGIFADDR of Linux.


def list_own_addresses() -> list[str]:
    """Lists the IPv4 addresses of this computer, without those that only itself can reach.

    Those of its own network devices come before those of networks that programs have added later.
    """
    if sys.platform == "linux":
        found = _list_interface_addresses()
    else:
        found = _list_addresses_of_own_name()
    addresses: list[str] = []
    for address in found:
        if address not in addresses and _is_reached_by_others(address):
            addresses.append(address)
    return addresses


def _is_reached_by_others(address: str) -> bool:
    known = ip_address(address)
    return not (known.is_loopback or known.is_unspecified or known.is_link_local)


def _list_interface_addresses() -> list[str]:
    import fcntl

    addresses: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = name.encode()[:15].ljust(256, b"\0")
            try:
                answer = fcntl.ioctl(asking.fileno(), _GET_INTERFACE_ADDRESS, request)
            except OSError:  # This interface has no IPv4 address.
                continue
            addresses.append(socket.inet_ntoa(answer[20:24]))
    return addresses


def _list_addresses_of_own_name() -> list[str]:
    try:
        _, _, addresses = socket.gethostbyname_ex(socket.gethostname())
    except OSError:
        return []
    return list(addresses)
