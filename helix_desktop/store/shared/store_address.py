"""Where a shared store is: an address without its secret, and the engine behind it.

    postgresql://user@host/database?sslmode=verify-full

The password is taken out of the address and belongs into the keyring; without it an engine's own ways hold (PGPASSFILE and the like).
"""

from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.shared.row_store import RowStore

_SCHEMES = ("postgresql", "postgres", "s3")  # s3: of workspaces that an earlier version shared
_SECRET = ("password", "sslpassword", "passfile", "secret", "access_key_id", "secret_access_key")


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """`url` can be shown and written down; `login` cannot: it is the password."""

    url: str
    login: str = ""


def parse_store_address(text: str) -> StoreAddress:
    """What somebody wrote; InvalidInput where no engine has such an address."""
    try:
        parts = urlsplit(text.strip())
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise _not_an_address_error() from error
    if parts.scheme not in _SCHEMES or not parts.netloc or parts.fragment:
        raise _not_an_address_error()
    if any(name.lower() in _SECRET for name, _ in options):
        raise InvalidInput(
            "The options in the address of the shared store contain a secret.",
            remedy="Put the password before the host, as in postgresql://user:password@host/database.",
        )
    who, at, host = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    netloc = f"{user}{at}{host}" if user else host
    return StoreAddress(urlunsplit((parts.scheme, netloc, parts.path, parts.query, "")), unquote(password))


def _not_an_address_error() -> InvalidInput:
    return InvalidInput(
        "This is not the address of a shared store.", remedy="For example: postgresql://user@host/database."
    )


def open_row_store(address: StoreAddress, space: bytes) -> RowStore:
    """The engine there. Nothing is asked of it yet; NotFound where there is none, or the extra is not installed."""
    if address.url.startswith("s3:"):
        raise NotFound(
            "Workspaces can no longer be shared over S3.",
            remedy="What is on this computer stays here. Share the workspace through PostgreSQL instead.",
        )
    from helix_desktop.store.shared.postgres_rows import PostgresRowStore

    return PostgresRowStore(address.url, space, password=address.login)
