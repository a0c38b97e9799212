"""An S3-compatible store as an engine. Objects are only ever created and deleted, never changed, so no two machines disturb each other.

    SPACE/index/ID   the names of the rows of one put, with the keys of small ones
    SPACE/pack/ID    the bodies of its small rows, one after the other
    SPACE/row/NAME   a large row, whole; put-if-absent by `If-None-Match`
    SPACE/gone/NAME  a tombstone
    SPACE/uses/ID    what a machine uses; SPACE/quota; SPACE/clock/ID: what time it is there

IDs begin with the store's time, never a machine's own, so a listing from the last known ID on has everything that is new.
To forget a small row, its pack is written again without it. The index is in memory: about 200 bytes for a row.
"""

import hashlib
import logging
import math
import re
import secrets
import struct
import threading
import time as clock
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from helix_desktop import errors
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.shared import row_store
from helix_desktop.store.shared.known_leases import seconds_since_start_of_computer
from helix_desktop.store.shared.row_encryption import INSTALL
from helix_desktop.store.shared.row_store import ROW_KEY_BYTES, RowUsage, Tombstone, is_private_host

if TYPE_CHECKING:
    from obstore.store import S3Store

log = logging.getLogger(__name__)
VERSION = 1
LARGE_ROW_BYTES = 64 << 10  # In bytes. A row of at least this size is stored as a separate object.
_CLOCKS_APART_SECONDS = 60.0
LATEST_PUT_MS = 900_000  # The longest time between a pack's ID and its index.
_INDEX_HEAD = b"helix-index-%d\n"
# A row's name, its offset and length in the pack, and its key.
_ROW_PLACE = struct.Struct(">32sQQ32s")
_CHECKSUM_BYTES = 32
_OWN_OBJECT = (1 << 64) - 1  # Used as the offset of rows that are stored as separate objects.
_NOTHING_LOST = "Nothing was lost."
_SIGNS_OF_FULL_STORE = ("code: 507", "QuotaExceeded", "XMinioStorageFull", "InsufficientStorage")
_PACK_ID = re.compile("[0-9a-f]{13,64}")  # The time of the put, and random digits.
_HEX_NAME = re.compile("(?:[0-9a-f]{2})+")
_MOST_PACK_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class RowPlace:
    """A row's place: a part of a pack, or an object of its own (`offset` is `_OWN_OBJECT`)."""

    pack: str
    offset: int
    length: int
    key: bytes

    @property
    def is_own_object(self) -> bool:
        return self.offset == _OWN_OBJECT

    @property
    def is_possible(self) -> bool:
        """Whether a machine of ours would have written it. Others may write to a bucket, too."""
        is_in_pack = self.offset < _MOST_PACK_BYTES and self.length < LARGE_ROW_BYTES
        return self.is_own_object or is_in_pack


class S3RowStore:
    """row_store.RowStore in a bucket. `login`: "key:secret", used if the environment has none."""

    def __init__(self, url: str, space: bytes, *, login: str = "") -> None:
        """Prepare to use a workspace's rows, those of `space`. Nothing is sent yet."""
        prefix, self._store = _open_bucket(url, login)
        self._space_folder = space.hex()
        if prefix:
            self._space_folder = f"{prefix}/{space.hex()}"
        digest_of_login = hashlib.sha256(login.encode()).hexdigest()
        self.server = f"{url} {digest_of_login}"
        self._lock = threading.RLock()
        self._places: dict[bytes, RowPlace] = {}
        self._names_by_pack: dict[str, frozenset[bytes]] = {}  # By pack: the names of its rows.
        self._forgotten_names: frozenset[bytes] = frozenset()
        self._list_from_pack = ""
        # How many milliseconds the store's clock was ahead when it was last asked.
        self._store_ahead_ms = 0.0
        # How far the two clocks of this computer were apart then; it was not asked yet.
        self._clock_difference = math.inf

    def store_rows(self, rows: Mapping[bytes, bytes]) -> None:
        """Store the rows that are new, together as one pack, unless they were forgotten or
        would exceed the quota.

        Tombstones, which say what was forgotten, are fetched again at the end: another
        machine may have written one after the first look, and it could not know this pack.
        """
        if not rows:
            return
        with self._lock:
            self._fetch_new_packs()
            self._fetch_forgotten_names()
            stored_or_gone = self._places.keys() | self._forgotten_names
            new_rows = {name: row for name, row in rows.items() if name not in stored_or_gone}
            if not new_rows:
                return

            new_bytes = sum(len(row) for row in new_rows.values())
            usage = self.fetch_row_usage()
            if usage.quota and usage.bytes + new_bytes > usage.quota:
                raise row_store.quota_reached_error(usage.quota)

            pack = self._create_pack(new_rows)
            self._fetch_forgotten_names()
            # Meanwhile, another machine may have forgotten rows of this pack.
            if self._forgotten_names.intersection(new_rows):
                self._rewrite_pack(pack, self._forgotten_names)

    def _create_pack(self, rows: Mapping[bytes, bytes]) -> str:
        """Write the rows, and return the id of their pack: one object with the small rows one
        after the other, one object for each large row, and an index that says where each is.

        The index comes last, because only with it do others see the pack.
        """
        pack_id = self._new_pack_id()
        pack_body = bytearray()
        pack_index = bytearray()
        for name, row in rows.items():
            if len(row) >= LARGE_ROW_BYTES:
                self._call_object_store("put", f"row/{name.hex()}", bytes(row), mode="create")
                pack_index += _pack_place_of_large_row(name, len(row))
                continue
            row_key = row[:ROW_KEY_BYTES]
            content = row[ROW_KEY_BYTES:]
            offset = len(pack_body)
            pack_index += _ROW_PLACE.pack(name, offset, len(content), row_key)
            pack_body += content
        if pack_body:
            self._call_object_store("put", f"pack/{pack_id}", bytes(pack_body), mode="create")
        self._create_index(pack_id, bytes(pack_index))
        return pack_id

    def _create_index(self, pack: str, places: bytes) -> None:
        index = _with_checksum(_INDEX_HEAD % VERSION + places)
        self._call_object_store("put", f"index/{pack}", index, mode="create")
        self._add_pack_index(pack, index)

    def fetch_rows(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Return those of the rows that the store has. What was forgotten is not returned, even
        if it is still in a pack.
        """
        with self._lock:
            if any(name not in self._places for name in names):
                self._fetch_new_packs()
            if names:
                self._fetch_forgotten_names()
            places = self._places_of(set(names) - self._forgotten_names)
        rows = self._fetch_rows_at(places)
        if len(rows) < len(places):
            # A pack was rewritten during the read, so its rows are in another one now.
            with self._lock:
                self._fetch_new_packs(anew=True)
                missing_places = self._places_of(places.keys() - rows.keys())
            rows.update(self._fetch_rows_at(missing_places))
        return rows

    def _places_of(self, names: Collection[bytes]) -> dict[bytes, RowPlace]:
        return {name: self._places[name] for name in names if name in self._places}

    def _fetch_rows_at(self, places: Mapping[bytes, RowPlace]) -> dict[bytes, bytes]:
        """Fetch rows from their places, those in one pack with one request. Rows that are no
        longer there are left out.
        """
        rows: dict[bytes, bytes] = {}
        names_by_pack: dict[str, list[bytes]] = {}
        for name, place in places.items():
            if not place.is_own_object:
                names_by_pack.setdefault(place.pack, []).append(name)
                continue
            large_row = self._call_or_none("get", f"row/{name.hex()}")
            if large_row is not None:
                rows[name] = bytes(large_row.bytes())
        for pack, names in names_by_pack.items():
            places_in_pack = {name: places[name] for name in names}
            rows.update(self._fetch_rows_in_pack(pack, places_in_pack))
        return rows

    def _fetch_rows_in_pack(
        self, pack: str, places: Mapping[bytes, RowPlace]
    ) -> dict[bytes, bytes]:
        """Fetch these rows of one pack, or none if the pack is gone."""
        starts = [place.offset for place in places.values()]
        lengths = [place.length for place in places.values()]
        contents = self._call_or_none("get_ranges", f"pack/{pack}", starts=starts, lengths=lengths)
        if contents is None:
            return {}
        rows = {}
        for (name, place), content in zip(places.items(), contents, strict=True):
            rows[name] = place.key + bytes(content)
        return rows

    def find_missing_rows(self, names: Collection[bytes]) -> frozenset[bytes]:
        if not names:
            return frozenset()
        with self._lock:
            self._fetch_new_packs()
            self._fetch_forgotten_names()
            return frozenset(names) - self._places.keys() - self._forgotten_names

    def remove_rows(self, names: Collection[bytes]) -> None:
        with self._lock:
            self._fetch_new_packs(anew=True)
            self._remove_from_packs(frozenset(names))

    def forget_rows(self, tombs: Sequence[Tombstone]) -> None:
        """Destroy rows for good. A tombstone for each says so first, so that other machines no
        longer put or return them; then they are removed from the packs.
        """
        with self._lock:
            for tomb in tombs:
                self._call_object_store(
                    "put", f"gone/{tomb.name.hex()}", tomb.sealed_digest or b"-", mode="create"
                )
            names = frozenset(tomb.name for tomb in tombs)
            for _ in range(5):  # Another machine may write one of these rows again meanwhile.
                self._fetch_new_packs(anew=True)
                if not names.intersection(self._places):
                    return
                self._remove_from_packs(names)

    def _remove_from_packs(self, names: frozenset[bytes]) -> None:
        for pack in {place.pack for place in self._places_of(names).values()}:
            self._rewrite_pack(pack, names)

    def _rewrite_pack(self, pack: str, without: frozenset[bytes]) -> None:
        """Write the new pack before removing the old one, so that remaining rows are
        always readable.
        """
        names = self._names_by_pack.get(pack, frozenset())
        new_packs = self._copy_rows_to_new_packs(names - without)
        object_paths = [f"index/{pack}", f"pack/{pack}"]
        for name in names & without:
            if self._places[name].is_own_object:
                object_paths.append(f"row/{name.hex()}")
        for path in object_paths:
            self._call_or_none("delete", path)
        self._forget_known_pack(pack)
        self._fetch_forgotten_names()
        # Another machine may have forgotten rows of the old pack meanwhile.
        for new_pack in new_packs:
            if self._forgotten_names & self._names_by_pack.get(new_pack, frozenset()):
                self._rewrite_pack(new_pack, self._forgotten_names)

    def _copy_rows_to_new_packs(self, names: Collection[bytes]) -> list[str]:
        """Write the small rows again, and list the large ones again. Return the new packs."""
        small_rows: dict[bytes, RowPlace] = {}
        index_of_large = b""
        for name in names:
            place = self._places[name]
            if place.is_own_object:
                index_of_large += _pack_place_of_large_row(name, place.length)
            else:
                small_rows[name] = place
        new_packs = []
        rows = self._fetch_rows_at(small_rows)
        if rows:
            new_packs.append(self._create_pack(rows))
        if index_of_large:
            pack = self._new_pack_id()
            self._create_index(pack, index_of_large)
            new_packs.append(pack)
        return new_packs

    def fetch_tombstones(self, after: int) -> tuple[Sequence[Tombstone], int]:
        """Return all tombstones each time: they are few, and machines have no common order."""
        with self._lock:
            self._fetch_forgotten_names()
            names = [name.hex() for name in sorted(self._forgotten_names)]
        # Tombstones are never removed, so an equal number means that there is nothing new.
        if len(names) == after:
            return [], len(names)

        tombstones = []
        for name, content in self._get_objects("gone", names).items():
            sealed_digest = content
            if content == b"-":  # Objects cannot be empty.
                sealed_digest = b""
            tombstones.append(Tombstone(name, sealed_digest))
        return tombstones, len(names)

    def publish_used_rows(self, machine: bytes, encrypted: bytes) -> None:
        if encrypted:
            self._call_object_store("put", f"uses/{machine.hex()}", encrypted)
        else:
            self._call_or_none("delete", f"uses/{machine.hex()}")

    def fetch_published_uses(self) -> Mapping[bytes, bytes]:
        return self._get_objects("uses", self._list_hex_names("uses"))

    def _get_objects(self, folder: str, names: Iterable[str]) -> dict[bytes, bytes]:
        """Return the objects that exist, by name."""
        contents = {}
        for name in names:
            response = self._call_or_none("get", f"{folder}/{name}")
            if response is not None:
                contents[bytes.fromhex(name)] = bytes(response.bytes())
        return contents

    def list_old_rows(
        self, age_seconds: float, after: bytes = b"", limit: int = 10_000
    ) -> Sequence[bytes]:
        """Return the names of rows after `after` that were put at least so many seconds ago."""
        with self._lock:
            self._fetch_new_packs()
            oldest_kept_ms = int(self._store_time_ms() - age_seconds * 1000)
            old_names = []
            for name, place in self._places.items():
                # A pack's ID begins with the time at which it was put.
                put_ms = int(place.pack[:12], 16)
                if name > after and put_ms < oldest_kept_ms:
                    old_names.append(name)
            return sorted(old_names)[:limit]

    def fetch_row_usage(self) -> RowUsage:
        with self._lock:
            self._fetch_new_packs()
            size = 0
            for place in self._places.values():
                size += place.length
                if not place.is_own_object:
                    size += ROW_KEY_BYTES
            return RowUsage(len(self._places), size, self._read_quota())

    def _read_quota(self) -> int:
        """Return how many bytes the store may have, or 0 without a limit."""
        response = self._call_or_none("get", "quota")
        if response is None:
            return 0
        digits = bytes(response.bytes())
        # Whoever may write to the bucket may write anything here.
        is_number = digits.isdigit() and len(digits) < 20
        if not is_number:
            return 0
        return int(digits)

    def set_quota(self, quota: int) -> None:
        self._call_object_store("put", "quota", str(quota).encode())

    def describe_server(self) -> str:
        with self._lock:
            self._fetch_new_packs()
        return "an S3-compatible store (content only: conversations need PostgreSQL)"

    def describe_remaining_copies(self) -> Sequence[str]:
        return (
            "If the bucket keeps old versions of objects, they contain the encrypted text until they expire.",
            "Copies and backups of the bucket contain it, and anyone who also has the workspace's key can read it there.",
        )

    def close(self) -> None:
        """Do nothing: connections end with the store."""

    # --- The index of all packs

    def _fetch_new_packs(self, *, anew: bool = False) -> None:
        """Read packs that others put since the last time. `anew`: also notice removed packs."""
        listed_at_ms = self._store_time_ms()
        list_from = self._list_from_pack
        if anew:
            list_from = ""
        names = self._list_object_names("index", after=list_from)
        pack_ids = {name for name in names if _PACK_ID.fullmatch(name)}

        for pack in pack_ids - self._names_by_pack.keys():
            index = self._call_or_none("get", f"index/{pack}")
            if index is not None:
                self._add_pack_index(pack, bytes(index.bytes()))
        if anew:
            for pack in self._names_by_pack.keys() - pack_ids:
                self._forget_known_pack(pack)

        # The next listing begins a little earlier, since a put may take so long.
        list_from_ms = max(0, int(listed_at_ms) - LATEST_PUT_MS)
        self._list_from_pack = f"{list_from_ms:012x}"

    def _add_pack_index(self, pack: str, index: bytes) -> None:
        """Add a pack's index. A damaged one counts as empty, and machines send its rows again."""
        index_without_checksum = index[:-_CHECKSUM_BYTES]
        head, _, rows = index_without_checksum.partition(b"\n")
        version = head.rpartition(b"-")[2]
        is_whole = _with_checksum(index_without_checksum) == index and version.isdigit()
        if is_whole and int(version[:9]) > VERSION:
            raise errors.WrittenByNewerVersion(
                "The shared store contains data from a newer version of Helix Desktop.",
                remedy=f"Update Helix Desktop. {_NOTHING_LOST} Nothing was changed.",
            )
        if not is_whole or len(rows) % _ROW_PLACE.size:
            log.info("an index of the shared store is damaged")
            self._names_by_pack[pack] = frozenset()
            return
        places = {}
        for name, start, length, key in _ROW_PLACE.iter_unpack(rows):
            place = RowPlace(pack, start, length, key)
            if place.is_possible:
                places[name] = place
        self._names_by_pack[pack] = frozenset(places)
        self._places |= places

    def _forget_known_pack(self, pack: str) -> None:
        for name in self._names_by_pack.pop(pack, frozenset()):
            place = self._places.get(name)
            if place is not None and place.pack == pack:
                del self._places[name]

    def _fetch_forgotten_names(self) -> None:
        self._forgotten_names = frozenset(map(bytes.fromhex, self._list_hex_names("gone")))

    def _list_hex_names(self, folder: str) -> list[str]:
        """Leave out what no machine of ours has put there."""
        return [name for name in self._list_object_names(folder) if _HEX_NAME.fullmatch(name)]

    def _new_pack_id(self) -> str:
        time_ms = int(self._store_time_ms())
        random_digits = secrets.token_hex(10)
        return f"{time_ms:012x}{random_digits}"

    def _store_time_ms(self) -> float:
        """Return the store's time in milliseconds, by a monotonic clock, and asked
        again after clock jumps here.
        """
        clock_difference = clock.time() - seconds_since_start_of_computer()
        if abs(clock_difference - self._clock_difference) > _CLOCKS_APART_SECONDS:
            path = f"clock/{secrets.token_hex(8)}"
            self._call_object_store("put", path, b"-")
            # The store notes when it got an object, so a new object tells its time.
            written_at = self._call_object_store("head", path)["last_modified"]
            store_time_ms = written_at.timestamp() * 1000
            self._call_or_none("delete", path)
            self._store_ahead_ms = store_time_ms - seconds_since_start_of_computer() * 1000
            self._clock_difference = clock_difference
        return seconds_since_start_of_computer() * 1000 + self._store_ahead_ms

    def _list_object_names(self, folder: str, after: str = "") -> list[str]:
        """Return the names of a folder's objects, in order, or only those after `after`."""
        import obstore
        from obstore.exceptions import BaseError

        prefix = f"{self._space_folder}/{folder}/"
        offset: str | None = None
        if after:
            offset = f"{prefix}{after}"
        names: list[str] = []
        try:
            for page in obstore.list(self._store, prefix, offset=offset, chunk_size=1000):
                for object_meta in page:
                    path = object_meta["path"]
                    names.append(path.rpartition("/")[2])
        except (BaseError, OSError) as error:
            raise convert_s3_error(error) from error
        return names

    def _call_or_none(self, call: str, path: str, **options: Any) -> Any:
        """Call the store. Returns None if the object does not exist."""
        try:
            return self._call_object_store(call, path, **options)
        except errors.NotFound:
            return None

    def _call_object_store(self, call: str, path: str, *content: bytes, **options: Any) -> Any:
        """Call a function of obstore on an object of this workspace. That an object exists
        already is no error: objects are never changed, so it is the same one.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            return getattr(obstore, call)(
                self._store, f"{self._space_folder}/{path}", *content, **options
            )
        except AlreadyExistsError:
            return None
        except (BaseError, OSError) as error:
            raise convert_s3_error(error) from error


def _pack_place_of_large_row(name: bytes, length: int) -> bytes:
    """Return the line of an index for a row that is an object of its own. It contains its key."""
    no_key = bytes(ROW_KEY_BYTES)
    return _ROW_PLACE.pack(name, _OWN_OBJECT, length, no_key)


def _with_checksum(index: bytes) -> bytes:
    return index + hashlib.sha256(index).digest()


def _open_bucket(url: str, login: str) -> "tuple[str, S3Store]":
    """Return the folder in the bucket and the opened bucket that an `s3://` address names.

    Nothing is sent yet. An address without encryption is refused, except in one's own
    network. obstore is imported only here, as only sharing over S3 needs it.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError as error:
        raise errors.NotFound(
            "Sharing over S3 requires the Python package obstore, which is not installed.",
            remedy=INSTALL,
        ) from error
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    endpoint = options.get("endpoint", "")
    _check_encrypted_or_private(endpoint)
    config: Any = _bucket_config(options, login)
    client_options: Any = {
        "timeout": "60s",
        "connect_timeout": "5s",
        "allow_http": endpoint.startswith("http://"),
    }
    retry_options: Any = {"max_retries": 2}
    try:
        store = S3Store(
            parts.netloc, config=config, client_options=client_options, retry_config=retry_options
        )
    except (BaseError, ValueError) as error:
        raise errors.InvalidInput(
            "This is not the address of an S3-compatible store.",
            remedy="For example: s3://bucket/folder?endpoint=https://host.",
        ) from error
    return parts.path.strip("/"), store


def _check_encrypted_or_private(endpoint: str) -> None:
    """Refuse an address without encryption that leads out of the user's own network."""
    host = urlsplit(endpoint).hostname or ""
    if endpoint.startswith("http://") and "." in host and not is_private_host(host):
        raise errors.InvalidInput(
            f"The shared store at {host} is outside your own network, and its address begins with http:// instead of https://.",
            remedy="Nothing was sent. Use an address that begins with https.",
        )


def _bucket_config(options: Mapping[str, str], login: str) -> dict[str, str]:
    """Return obstore's settings. `options`: those of the address. `login`: "key:secret"."""
    config = {"aws_conditional_put": "etag", "region": "us-east-1"}
    for name in ("endpoint", "region"):
        if options.get(name):
            config[name] = options[name]
    if login:
        access_key, _, secret = login.partition(":")
        config["access_key_id"] = access_key
        config["secret_access_key"] = secret
    return config


def convert_s3_error(error: Exception) -> errors.HelixError:
    """Return a sentence for an error: SharedStoreUnreachable if a retry may help."""
    if isinstance(error, errors.HelixError):
        return error
    text = " ".join(str(error).split())
    if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text:
        return errors.NotFound("-")
    return _convert_server_error(error, text)


def _convert_server_error(error: Exception, text: str) -> errors.HelixError:
    """Say what the server refuses and what the user can do. What is not recognised is taken
    for a server that is not responding, which is asked again later.
    """
    if isinstance(error, FileNotFoundError):
        return errors.StoreFailed("The shared store's bucket does not exist.", remedy=_NOTHING_LOST)
    # The classes of obstore are not imported here, since it may not be installed.
    error_name = type(error).__name__
    is_refused = error_name in ("PermissionDeniedError", "UnauthenticatedError")
    if is_refused or "InvalidAccessKeyId" in text:
        return errors.StoreFailed(
            "The shared store rejected the key or the secret.",
            remedy="Nothing was lost. Check the user name and password in the address, then share or join the workspace again.",
        )
    if any(sign in text for sign in _SIGNS_OF_FULL_STORE):
        return errors.StoreFull(
            "The shared store is full.",
            remedy=f"{_NOTHING_LOST} Free up space in the shared store.",
        )
    if "InvalidCertificate" in text or "invalid peer certificate" in text:
        return errors.StoreFailed(
            "The shared store's certificate was rejected.",
            remedy="Nothing was sent, and nothing was lost. Check the host name.",
        )
    return errors.SharedStoreUnreachable(
        f"The shared store is not responding: {text[:200]}",
        remedy="You can keep working. Your changes are stored on this computer until the shared store responds.",
    )
