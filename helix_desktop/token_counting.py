"""Counts tokens with tiktoken, for any text of any size, without network or panics.

Tiktoken downloads its vocabularies, so ours are shipped in `resources/encodings`. `encode` refuses
special tokens that tools may print, so `encode_ordinary` is used. A long run of blanks causes a
panic that is no `Exception`, so texts are cut at line ends, and a panic leads to an estimate.
"""

import binascii
import functools
import hashlib
import itertools
import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import tiktoken

from helix_desktop.errors import StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_json_resource, resources_folder

# Texts of more characters are cut at line ends, which changes counts by only 0.0002 %.
PIECE = 16_384
BATCH = 1 << 18  # One call counts about this many characters.
END = "<|endoftext|>"  # All vocabularies contain this token.
WHOLE = 1_000_000  # Texts of more characters are not counted but estimated from samples.
SAMPLES = 16
REMEMBERED = 8_000  # The number of counts that are remembered. Each takes about 200 bytes.
BYTES_PER_TOKEN = 3.6  # Used for an estimate if tiktoken fails.

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokenVocabulary:
    """Defines an encoding: its file with the SHA-256 that tiktoken checks, and how text
    is cut into words.
    """

    name: str
    sha256: str
    pattern: str
    special: Mapping[str, int]


def _read_vocabularies() -> Iterator[TokenVocabulary]:
    for name, fields in read_json_resource("encodings/vocabularies.json").items():
        yield TokenVocabulary(name, fields["sha256"], "|".join(fields["words"]), fields["special"])


VOCABULARIES = {vocabulary.name: vocabulary for vocabulary in _read_vocabularies()}


def get_encoding(name: str, folder: Path | None = None) -> tiktoken.Encoding:
    """Returns a shipped encoding after checking its file's hash."""
    return _read_encoding(name, (folder or resources_folder() / "encodings") / f"{name}.tiktoken")


@functools.cache
def _read_encoding(name: str, path: Path) -> tiktoken.Encoding:
    """Takes about 200 ms and 44 MB for o200k_base, once in a process."""
    vocabulary = VOCABULARIES[name]
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreFailed(
            f"The token vocabulary {path} cannot be read: {error.strerror}.", remedy=_REMEDY
        ) from error
    if hashlib.sha256(content).hexdigest() != vocabulary.sha256:
        raise StoreFailed(f"The token vocabulary {path} is damaged.", remedy=_REMEDY)
    tokens = content.split()[::2]  # In these files, each token's rank is the number of its line.
    ranks = dict(zip(map(binascii.a2b_base64, tokens), range(len(tokens)), strict=True))
    encoding = tiktoken.Encoding(
        name,
        pat_str=vocabulary.pattern,
        mergeable_ranks=ranks,
        special_tokens=dict(vocabulary.special),
    )
    ranks.clear()  # Frees 28 MB: tiktoken has its own table and needs this one only for pickling.
    return encoding


def is_any_vocabulary_loaded() -> bool:
    return _read_encoding.cache_info().currsize > 0


_REMEDY = "Reinstall Helix Desktop. This file contains none of your data."


class TiktokenCounter:
    """Counts with one encoding, which is loaded when first needed. Safe to call from any thread.

    Texts of up to a million characters are counted exactly, except at the cuts between pieces. For
    longer texts, sixteen pieces spread over the text are counted and the rest is estimated from
    them, so a 200 MB output takes milliseconds. For uniform text, the error is a few percent.
    """

    def __init__(self, name: str = "o200k_base", *, folder: Path | None = None) -> None:
        self.name = name
        self._folder = folder
        self._encoding: tiktoken.Encoding | None = None
        self._lock = threading.Lock()
        # A lock of its own, so that remembered counts need not wait for the vocabulary.
        self._loading = threading.Lock()
        self._counts: OrderedDict[int, int] = OrderedDict()

    def count_tokens(self, text: str) -> int:
        """Counts the tokens of a text. A text that was counted before costs only its hash."""
        key = _hash_of_text(text)
        known = self._remembered_count(key)
        if known is not None:
            return known
        if len(text) <= WHOLE:
            count = sum(self._count_pieces(cut_into_pieces(text)))
        else:
            count = self._estimate_by_samples(text)
        self._remember_count(key, count)
        return count

    def count_ahead(self, texts: Iterable[str]) -> None:
        """Counts many texts in one batch, so that `count_tokens` then returns their
        counts from memory.
        """
        pieces_by_key: dict[int, list[str]] = {}
        size = 0
        for text in texts:
            if len(text) > WHOLE:
                continue  # It is estimated from samples, one text at a time.
            key = _hash_of_text(text)
            if self._remembered_count(key) is None:
                pieces_by_key[key] = list(cut_into_pieces(text))
                size += len(text)
            if size > BATCH:
                self._count_all(pieces_by_key)
                pieces_by_key = {}
                size = 0
        self._count_all(pieces_by_key)

    def _count_all(self, pieces_by_key: Mapping[int, list[str]]) -> None:
        counts = self._count_pieces(itertools.chain.from_iterable(pieces_by_key.values()))
        for key, pieces in pieces_by_key.items():
            self._remember_count(key, sum(itertools.islice(counts, len(pieces))))

    def _remembered_count(self, key: int) -> int | None:
        with self._lock:
            if (known := self._counts.get(key)) is not None:
                self._counts.move_to_end(key)
            return known

    def _remember_count(self, key: int, count: int) -> None:
        with self._lock:
            self._counts[key] = count
            if len(self._counts) > REMEMBERED:
                self._counts.popitem(last=False)

    def _count_pieces(self, pieces: Iterable[str]) -> Iterator[int]:
        batch: list[str] = []
        size = 0
        for piece in pieces:
            batch.append(piece)
            size += len(piece)
            if size > BATCH:
                yield from self._count_batch(batch)
                batch = []
                size = 0
        yield from self._count_batch(batch)

    def _count_batch(self, batch: Sequence[str]) -> list[int]:
        """Counts a batch in one call, because each call waits for the interpreter."""
        if len(batch) < 2 or any(END in piece for piece in batch):
            return list(map(self._count_piece, batch))
        encoding = self._loaded_encoding()
        try:
            # Four bytes for each token: while a list of numbers is made, other threads wait.
            core = encoding._core_bpe  # noqa: SLF001
            text = END.join([*batch, ""])
            found = bytes(core.encode_to_tiktoken_buffer(text, {END}))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 - a panic inside tiktoken is no Exception; which piece it was shows alone
            return list(map(self._count_piece, batch))
        # No part of two other tokens looks like this one: the highest byte is always zero.
        parts = found.split(encoding.eot_token.to_bytes(4, sys.byteorder))
        return [len(part) // 4 for part in parts[:-1]]

    def _estimate_by_samples(self, text: str) -> int:
        samples = _sample_pieces(text)
        counted = sum(self._count_pieces(samples))
        return round(counted * len(text) / sum(map(len, samples)))

    def _count_piece(self, text: str) -> int:
        if not text:
            return 0
        try:
            return len(self._loaded_encoding().encode_ordinary(text))
        except (KeyboardInterrupt, SystemExit, StoreFailed):
            raise
        except BaseException as error:  # noqa: BLE001 - a panic inside tiktoken is no Exception
            log.warning(
                "tiktoken gave up on %d characters (%s); estimated", len(text), type(error).__name__
            )
            return max(1, round(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN))

    def _loaded_encoding(self) -> tiktoken.Encoding:
        if self._encoding is None:
            with self._loading:
                if self._encoding is None:
                    self._encoding = get_encoding(self.name, self._folder)
        return self._encoding


@functools.cache
def shared_token_counter() -> TiktokenCounter:
    """Returns the counter that this process shares, so that no text is counted twice."""
    return TiktokenCounter()


def _hash_of_text(text: str) -> int:
    """Returns Python's 64-bit hash, which, unlike SHA-256, does not encode the text."""
    if len(text) <= WHOLE:
        return hash(text)
    samples = "".join(_sample_pieces(text))
    return hash(f"{len(text)}{samples}")


def _sample_pieces(text: str) -> list[str]:
    step = len(text) // SAMPLES
    return [text[start : start + PIECE] for start in range(0, step * SAMPLES, step)]


def cut_into_pieces(text: str) -> Iterator[str]:
    """Yields pieces of up to 16 K characters, which end after a line if possible."""
    start = 0
    while len(text) - start > PIECE:
        cut = text.rfind("\n", start, start + PIECE) + 1 or start + PIECE
        yield text[start:cut]
        start = cut
    yield text[start:]
