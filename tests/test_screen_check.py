"""screen_check.py: whether a window can open, without asking Qt."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from helix_desktop import screen_check


@pytest.mark.parametrize(
    ("environ", "platform"),
    [
        ({}, "win32"),
        ({}, "darwin"),
        ({"QT_QPA_PLATFORM": "offscreen"}, "linux"),
        ({"QT_QPA_PLATFORM": "vnc:size=800x600"}, "linux"),
        ({"QT_QPA_PLATFORM": "xcb;offscreen"}, "linux"),
        ({"DISPLAY": "far.example.org:0"}, "linux"),
    ],
)
def test_there_is_one(environ: dict[str, str], platform: str) -> None:
    assert screen_check.describe_missing_screen(environ, platform) == ""


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "neither DISPLAY nor WAYLAND_DISPLAY"),
        ({"QT_QPA_PLATFORM": "xcb"}, "neither DISPLAY"),
        ({"DISPLAY": ":64123"}, "the display :64123 is not responding"),
        ({"DISPLAY": "unix:64123.0"}, "is not responding"),
        ({"WAYLAND_DISPLAY": "wayland-77"}, "the display /wayland-77 is not responding"),
        (
            {"WAYLAND_DISPLAY": "left", "XDG_RUNTIME_DIR": "/nowhere", "DISPLAY": ""},
            "/nowhere/left is not responding",
        ),
        ({"WAYLAND_DISPLAY": "left", "DISPLAY": ":64123"}, "/left is not responding"),
        ({"WAYLAND_DISPLAY": "any", "QT_QPA_PLATFORM": "xcb"}, "neither DISPLAY"),
    ],
)
def test_there_is_none(environ: dict[str, str], words: str) -> None:
    assert words in screen_check.describe_missing_screen(environ, "linux")


@pytest.mark.skipif(sys.platform != "linux", reason="abstract socket names are Linux's")
def test_a_server_that_listens_is_one() -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0/tmp/.X11-unix/X64124")
        server.listen()
        assert screen_check.describe_missing_screen({"DISPLAY": ":64124.0"}, "linux") == ""


def test_wayland_is_one_where_its_socket_listens(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "wayland-1"))
        server.listen()
        runtime = {"XDG_RUNTIME_DIR": str(tmp_path)}
        assert (
            screen_check.describe_missing_screen(
                {"WAYLAND_DISPLAY": "wayland-1", **runtime}, "linux"
            )
            == ""
        )
        assert (
            screen_check.describe_missing_screen(
                {"WAYLAND_DISPLAY": str(tmp_path / "wayland-1")}, "linux"
            )
            == ""
        )
        assert (
            screen_check.describe_missing_screen(
                {"WAYLAND_DISPLAY": "wayland-1", "QT_QPA_PLATFORM": "wayland", **runtime}, "linux"
            )
            == ""
        )
