"""Encrypts rows and their names, so that whoever runs the engine learns nothing.

All keys are derived from the workspace's one key, by HMAC-SHA256 with different labels.
A name is a keyed digest, so equal contents of two workspaces have different names. A
row begins with `ROW_KEY_BYTES` random bytes. Its key is derived from them and from the
workspace's key, so destroying them destroys it. AES-256-GCM uses each key once, with
the name as associated data: a row under another name cannot be decrypted. Contents are
padded to a power of two, at least 512 bytes, above 256 KiB to a multiple of that.
"""

import base64
import hashlib
import hmac
import secrets

from helix_desktop.errors import CacheCorrupt, InvalidInput, NotFound
from helix_desktop.store.shared.row_store import ROW_KEY_BYTES

SMALLEST = 512
STEP = 256 << 10
_MARK = "helix1-"
_NONCE = bytes(12)  # A constant, which is safe because each key encrypts only one row.
_TAG = 16
_LENGTH = 8
INSTALL = (
    "Install the program again from its source folder, with: pipx install --force '.[shared]'."
)


def new_workspace_key() -> bytes:
    return secrets.token_bytes(32)


def format_key_line(key: bytes) -> str:
    """Return the key as text to copy, with four check digits."""
    text = base64.b32encode(key).decode().rstrip("=").lower()
    return f"{_MARK}{text}{hashlib.sha256(key).hexdigest()[:4]}"


def parse_key_line(text: str) -> bytes:
    """Parse a copied key. InvalidInput says what is wrong with it."""
    text = "".join(text.split()).lower()
    try:
        body = text.removeprefix(_MARK)
        key = base64.b32decode(body[:-4].upper() + "=" * (-len(body[:-4]) % 8))
    except ValueError:
        key = b""
    if (
        not text.startswith(_MARK)
        or len(key) != 32
        or hashlib.sha256(key).hexdigest()[:4] != text[-4:]
    ):
        raise InvalidInput(
            "This is not the key of a shared workspace, or part of the key is missing.",
            remedy="On a computer that shares the workspace, copy the whole key again.",
        )
    return key


class RowCipher:
    """The secrets that a workspace's machines share. `space`: the workspace's name in
    the engine.
    """

    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers import aead
        except ImportError as error:
            raise NotFound(
                "Sharing requires the Python package cryptography, which is not installed.",
                remedy=INSTALL,
            ) from error
        self._cipher = aead.AESGCM
        self._names = hmac.digest(key, b"helix names 1", "sha256")
        self._rows = hmac.digest(key, b"helix rows 1", "sha256")
        self.space = hmac.digest(key, b"helix space 1", "sha256")[:16]

    def keyed_row_name(self, kind: str, content: bytes) -> bytes:
        """Return a row's name, the same for equal content only within this workspace."""
        return hmac.digest(self._names, kind.encode() + b"\0" + content, "sha256")

    def encrypt_row(self, name: bytes, content: bytes) -> bytes:
        salt = secrets.token_bytes(ROW_KEY_BYTES)
        filled = len(content).to_bytes(_LENGTH, "big") + content
        filled += bytes(padded_size(len(filled) + _TAG) - _TAG - len(filled))
        return salt + self._cipher(self._derive_row_key(name, salt)).encrypt(_NONCE, filled, name)

    def decrypt_row(self, name: bytes, encrypted: bytes) -> bytes:
        """Decrypt a row. Raises CacheCorrupt if any byte differs from what was
        encrypted under this name.
        """
        from cryptography.exceptions import InvalidTag

        salt = encrypted[:ROW_KEY_BYTES]
        body = encrypted[ROW_KEY_BYTES:]
        try:
            filled = self._cipher(self._derive_row_key(name, salt)).decrypt(_NONCE, body, name)
        except (InvalidTag, ValueError) as error:
            raise CacheCorrupt(
                "Content from the shared store failed its authenticity check.",
                remedy="The content was discarded. A computer that has an intact copy can send the content to the shared store again.",
            ) from error
        return filled[_LENGTH : _LENGTH + int.from_bytes(filled[:_LENGTH], "big")]

    def _derive_row_key(self, name: bytes, salt: bytes) -> bytes:
        return hmac.digest(self._rows, name + salt, "sha256")


def padded_size(size: int) -> int:
    """Return the size of the padded content that an engine sees for `size` bytes."""
    return max(SMALLEST, 1 << (size - 1).bit_length()) if size <= STEP else -(-size // STEP) * STEP
