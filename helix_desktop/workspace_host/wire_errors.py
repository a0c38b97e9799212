"""Errors that cross the line between a client and a host: their class, and their sentences."""

from collections.abc import Callable, Mapping

from helix_desktop import errors
from helix_desktop.providers import http_transport
from helix_desktop.workspace_host import host_wire

LONGEST_SENTENCE = 2_000
# Errors that callers tell apart. Any other is a HelixError with its sentence.
_ERRORS: Mapping[str, Callable[..., errors.HelixError]] = {
    kind.__name__: kind
    for kind in (
        errors.NotFound,
        errors.AmbiguousName,
        errors.InvalidInput,
        errors.ActionRefused,
        errors.StoreFailed,
        errors.StoreFull,
        errors.CacheCorrupt,
        errors.JournalCorrupt,
        errors.ModelFailed,
        errors.ProviderKeyRefused,
        errors.ProviderUnreachable,
        errors.StoppedByUser,
        errors.UnknownModel,
        host_wire.BrokenStream,
        http_transport.NoConnection,
        http_transport.UnmendableFailure,
    )
}


def rebuild_error(kind: str, what: str, remedy: str) -> errors.HelixError:
    """Builds the error that the other side had, from what it says of it."""
    build = _ERRORS.get(kind, errors.HelixError)
    return build(what[:LONGEST_SENTENCE], remedy=remedy[:LONGEST_SENTENCE])
