from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.store.shared import store_address
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.row_store import RowStore
from helix_desktop.store.shared.s3_rows import S3RowStore
from tests.store.shared.homes import machine

POSTGRES = "postgresql://me:secret@host/helix"
S3 = "s3://key:secret@bucket/folder?endpoint=https://host"


@pytest.mark.parametrize("text", [POSTGRES, S3])
def test_the_secret_is_taken_out_of_what_is_shown(text: str) -> None:
    where = store_address.parse_store_address(text)
    assert "secret" in where.login
    assert "secret" not in where.url


@pytest.mark.parametrize(
    "text", ["", "helix", "http://host/a", "postgresql://", "s3://key:secret@/folder"]
)
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
        assert "pipx install --force '.[shared]'" in said.value.remedy
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


@pytest.mark.parametrize(
    ("text", "url", "login"),
    [
        (f"  {POSTGRES}\n", "postgresql://me@host/helix", "secret"),
        ("postgres://host/helix", "postgres://host/helix", ""),
        (
            "postgresql://me@host/helix?sslmode=verify-full",
            "postgresql://me@host/helix?sslmode=verify-full",
            "",
        ),
        ("postgresql://me:p%2Fw%40@host:5433/helix", "postgresql://me@host:5433/helix", "p/w@"),
        ("postgresql://:secret@host/helix", "postgresql://host/helix", "secret"),
        (S3, "s3://bucket/folder?endpoint=https%3A%2F%2Fhost", "key:secret"),
        ("s3://k%2Fy:s%3Act@bucket", "s3://bucket", "k/y:s:ct"),
        ("s3://key@bucket?region=", "s3://bucket?region=", "key:"),
        ("s3://bucket", "s3://bucket", ""),
    ],
)
def test_an_address_is_what_can_be_shown_and_its_login(text: str, url: str, login: str) -> None:
    assert store_address.parse_store_address(text) == store_address.StoreAddress(url, login)


@pytest.mark.parametrize(
    "name", ["password", "PassFile", "sslpassword", "secret", "access_key_id", "secret_access_key"]
)
@pytest.mark.parametrize("scheme", ["postgresql", "s3"])
def test_a_secret_among_the_options_is_refused_and_not_repeated(name: str, scheme: str) -> None:
    with pytest.raises(
        InvalidInput, match="options in the address of the shared store contain a secret"
    ) as refused:
        store_address.parse_store_address(f"{scheme}://host/a?x=1&{name}=k3pT")
    assert "k3pT" not in str(refused.value) + refused.value.remedy
    with pytest.raises(InvalidInput, match="contain a secret"):
        store_address.parse_store_address(f"{scheme}://host/a?{name}")


@pytest.mark.parametrize(
    "text", ["postgresql://me:pa/ss@host/a", "s3://bucket/a@b", "postgresql://host/a?b=c@d"]
)
def test_a_sign_that_ends_a_login_stands_nowhere_else(text: str) -> None:
    with pytest.raises(InvalidInput, match="contains an @ after the host name"):
        store_address.parse_store_address(text)


@pytest.mark.parametrize(
    "text", ["postgresql://host/a#part", "s3://bucket#part", "http://[::1/a", "mysql://host/a"]
)
def test_what_begins_like_an_address_and_is_none_is_said(text: str) -> None:
    with pytest.raises(InvalidInput, match="not the address of a shared store"):
        store_address.parse_store_address(text)


def test_a_bucket_holds_content_alone_and_a_database_conversations_too() -> None:
    assert (
        store_address.holds_conversations(store_address.parse_store_address(POSTGRES).url) is True
    )
    assert store_address.holds_conversations(store_address.parse_store_address(S3).url) is False
    for text, kind in ((POSTGRES, PostgresRowStore), (S3, S3RowStore)):
        opened = store_address.open_row_store(store_address.parse_store_address(text), b"s" * 16)
        assert isinstance(opened, kind)
        opened.close()
