"""Recognises a message of the user that was sent, although it may be recorded in another form."""

from collections.abc import Sequence

from helix_desktop.engine import facts
from helix_desktop.engine.sha256_digest import Digest


def is_same_message(fact: facts.Fact, parts: Sequence[facts.UserPart]) -> bool:
    """Return whether a fact is the record of a message that had these parts when it was sent."""
    if not isinstance(fact, facts.UserSaid):
        return False
    recorded_digests = [_digest_of_part(part) for part in fact.parts]
    sent_digests = [_digest_of_part(part) for part in parts]
    return recorded_digests == sent_digests


def _digest_of_part(part: facts.UserPart) -> Digest:
    """Return what identifies a part. A text that is too long is recorded as an attachment."""
    if isinstance(part, facts.Text):
        return Digest.of_content(part.text.encode("utf-8", "replace"))
    return part.stored.digest
