"""Recognises a message of the user that was sent, although it may be recorded in another form."""

from collections.abc import Sequence

from helix_desktop.engine import facts
from helix_desktop.engine.sha256_digest import Digest


def is_same_message(fact: facts.Fact, parts: Sequence[facts.UserPart]) -> bool:
    """Return whether a fact is the record of a message that had these parts when it was sent."""
    return isinstance(fact, facts.UserSaid) and have_same_contents(fact.parts, parts)


def have_same_contents(first: Sequence[facts.UserPart], second: Sequence[facts.UserPart]) -> bool:
    """Return whether two messages say the same, also if only one has its tokens counted."""
    first_digests = [_digest_of_part(part) for part in first]
    second_digests = [_digest_of_part(part) for part in second]
    return first_digests == second_digests


def _digest_of_part(part: facts.UserPart) -> Digest:
    """Return what identifies a part. A text that is too long is recorded as an attachment."""
    if isinstance(part, facts.Text):
        return Digest.of_content(part.text.encode("utf-8", "replace"))
    return part.stored.digest
