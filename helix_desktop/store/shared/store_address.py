"""Parses the address of a shared store, without its secret, and opens the engine behind it.

    postgresql://user@host/database?sslmode=verify-full
    s3://bucket/folder?endpoint=https://minio.example:9000&region=eu-central-1

The password, or the two keys of S3, are removed from the address and kept in the keyring. Without
them, the engine's own ways apply (PGPASSFILE, AWS_ACCESS_KEY_ID and the like).
"""

from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.shared.row_store import RowStore

_SCHEMES = ("postgresql", "postgres", "s3")
_SECRET = ("password", "sslpassword", "passfile", "secret", "access_key_id", "secret_access_key")


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """`url` can be shown and stored, but not `login`: a password, or "key:secret" for S3."""

    url: str
    login: str = ""


def parse_store_address(text: str) -> StoreAddress:
    """Parse an address. Raises InvalidInput if no store has such an address."""
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
    if "@" in parts.path or "@" in parts.query:
        raise InvalidInput(
            "The address of the shared store contains an @ after the host name.",
            remedy="Percent-encode special characters in the password: for example, write a slash as %2F.",
        )
    login, at_sign, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    if parts.scheme == "s3":
        return _build_s3_address(host, parts.path, urlencode(options), user, password)
    server = host
    if user:
        server = f"{user}{at_sign}{host}"
    url = urlunsplit((parts.scheme, server, parts.path, parts.query, ""))
    return StoreAddress(url, unquote(password))


def _build_s3_address(
    bucket: str, path: str, query: str, key_id: str, secret_key: str
) -> StoreAddress:
    """Both keys of S3 are secrets, so none of them stays in the address."""
    if not bucket:
        raise _not_an_address_error()
    keys = ""
    if key_id:
        keys = f"{unquote(key_id)}:{unquote(secret_key)}"
    return StoreAddress(urlunsplit(("s3", bucket, path, query, "")), keys)


def _not_an_address_error() -> InvalidInput:
    return InvalidInput(
        "This is not the address of a shared store.",
        remedy="For example: postgresql://user@host/database or s3://bucket/folder?endpoint=https://host.",
    )


def holds_conversations(url: str) -> bool:
    """Whether this store can have conversations as well as content."""
    return not url.startswith("s3:")


def open_row_store(address: StoreAddress, space: bytes) -> RowStore:
    """Return the store without contacting it. Raises NotFound if its extra is not installed."""
    if address.url.startswith("s3:"):
        from helix_desktop.store.shared.s3_rows import S3RowStore

        return S3RowStore(address.url, space, login=address.login)
    from helix_desktop.store.shared.postgres_rows import PostgresRowStore

    return PostgresRowStore(address.url, space, password=address.login)
