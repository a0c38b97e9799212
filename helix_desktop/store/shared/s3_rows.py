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
_HEAD = b"helix-index-%d\n"
_PLACE = struct.Struct(">32sQQ32s")  # A row's name, its offset and length in the pack, and its key.
_SUM = 32
_OWN = (1 << 64) - 1  # Used as the offset of rows that are stored as separate objects.
_SAFE = "Nothing was lost."


@dataclass(frozen=True, slots=True)
class RowPlace:
    """A row's place: a part of a pack, or an object of its own (`start` is `_OWN`)."""

    pack: str
    start: int
    length: int
    key: bytes


class S3RowStore:
    """row_store.RowStore in a bucket. `login`: "key:secret", used if the environment has none."""

    def __init__(self, url: str, space: bytes, *, login: str = "") -> None:
        self._prefix, self._store = _open_bucket(url, login)
        self.server = f"{url} {hashlib.sha256(login.encode()).hexdigest()}"
        self._base = "/".join(filter(None, (self._prefix, space.hex())))
        self._lock = threading.RLock()
        self._places: dict[bytes, RowPlace] = {}
        self._known: dict[str, frozenset[bytes]] = {}  # By pack: the names of its rows.
        self._gone: frozenset[bytes] = frozenset()
        self._looked = ""
        # How many milliseconds the store's clock is ahead, and how far the clocks here
        # were apart then.
        self._ahead, self._apart = 0.0, math.inf

    def store_rows(self, rows: Mapping[bytes, bytes]) -> None:
        if not rows:
            return
        with self._lock:
            self._fetch_new_packs()
            self._fetch_forgotten_names()
            new = {
                name: row
                for name, row in rows.items()
                if name not in self._places and name not in self._gone
            }
            if not new:
                return
            used = self.fetch_row_usage()
            if used.quota and used.bytes + sum(map(len, new.values())) > used.quota:
                raise row_store.quota_reached_error(used.quota)
            pack = self._create_pack(new)
            self._fetch_forgotten_names()
            if self._gone.intersection(
                new
            ):  # Meanwhile, another machine has forgotten rows of this pack.
                self._rewrite_pack(pack, self._gone)

    def _create_pack(self, rows: Mapping[bytes, bytes]) -> str:
        pack = self._new_pack_id()
        body = bytearray()
        index = bytearray()
        for name, row in rows.items():
            if len(row) >= LARGE_ROW_BYTES:
                self._call_object_store("put", f"row/{name.hex()}", bytes(row), mode="create")
                index += _PLACE.pack(name, _OWN, len(row), bytes(ROW_KEY_BYTES))
            else:
                index += _PLACE.pack(name, len(body), len(row) - ROW_KEY_BYTES, row[:ROW_KEY_BYTES])
                body += row[ROW_KEY_BYTES:]
        if body:
            self._call_object_store("put", f"pack/{pack}", bytes(body), mode="create")
        self._create_index(pack, bytes(index))  # Last, because the index makes a pack visible.
        return pack

    def _create_index(self, pack: str, places: bytes) -> None:
        whole = _with_checksum(_HEAD % VERSION + places)
        self._call_object_store("put", f"index/{pack}", whole, mode="create")
        self._add_pack_index(pack, whole)

    def fetch_rows(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        with self._lock:
            if any(name not in self._places for name in names):
                self._fetch_new_packs()
            if names:
                self._fetch_forgotten_names()
            wanted = {
                name: self._places[name]
                for name in names
                if name in self._places and name not in self._gone
            }
        found = self._fetch_rows_at(wanted)
        if len(found) < len(wanted):  # A pack was rewritten during the read.
            with self._lock:
                self._fetch_new_packs(anew=True)
                left = {
                    name: self._places[name]
                    for name in wanted
                    if name in self._places and name not in found
                }
            found |= self._fetch_rows_at(left)
        return found

    def _fetch_rows_at(self, wanted: Mapping[bytes, RowPlace]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        by_pack: dict[str, list[bytes]] = {}
        for name, place in wanted.items():
            if place.start == _OWN:
                if (row := self._call_or_none("get", f"row/{name.hex()}")) is not None:
                    found[name] = bytes(row.bytes())
            else:
                by_pack.setdefault(place.pack, []).append(name)
        for pack, some in by_pack.items():
            starts, lengths = (
                [wanted[one].start for one in some],
                [wanted[one].length for one in some],
            )
            parts = self._call_or_none("get_ranges", f"pack/{pack}", starts=starts, lengths=lengths)
            for name, part in zip(some, parts or (), strict=False):
                found[name] = wanted[name].key + bytes(part)
        return found

    def find_missing_rows(self, names: Collection[bytes]) -> frozenset[bytes]:
        if not names:
            return frozenset()
        with self._lock:
            self._fetch_new_packs()
            self._fetch_forgotten_names()
            return frozenset(names) - self._places.keys() - self._gone

    def remove_rows(self, names: Collection[bytes]) -> None:
        with self._lock:
            self._fetch_new_packs(anew=True)
            self._remove_from_packs(frozenset(names))

    def forget_rows(self, tombs: Sequence[Tombstone]) -> None:
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
        for pack in {place.pack for name in names if (place := self._places.get(name)) is not None}:
            self._rewrite_pack(pack, names)

    def _rewrite_pack(self, pack: str, without: frozenset[bytes]) -> None:
        """Write the new pack before removing the old one, so that remaining rows are
        always readable.
        """
        held = self._known.get(pack, frozenset())
        own = [name for name in held & without if self._places[name].start == _OWN]
        stays = {name: self._places[name] for name in held - without}
        made: list[str] = []
        if rows := self._fetch_rows_at(
            {name: place for name, place in stays.items() if place.start != _OWN}
        ):
            made.append(self._create_pack(rows))
        if kept := [name for name, place in stays.items() if place.start == _OWN]:
            lengths = ((name, self._places[name].length) for name in kept)
            places = [
                _PLACE.pack(name, _OWN, length, bytes(ROW_KEY_BYTES)) for name, length in lengths
            ]
            made.append(self._new_pack_id())
            self._create_index(made[-1], b"".join(places))
        for path in (f"index/{pack}", f"pack/{pack}", *(f"row/{name.hex()}" for name in own)):
            self._call_or_none("delete", path)
        self._forget_known_pack(pack)
        self._fetch_forgotten_names()
        for new in made:  # Another machine may have forgotten rows of the old pack meanwhile.
            if self._gone & self._known.get(new, frozenset()):
                self._rewrite_pack(new, self._gone)

    def fetch_tombstones(self, after: int) -> tuple[Sequence[Tombstone], int]:
        """Return all tombstones each time: they are few, and machines have no common order."""
        with self._lock:
            self._fetch_forgotten_names()
            names = [name.hex() for name in sorted(self._gone)]
        words = self._get_objects("gone", names if len(names) != after else ())
        return [
            Tombstone(name, b"" if word == b"-" else word) for name, word in words.items()
        ], len(names)

    def publish_used_rows(self, machine: bytes, encrypted: bytes) -> None:
        if encrypted:
            self._call_object_store("put", f"uses/{machine.hex()}", encrypted)
        else:
            self._call_or_none("delete", f"uses/{machine.hex()}")

    def fetch_published_uses(self) -> Mapping[bytes, bytes]:
        return self._get_objects("uses", self._list_object_names("uses"))

    def _get_objects(self, folder: str, names: Iterable[str]) -> dict[bytes, bytes]:
        """Return the objects that exist, by name."""
        found = ((name, self._call_or_none("get", f"{folder}/{name}")) for name in names)
        return {bytes.fromhex(name): bytes(one.bytes()) for name, one in found if one is not None}

    def list_old_rows(
        self, older: float, after: bytes = b"", limit: int = 10_000
    ) -> Sequence[bytes]:
        with self._lock:
            self._fetch_new_packs()
            until = int(self._store_time_ms() - older * 1000)
            old = (
                name
                for name, place in self._places.items()
                if name > after and int(place.pack[:12], 16) < until
            )
            return sorted(old)[:limit]

    def fetch_row_usage(self) -> RowUsage:
        with self._lock:
            self._fetch_new_packs()
            size = sum(
                place.length + (0 if place.start == _OWN else ROW_KEY_BYTES)
                for place in self._places.values()
            )
            quota = self._call_or_none("get", "quota")
            return RowUsage(
                len(self._places), size, int(bytes(quota.bytes())) if quota is not None else 0
            )

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
        now = self._store_time_ms()
        ids = set(self._list_object_names("index", after="" if anew else self._looked))
        for pack in ids - self._known.keys():
            if (index := self._call_or_none("get", f"index/{pack}")) is not None:
                self._add_pack_index(pack, bytes(index.bytes()))
        for pack in self._known.keys() - ids if anew else ():
            self._forget_known_pack(pack)
        self._looked = f"{max(0, int(now) - LATEST_PUT_MS):012x}"

    def _add_pack_index(self, pack: str, index: bytes) -> None:
        """Add a pack's index. A damaged one counts as empty, and machines send its rows again."""
        if _with_checksum(index[:-_SUM]) != index:
            log.info("an index of the shared store is damaged")
            self._known[pack] = frozenset()
            return
        head, _, rows = index[:-_SUM].partition(b"\n")
        if int(head.rpartition(b"-")[2]) > VERSION:
            raise errors.WrittenByNewerVersion(
                "The shared store contains data from a newer version of Helix Desktop.",
                remedy=f"Update Helix Desktop. {_SAFE} Nothing was changed.",
            )
        places = {
            name: RowPlace(pack, start, length, key)
            for name, start, length, key in _PLACE.iter_unpack(rows)
        }
        self._known[pack] = frozenset(places)
        self._places |= places

    def _forget_known_pack(self, pack: str) -> None:
        for name in self._known.pop(pack, frozenset()):
            if (place := self._places.get(name)) is not None and place.pack == pack:
                del self._places[name]

    def _fetch_forgotten_names(self) -> None:
        self._gone = frozenset(map(bytes.fromhex, self._list_object_names("gone")))

    def _new_pack_id(self) -> str:
        return f"{int(self._store_time_ms()):012x}{secrets.token_hex(10)}"

    def _store_time_ms(self) -> float:
        """Return the store's time in milliseconds, by a monotonic clock, and asked
        again after clock jumps here.
        """
        apart = clock.time() - seconds_since_start_of_computer()
        if abs(apart - self._apart) > _CLOCKS_APART_SECONDS:
            path = f"clock/{secrets.token_hex(8)}"
            self._call_object_store("put", path, b"-")
            there = self._call_object_store("head", path)["last_modified"].timestamp() * 1000
            self._call_or_none("delete", path)
            self._ahead, self._apart = there - seconds_since_start_of_computer() * 1000, apart
        return seconds_since_start_of_computer() * 1000 + self._ahead

    def _list_object_names(self, folder: str, after: str = "") -> list[str]:
        import obstore
        from obstore.exceptions import BaseError

        prefix = f"{self._base}/{folder}/"
        try:
            pages = obstore.list(
                self._store, prefix, offset=f"{prefix}{after}" if after else None, chunk_size=1000
            )
            return [one["path"].rpartition("/")[2] for page in pages for one in page]
        except (BaseError, OSError) as error:
            raise convert_s3_error(error) from error

    def _call_or_none(self, call: str, path: str, **options: Any) -> Any:
        """Call the store. Returns None if the object does not exist."""
        try:
            return self._call_object_store(call, path, **options)
        except errors.NotFound:
            return None

    def _call_object_store(self, call: str, path: str, *content: bytes, **options: Any) -> Any:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            return getattr(obstore, call)(self._store, f"{self._base}/{path}", *content, **options)
        except AlreadyExistsError:
            return None
        except (BaseError, OSError) as error:
            raise convert_s3_error(error) from error


def _with_checksum(index: bytes) -> bytes:
    return index + hashlib.sha256(index).digest()


def _open_bucket(url: str, login: str) -> "tuple[str, S3Store]":
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
    chosen = {name: options[name] for name in ("endpoint", "region") if options.get(name)}
    config: dict[str, Any] = {"aws_conditional_put": "etag", **chosen}
    if login:
        config["access_key_id"], _, config["secret_access_key"] = login.partition(":")
    config.setdefault("region", "us-east-1")
    plain = options.get("endpoint", "").startswith("http://")
    host = urlsplit(options.get("endpoint", "")).hostname or ""
    if plain and "." in host and not is_private_host(host):
        raise errors.InvalidInput(
            f"The shared store at {host} is outside your own network, and its address begins with http:// instead of https://.",
            remedy="Nothing was sent. Use an address that begins with https.",
        )
    client: Any = {"timeout": "60s", "connect_timeout": "5s", "allow_http": plain}
    retry: Any = {"max_retries": 2}
    try:
        store = S3Store(parts.netloc, config=config, client_options=client, retry_config=retry)  # type: ignore[arg-type]
    except (BaseError, ValueError) as error:
        raise errors.InvalidInput(
            "This is not the address of an S3-compatible store.",
            remedy="For example: s3://bucket/folder?endpoint=https://host.",
        ) from error
    return parts.path.strip("/"), store


def convert_s3_error(error: Exception) -> errors.HelixError:
    """Return a sentence for an error: SharedStoreUnreachable if a retry may help."""
    if isinstance(error, errors.HelixError):
        return error
    text = " ".join(str(error).split())
    if isinstance(error, FileNotFoundError):
        no_bucket = errors.StoreFailed("The shared store's bucket does not exist.", remedy=_SAFE)
        return no_bucket if "NoSuchBucket" in text else errors.NotFound("-")
    kind = type(error).__name__
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or "InvalidAccessKeyId" in text:
        return errors.StoreFailed(
            "The shared store rejected the key or the secret.",
            remedy="Nothing was lost. Check the user name and password in the address, then share or join the workspace again.",
        )
    if any(
        word in text
        for word in ("code: 507", "QuotaExceeded", "XMinioStorageFull", "InsufficientStorage")
    ):
        return errors.StoreFull(
            "The shared store is full.", remedy=f"{_SAFE} Free up space in the shared store."
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
