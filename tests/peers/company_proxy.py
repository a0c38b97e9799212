"""A company's proxy that opens what is encrypted: it shows a certificate of its own for
the host that was asked for.
"""

from __future__ import annotations

import datetime as dt
import socketserver
import ssl
from contextlib import suppress
from functools import partial
from pathlib import Path
from socket import create_connection, socket
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from helix_desktop import concurrency
from tests.peers.serving import serve_in_thread


def create_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """A certificate of our own for a host, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Company")])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    )
    builder = (
        builder.serial_number(7)
        .not_valid_before(now - dt.timedelta(1))
        .not_valid_after(now + dt.timedelta(1))
    )
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    made = builder.sign(key, hashes.SHA256())
    public = folder / "ca.pem"
    private = folder / "key.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoding = serialization.Encoding.PEM
    shape = serialization.PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(encoding, shape, serialization.NoEncryption()))
    return public, private


class CompanyProxy:
    """`asked_hosts`: whom it was asked to connect to. All of it goes to one port of
    this machine instead, unencrypted.
    """

    def __init__(self, folder: Path, host: str, port: int) -> None:
        self.certificate, private = create_certificate(folder, host)
        self.asked_hosts: list[str] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate, private)
        proxy = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    proxy._serve(self.request, port)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        serve_in_thread(self._server, "company proxy")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, line: socket, port: int) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (piece := line.recv(1)):
                return
            head += piece
        method, host, _ = head.split(b" ", 2)
        self.asked_hosts.append(host.decode())
        if method != b"CONNECT":
            return
        line.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with (
            self._context.wrap_socket(line, server_side=True) as opened,
            create_connection(("127.0.0.1", port)) as inner,
        ):
            back = concurrency.start_thread(
                partial(_copy_until_end, inner, opened), name="back", daemon=True
            )
            _copy_until_end(opened, inner)
            back.join(60)


def _copy_until_end(source: socket, target: socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65_536):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(1)
