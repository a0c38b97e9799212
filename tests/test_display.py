"""display.py: whether a window can open, without asking Qt."""

from __future__ import annotations

import socket
import sys

import pytest

from helix_desktop import display


@pytest.mark.parametrize(
    ("environ", "platform"),
    [
        ({}, "win32"),
        ({}, "darwin"),
        ({"QT_QPA_PLATFORM": "offscreen"}, "linux"),
        ({"QT_QPA_PLATFORM": "vnc:size=800x600"}, "linux"),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux"),
        ({"DISPLAY": "far.example.org:0"}, "linux"),
    ],
)
def test_there_is_one(environ: dict[str, str], platform: str) -> None:
    assert display.missing(environ, platform) == ""


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "neither DISPLAY nor WAYLAND_DISPLAY"),
        ({"QT_QPA_PLATFORM": "xcb"}, "neither DISPLAY"),
        ({"DISPLAY": ":64123"}, "the display :64123 does not answer"),
        ({"DISPLAY": "unix:64123.0"}, "does not answer"),
    ],
)
def test_there_is_none(environ: dict[str, str], words: str) -> None:
    assert words in display.missing(environ, "linux")


@pytest.mark.skipif(sys.platform != "linux", reason="abstract socket names are Linux's")
def test_a_server_that_listens_is_one() -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0/tmp/.X11-unix/X64124")
        server.listen()
        assert display.missing({"DISPLAY": ":64124.0"}, "linux") == ""
