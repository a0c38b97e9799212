"""A command as it is given in a terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helix_desktop import cli

Ran = tuple[int, str, str]
Helix = Callable[..., Ran]
NOT_CONFIRMED = "Nothing was changed. To confirm, add --yes.\n"


@pytest.fixture
def helix(capfd: pytest.CaptureFixture[str]) -> Helix:
    def run(*arguments: object) -> Ran:
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as ended:  # The command line cannot be read.
            code = int(ended.code or 0)
        return (code, *capfd.readouterr())

    return run
