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
BYTES_OF_TOKEN_NUMBER = 4  # In the list of numbers that tiktoken returns.
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
    """Return a shipped encoding after checking its file's hash."""
    encodings_folder = folder or resources_folder() / "encodings"
    return _read_encoding(name, encodings_folder / f"{name}.tiktoken")


@functools.cache
def _read_encoding(name: str, path: Path) -> tiktoken.Encoding:
    """Read an encoding. It takes about 200 ms and 44 MB for o200k_base, once in a process."""
    vocabulary = VOCABULARIES[name]
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreFailed(
            f"The token vocabulary {path} cannot be read: {error.strerror}.", remedy=_REMEDY
        ) from error
    if hashlib.sha256(content).hexdigest() != vocabulary.sha256:
        raise StoreFailed(f"The token vocabulary {path} is damaged.", remedy=_REMEDY)
    # Each line has a token in base64, and its rank, which is the number of the line.
    encoded_tokens = content.split()[::2]
    tokens = map(binascii.a2b_base64, encoded_tokens)
    ranks = dict(zip(tokens, range(len(encoded_tokens)), strict=True))
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
        """Count the tokens of a text. A text that was counted before costs only its hash."""
        key = _hash_of_text(text)
        remembered_count = self._remembered_count(key)
        if remembered_count is not None:
            return remembered_count
        if len(text) <= WHOLE:
            count = sum(self._count_pieces(cut_into_pieces(text)))
        else:
            count = self._estimate_by_samples(text)
        self._remember_count(key, count)
        return count

    def count_ahead(self, texts: Iterable[str]) -> None:
        """Count many texts in one batch, so that `count_tokens` then returns their
        counts from memory.
        """
        pieces_by_key: dict[int, list[str]] = {}
        characters = 0
        for text in texts:
            if len(text) > WHOLE:
                continue  # It is estimated from samples, one text at a time.
            key = _hash_of_text(text)
            if self._remembered_count(key) is None:
                pieces_by_key[key] = list(cut_into_pieces(text))
                characters += len(text)
            if characters > BATCH:
                self._count_and_remember(pieces_by_key)
                pieces_by_key = {}
                characters = 0
        self._count_and_remember(pieces_by_key)

    def _count_and_remember(self, pieces_by_key: Mapping[int, list[str]]) -> None:
        """Count the pieces of all texts together, and remember the sum of each text."""
        all_pieces = itertools.chain.from_iterable(pieces_by_key.values())
        counts = self._count_pieces(all_pieces)
        for key, pieces in pieces_by_key.items():
            counts_of_text = itertools.islice(counts, len(pieces))
            self._remember_count(key, sum(counts_of_text))

    def _remembered_count(self, key: int) -> int | None:
        with self._lock:
            count = self._counts.get(key)
            if count is not None:
                # What is used again is forgotten last.
                self._counts.move_to_end(key)
            return count

    def _remember_count(self, key: int, count: int) -> None:
        with self._lock:
            self._counts[key] = count
            if len(self._counts) > REMEMBERED:
                self._counts.popitem(last=False)

    def _count_pieces(self, pieces: Iterable[str]) -> Iterator[int]:
        batch: list[str] = []
        characters = 0
        for piece in pieces:
            batch.append(piece)
            characters += len(piece)
            if characters > BATCH:
                yield from self._count_batch(batch)
                batch = []
                characters = 0
        yield from self._count_batch(batch)

    def _count_batch(self, batch: Sequence[str]) -> list[int]:
        """Count a batch in one call, because each call waits for the interpreter."""
        if len(batch) < 2 or any(END in piece for piece in batch):
            return list(map(self._count_piece, batch))
        encoding = self._loaded_encoding()
        try:
            # Four bytes for each token: while a list of numbers is made, other threads wait.
            core = encoding._core_bpe  # noqa: SLF001
            pieces_with_ends = "".join(piece + END for piece in batch)
            token_numbers = bytes(core.encode_to_tiktoken_buffer(pieces_with_ends, {END}))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 - a panic inside tiktoken is no Exception; which piece it was shows alone
            return list(map(self._count_piece, batch))
        # No part of two other tokens looks like this one: the highest byte is always zero.
        end_number = encoding.eot_token.to_bytes(BYTES_OF_TOKEN_NUMBER, sys.byteorder)
        numbers_by_piece = token_numbers.split(end_number)
        numbers_by_piece.pop()  # Nothing follows the last end.
        return [len(numbers) // BYTES_OF_TOKEN_NUMBER for numbers in numbers_by_piece]

    def _estimate_by_samples(self, text: str) -> int:
        samples = _sample_pieces(text)
        sampled_tokens = sum(self._count_pieces(samples))
        sampled_characters = sum(map(len, samples))
        return round(sampled_tokens * len(text) / sampled_characters)

    def _count_piece(self, text: str) -> int:
        """Count a piece by itself, or estimate it if tiktoken fails."""
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
            size = len(text.encode("utf-8", "replace"))
            return max(1, round(size / BYTES_PER_TOKEN))

    def _loaded_encoding(self) -> tiktoken.Encoding:
        # The second look is for a thread that waited while another one was loading it.
        if self._encoding is None:
            with self._loading:
                if self._encoding is None:
                    self._encoding = get_encoding(self.name, self._folder)
        return self._encoding


@functools.cache
def shared_token_counter() -> TiktokenCounter:
    """Return the counter that this process shares, so that no text is counted twice."""
    return TiktokenCounter()


def _hash_of_text(text: str) -> int:
    """Return Python's 64-bit hash, which, unlike SHA-256, does not encode the text."""
    if len(text) <= WHOLE:
        return hash(text)
    samples = "".join(_sample_pieces(text))
    return hash(f"{len(text)}{samples}")


def _sample_pieces(text: str) -> list[str]:
    """Return pieces of a long text, at equal distances."""
    distance = len(text) // SAMPLES
    samples = []
    for number in range(SAMPLES):
        start = number * distance
        samples.append(text[start : start + PIECE])
    return samples


def cut_into_pieces(text: str) -> Iterator[str]:
    """Yield pieces of up to 16 K characters, which end after a line if possible."""
    piece_start = 0
    while len(text) - piece_start > PIECE:
        longest_end = piece_start + PIECE
        last_line_end = text.rfind("\n", piece_start, longest_end)
        piece_end = longest_end
        if last_line_end >= 0:
            piece_end = last_line_end + 1
        yield text[piece_start:piece_end]
        piece_start = piece_end
    yield text[piece_start:]
