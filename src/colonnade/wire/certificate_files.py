"""Keys, certificates and lists of revoked ones as files: read strictly, and a secret only if it is kept as one."""

import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from colonnade.errors import RunError, SettingsError
from colonnade.files import read_whole

_MOST_BYTES = 1 << 26  # of certificates, or of a list of revoked ones
HEX = re.compile(r"[0-9A-Fa-f:]+")


def utc_now() -> datetime:
    return datetime.now(UTC)


def moment(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"


def in_hex(serial: int) -> str:
    return f"{serial:040x}"


def serial_of(text: str) -> int:
    return int(text.replace(":", "") or "0", 16)


def read_revoked(path: Path) -> frozenset[int]:
    """The serials on a list. A list that is missing or torn is refused: nothing is accepted for want of it."""
    serials = set()
    for number, line in enumerate(bytes_of(path).decode("utf-8", "replace").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        if not HEX.fullmatch(text):
            raise SettingsError(
                f"{path}, line {number}, is not a serial number in hexadecimal. Take the list anew from the authority; "
                "comments begin with '#'."
            )
        serials.add(serial_of(text))
    return frozenset(serials)


def read_certificates(path: Path, what: str) -> list[x509.Certificate]:
    if not path.exists():
        raise SettingsError(f"There is no file {path}. Give {what}.")
    return certificates_of(bytes_of(path), str(path))


def certificates_of(pem: bytes, where: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion):
        found = "a private key" if b"PRIVATE KEY-----" in pem else "something else"
        raise SettingsError(
            f"{where} is not a PEM certificate but {found}. Give the .pem file that `colonnade certs` wrote."
        ) from None


def private_key_of(pem: bytes, path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        raise SettingsError(
            f"The key {path} is locked with a password, which a party that starts by itself cannot give. Store it "
            "without, readable by its owner alone."
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise SettingsError(
            f"{path} is not a PEM private key. Give the .key file that `colonnade certs issue` wrote."
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SettingsError(f"The key {path} is not an elliptic-curve key. Have one issued with `colonnade certs`.")
    return key


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def bytes_of(path: Path, absent: bytes | None = None) -> bytes:
    """A file's content; `absent` if there is no such file, where that is no mistake."""
    try:
        return read_whole(path, _MOST_BYTES, links=True)
    except FileNotFoundError:
        if absent is not None:
            return absent
        raise SettingsError(f"There is no file {path}. `colonnade certs issue` writes what a party needs.") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.") from None
    except RunError as error:  # no file, or too large
        raise SettingsError(str(error)) from None


def secret_bytes(path: Path) -> bytes:
    """The content of a private key's file, if nobody but its owner may read it."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise SettingsError(
                    f"The key {path} may be read or changed by others (mode {mode:04o}). If nobody has, run "
                    f"`chmod 600 {path}`; else have a new one issued."
                )
            return file.read()
    except FileNotFoundError:
        raise SettingsError(f"There is no key {path}. `colonnade certs issue` writes it.") from None
    except OSError as error:
        raise SettingsError(f"The key {path} cannot be read: {error.strerror}.") from None
