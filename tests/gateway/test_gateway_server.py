"""The gateway's process: what it hears of registrations, when it tidies up, and how it
is asked to end.
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helix_desktop import concurrency, glibc_memory, program_folders
from helix_desktop.gateway import gateway_server
from helix_desktop.gateway.gateway_app import GatewayApp
from helix_desktop.gateway.registration import GatewayRegistration, GatewayRegistrations


async def _nobody(_: str) -> Any:
    raise AssertionError


@pytest.fixture
def app() -> GatewayApp:
    return GatewayApp(GatewayRegistrations(), _nobody)  # type: ignore[arg-type]


def test_the_last_line_of_the_resident_says_who_may_come_in_and_its_end_ends_the_gateway(
    app: GatewayApp,
) -> None:
    known, server = (
        GatewayRegistrations(GatewayRegistration("first")),
        gateway_server._build_http_server(app),
    )
    made = [
        GatewayRegistration("one", "http://own.example", folds=False),
        GatewayRegistration("two", key="secret"),
    ]
    lines = [
        [{**one.as_json_without_key(), "key": one.key} for one in some] for some in (made, made[1:])
    ]
    assert not server.should_exit
    gateway_server._follow_registrations(
        io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in lines)), known, server
    )
    assert server.should_exit
    assert [known.find_by_token(token) is not None for token in ("first", "one", "two")] == [
        False,
        False,
        True,
    ]
    one, two = gateway_server.parse_registrations(json.dumps(lines[0]).encode())
    assert (one.token, one.upstream, one.folds, two.key) == (
        "one",
        "http://own.example",
        False,
        "secret",
    )


@pytest.fixture
def _own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_own_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order(app: GatewayApp, number: signal.Signals) -> None:
    server = gateway_server._build_http_server(app)
    gateway_server._stop_in_order_on_signals(server)
    assert not server.should_exit
    os.kill(os.getpid(), number)
    assert server.should_exit


@pytest.mark.parametrize("idle", [True, False])
async def test_all_objects_are_looked_through_when_no_agent_asks_for_anything(
    app: GatewayApp, monkeypatch: pytest.MonkeyPatch, idle: bool
) -> None:
    collected: list[int] = []
    monkeypatch.setattr(gateway_server, "IDLE_SECONDS", 0.0 if idle else 0.001)
    monkeypatch.setattr(gateway_server, "COLLECTION_PAUSE_SECONDS", 1e6)
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    monkeypatch.setattr(glibc_memory, "return_free_pages", lambda: collected.append(2))
    app._running_requests = 0 if idle else 1
    owned = concurrency.OwnedTasks("gateway")
    owned.spawn_task(gateway_server._collect_garbage_when_idle(app), name="collect")
    for _ in range(50):
        await asyncio.sleep(0.001)
    await owned.aclose(limit=1)
    assert collected == ([1, 2] if idle else []), (
        "once in a while, and what became free is given back"
    )
    assert gc.isenabled()


def test_a_line_that_the_gateway_has_said_better_is_not_logged() -> None:
    def logged(words: str) -> bool:
        return gateway_server._should_log_record(
            logging.LogRecord("uvicorn.error", 40, "", 0, words, (), None)
        )

    assert not logged("ASGI callable returned without completing response.")
    assert logged("Something else.")


def test_the_token_of_a_home_is_made_once_for_this_user_alone(tmp_path: Path) -> None:
    where = program_folders.find_program_folders(tmp_path)
    token = gateway_server.read_or_create_token(where)
    assert gateway_server.read_or_create_token(where) == token
    assert len(token) > 20
    file = where.run / gateway_server.TOKEN_FILE
    assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0
    file.write_text("")
    assert gateway_server.read_or_create_token(where) not in ("", token)
