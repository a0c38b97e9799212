"""Where a shared store is: an address without its secret, and the engine behind it.

    postgresql://user@host/database?sslmode=verify-full
    s3://bucket/folder?endpoint=https://minio.example:9000&region=eu-central-1

The password, or the two keys of S3, are taken out of the address and belong into the keyring; without them an engine's own ways
hold (PGPASSFILE, AWS_ACCESS_KEY_ID and the like).
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from helix_desktop.errors import WrongUse
from helix_desktop.store.shared.engine import Engine
from helix_desktop.values import dataclass

_SECRET = ("password", "sslpassword", "passfile", "secret", "access_key_id", "secret_access_key")


@dataclass(frozen=True, slots=True)
class Address:
    """`url` can be shown and written down; `login` cannot: a password, or "key:secret" of S3."""

    url: str
    login: str = ""


def parse(text: str) -> Address:
    """What somebody wrote; WrongUse where no engine has such an address."""
    try:
        parts = urlsplit(text.strip())
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise _wrong() from error
    if parts.scheme not in ENGINES or not parts.netloc or parts.fragment:
        raise _wrong()
    if any(name.lower() in _SECRET for name, _ in options):
        raise WrongUse(
            "The options in the address of the shared store contain a secret.",
            remedy="Put the password before the host, as in postgresql://user:password@host/database.",
        )
    who, at, host = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    if parts.scheme == "s3":
        if not host:
            raise _wrong()
        login = f"{unquote(user)}:{unquote(password)}" if user else ""
        return Address(urlunsplit(("s3", host, parts.path, urlencode(options), "")), login)
    netloc = f"{user}{at}{host}" if user else host
    return Address(urlunsplit((parts.scheme, netloc, parts.path, parts.query, "")), unquote(password))


def _wrong() -> WrongUse:
    return WrongUse(
        "This is not the address of a shared store.",
        remedy="For example: postgresql://user@host/database or s3://bucket/folder?endpoint=https://host.",
    )


def holds_conversations(url: str) -> bool:
    """Whether the store at this address can have conversations, and not only content."""
    return not url.startswith("s3:")


def connect(address: Address, space: bytes) -> Engine:
    """The engine there. Nothing is asked of it yet; NotThere where the extra is not installed."""
    return ENGINES[urlsplit(address.url).scheme](address, space)


def _postgres(address: Address, space: bytes) -> Engine:
    from helix_desktop.store.shared.postgres import PostgresEngine

    return PostgresEngine(address.url, space, password=address.login)


def _s3(address: Address, space: bytes) -> Engine:
    from helix_desktop.store.shared.s3 import S3Engine

    return S3Engine(address.url, space, login=address.login)


ENGINES: dict[str, Callable[[Address, bytes], Engine]] = {"postgresql": _postgres, "postgres": _postgres, "s3": _s3}
