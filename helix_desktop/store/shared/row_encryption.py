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
import math
import secrets

from helix_desktop.errors import CacheCorrupt, InvalidInput, NotFound
from helix_desktop.store.shared.row_store import ROW_KEY_BYTES

SMALLEST = 512
STEP = 256 << 10
_KEY_PREFIX = "helix1-"
_NONCE = bytes(12)  # A constant, which is safe because each key encrypts only one row.
_TAG_BYTES = 16
_LENGTH_BYTES = 8
INSTALL = (
    "Install the program again from its source folder, with: pipx install --force '.[shared]'."
)


def new_workspace_key() -> bytes:
    return secrets.token_bytes(32)


def format_key_line(key: bytes) -> str:
    """Return the key as text to copy, with four check digits."""
    text = base64.b32encode(key).decode().rstrip("=").lower()
    return f"{_KEY_PREFIX}{text}{hashlib.sha256(key).hexdigest()[:4]}"


def parse_key_line(text: str) -> bytes:
    """Parse a copied key. InvalidInput says what is wrong with it."""
    text = "".join(text.split()).lower()
    try:
        body = text.removeprefix(_KEY_PREFIX)
        key = base64.b32decode(body[:-4].upper() + "=" * (-len(body[:-4]) % 8))
    except ValueError:
        key = b""
    has_check_digits = hashlib.sha256(key).hexdigest()[:4] == text[-4:]
    if not text.startswith(_KEY_PREFIX) or len(key) != 32 or not has_check_digits:
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
        """Derive from the workspace's key one for the names of rows, one for their contents, and the
        name of the workspace in the store.
        """
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
        padded = len(content).to_bytes(_LENGTH_BYTES, "big") + content
        # Encryption adds a tag, which counts for the size that the engine sees.
        size_of_padded = padded_size(len(padded) + _TAG_BYTES) - _TAG_BYTES
        padded = padded.ljust(size_of_padded, b"\0")
        cipher = self._cipher(self._derive_row_key(name, salt))
        return salt + cipher.encrypt(_NONCE, padded, name)

    def decrypt_row(self, name: bytes, encrypted: bytes) -> bytes:
        """Decrypt a row. Raises CacheCorrupt if any byte differs from what was
        encrypted under this name.
        """
        from cryptography.exceptions import InvalidTag

        salt = encrypted[:ROW_KEY_BYTES]
        body = encrypted[ROW_KEY_BYTES:]
        try:
            cipher = self._cipher(self._derive_row_key(name, salt))
            padded = cipher.decrypt(_NONCE, body, name)
        except (InvalidTag, ValueError) as error:
            raise CacheCorrupt(
                "Content from the shared store failed its authenticity check.",
                remedy="The content was discarded. A computer that has an intact copy can send the content to the shared store again.",
            ) from error
        content_length = int.from_bytes(padded[:_LENGTH_BYTES], "big")
        return padded[_LENGTH_BYTES : _LENGTH_BYTES + content_length]

    def _derive_row_key(self, name: bytes, salt: bytes) -> bytes:
        return hmac.digest(self._rows, name + salt, "sha256")


def padded_size(size: int) -> int:
    """Return the size of the padded content that an engine sees for `size` bytes."""
    if size > STEP:
        steps = math.ceil(size / STEP)
        return steps * STEP
    next_power_of_two = 1 << (size - 1).bit_length()
    return max(SMALLEST, next_power_of_two)
