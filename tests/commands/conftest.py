"""A command as it is given in a terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helix_desktop import cli

Ran = tuple[int, str, str]
Helix = Callable[..., Ran]


@pytest.fixture
def helix(capfd: pytest.CaptureFixture[str]) -> Helix:
    def run(*arguments: object) -> Ran:
        code = cli.main([str(argument) for argument in arguments])
        return (code, *capfd.readouterr())

    return run
