"""The addresses that are offered for the page: others reach them, and this computer has them."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from helix_desktop.phone_page.own_addresses import list_own_addresses


def test_each_address_is_this_computers_and_reached_by_others() -> None:
    addresses = list_own_addresses()
    assert len(set(addresses)) == len(addresses)
    for address in addresses:
        assert not ip_address(address).is_loopback
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
            listening.bind((address, 0))
