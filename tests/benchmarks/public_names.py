"""The names that every model knows, for bills that are compared: no agent recalls them.

They are of public packages and of the standard libraries (`known_names.txt` says which).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from helix_desktop.replay.simulated_recalls import PublicNames


@cache
def read_public_names() -> PublicNames:
    lines = Path(__file__).with_name("known_names.txt").read_text("utf-8").splitlines()
    return PublicNames(line for line in lines if not line.startswith("#"))
