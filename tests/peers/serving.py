"""A server of the standard library in a thread of its own."""

from __future__ import annotations

from functools import partial
from socketserver import BaseServer

from helix_desktop import concurrency


def serve_in_thread(server: BaseServer, name: str) -> None:
    """Serve until `shutdown`, which waits for the end of an interval: by default, half a second."""
    serve = partial(server.serve_forever, poll_interval=0.02)
    concurrency.start_thread(serve, name=name, daemon=True)
