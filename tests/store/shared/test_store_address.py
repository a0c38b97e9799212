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

POSTGRES, S3 = "postgresql://me:secret@host/helix", "s3://key:secret@bucket/folder?endpoint=https://host"


@pytest.mark.parametrize("text", [POSTGRES, S3])
def test_the_secret_is_taken_out_of_what_is_shown(text: str) -> None:
    where = store_address.parse_store_address(text)
    assert "secret" in where.login
    assert "secret" not in where.url


@pytest.mark.parametrize("text", ["", "helix", "http://host/a", "postgresql://", "s3://key:secret@/folder"])
def test_what_is_no_address_is_said(text: str) -> None:
    with pytest.raises(InvalidInput, match="not the address of a shared store"):
        store_address.parse_store_address(text)


@pytest.mark.parametrize("password", ["k3pT/sEcr3t", "k3pT?sEcr3t", "k3pT#sEcr3t"])
def test_a_password_that_looks_like_a_path_is_refused_and_not_repeated(password: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        store_address.parse_store_address(f"postgresql://me:{password}@host/helix")
    assert "sEcr3t" not in str(refused.value) + refused.value.remedy


@pytest.mark.parametrize(("text", "package"), [(POSTGRES, "psycopg"), (S3, "obstore")])
async def test_without_the_extra_it_says_what_to_install_and_work_goes_on(
    text: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] == package:
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    seal = RowCipher(bytes(32))

    def engine() -> RowStore:
        return store_address.open_row_store(store_address.parse_store_address(text), seal.space)

    async with machine(tmp_path, engine, seal) as here:
        stored = await here.cache.store_content(b"work goes on", EntryOrigin("shell"))
        with pytest.raises(NotFound, match=package) as said:
            await here.link.sync_content_now()
        assert "pip install 'helix-desktop[shared]'" in said.value.remedy
        assert await here.cache.read_content(stored.digest) == b"work goes on"
        status = await here.link.link_status()
        assert status.waiting == 1
        assert package in status.trouble


def test_without_the_cipher_nothing_is_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    with pytest.raises(NotFound, match="cryptography"):
        RowCipher(bytes(32))
