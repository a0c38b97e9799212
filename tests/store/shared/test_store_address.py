from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.store.shared import store_address
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.row_store import RowStore
from tests.store.shared.homes import machine

POSTGRES = "postgresql://me:secret@host/helix"
S3 = "s3://bucket/folder?endpoint=https://host"


def test_the_secret_is_taken_out_of_what_is_shown() -> None:
    where = store_address.parse_store_address(POSTGRES)
    assert "secret" in where.login
    assert "secret" not in where.url


@pytest.mark.parametrize("text", ["", "helix", "http://host/a", "postgresql://"])
def test_what_is_no_address_is_said(text: str) -> None:
    with pytest.raises(InvalidInput, match="not the address of a shared store"):
        store_address.parse_store_address(text)


@pytest.mark.parametrize(("text", "reason"), [(POSTGRES, "psycopg"), (S3, "no longer be shared over S3")])
async def test_without_an_engine_it_says_what_to_do_and_work_goes_on(
    text: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] == "psycopg":
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    seal = RowCipher(bytes(32))

    def engine() -> RowStore:
        return store_address.open_row_store(store_address.parse_store_address(text), seal.space)

    async with machine(tmp_path, engine, seal) as here:
        stored = await here.cache.store_content(b"work goes on", EntryOrigin("shell"))
        with pytest.raises(NotFound, match=reason) as said:
            await here.link.sync_content_now()
        assert ("pip install 'helix-desktop[shared]'" in said.value.remedy) is (text == POSTGRES)
        assert await here.cache.read_content(stored.digest) == b"work goes on"
        status = await here.link.link_status()
        assert status.waiting == 1
        assert reason in status.trouble


def test_without_the_cipher_nothing_is_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    with pytest.raises(NotFound, match="cryptography"):
        RowCipher(bytes(32))
