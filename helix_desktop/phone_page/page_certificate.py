"""The page's own certificate, for an address that others on the network can reach.

No authority vouches for it: the user compares its fingerprint once, when the device first connects.
"""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from helix_desktop.atomic_files import write_file_atomically

CERTIFICATE_FILE = "page_certificate.pem"
KEY_FILE = "page_key.pem"
DAYS = 820  # Some browsers refuse certificates of more than 825 days.
RENEWED_DAYS = 30


def ensure_certificate(config_folder: Path, address: str) -> tuple[Path, Path]:
    """Returns the files of the certificate and its key, made anew if they are for another address
    or soon too old.
    """
    certificate_file = config_folder / CERTIFICATE_FILE
    key_file = config_folder / KEY_FILE
    if not key_file.is_file() or not _is_usable(certificate_file, address):
        _create_certificate(certificate_file, key_file, address)
    return certificate_file, key_file


def read_certificate_fingerprint(certificate_file: Path) -> str:
    """Returns the SHA-256 of a certificate as browsers show it."""
    content = certificate_file.read_bytes()
    certificate = x509.load_pem_x509_certificate(content)
    fingerprint = certificate.fingerprint(hashes.SHA256())
    return fingerprint.hex(":").upper()


def _is_usable(certificate_file: Path, address: str) -> bool:
    try:
        content = certificate_file.read_bytes()
        certificate = x509.load_pem_x509_certificate(content)
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    renewed = certificate.not_valid_after_utc - timedelta(days=RENEWED_DAYS)
    if _now() >= renewed:
        return False
    return list(extension.value) == [_name_of_address(address)]


def _create_certificate(certificate_file: Path, key_file: Path, address: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign_own_certificate(key, address)
    key_content = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_file_atomically(key_file, key_content, private=True)
    certificate_content = certificate.public_bytes(serialization.Encoding.PEM)
    write_file_atomically(certificate_file, certificate_content, private=True)


def _sign_own_certificate(key: ec.EllipticCurvePrivateKey, address: str) -> x509.Certificate:
    """Returns a certificate for the address that the key itself has signed."""
    common_name = x509.NameAttribute(NameOID.COMMON_NAME, "Helix Desktop")
    name = x509.Name([common_name])
    now = _now()
    alternative_name = x509.SubjectAlternativeName([_name_of_address(address)])
    # It can sign nothing else, so a device that trusts it trusts no other server.
    constraints = x509.BasicConstraints(ca=False, path_length=None)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(alternative_name, critical=False)
        .add_extension(constraints, critical=True)
    )
    return builder.sign(key, hashes.SHA256())


def _name_of_address(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _now() -> datetime:
    return datetime.now(UTC)
