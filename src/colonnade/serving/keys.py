"""API keys: a file with a name and a salted hash per line. A key itself is shown once, when it is made."""

import hashlib
import hmac
import logging
import secrets
from pathlib import Path

from colonnade.errors import SettingsError
from colonnade.files import read_private, write_atomically
from colonnade.names import check_party_name

log = logging.getLogger("colonnade.serving")

_SALT_BYTES = 16
_LONGEST_KEY = 200


class ApiKeys:
    """The keys of a file, read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = (-1, -1)
        self._known: list[tuple[str, bytes, bytes]] = []
        self._found: dict[str, str] = {}  # keys that were right, so that not every request costs every hash
        self._read()

    def name_of(self, key: str) -> str | None:
        """Whose key it is; None: nobody's."""
        try:
            self._read()
        except SettingsError as error:
            log.error("the keys before are believed: %s", error)
        if key in self._found:
            return self._found[key]
        if not 0 < len(key) <= _LONGEST_KEY:
            return None
        right = [name for name, salt, hashed in self._known if hmac.compare_digest(_hashed(salt, key), hashed)]
        if right:
            self._found[key] = right[0]
        return right[0] if right else None

    def _read(self) -> None:
        try:
            found = self._path.stat()
            if (stamp := (found.st_mtime_ns, found.st_size)) == self._stamp:
                return
            lines = read_private(self._path).decode().splitlines()
            self._known = [_parsed(line) for line in lines if line.strip() and not line.startswith("#")]
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "a line is no key"
            raise SettingsError(
                f"The API keys in {self._path} cannot be read: {why}. "
                "Make one with: colonnade serve --keys FILE --add-key NAME."
            ) from None
        self._stamp = stamp
        self._found = {}


def add_key(path: Path, name: str) -> str:
    """Make a key for somebody, and add its hash to the file; the key, which nobody can tell again."""
    check_party_name(name)
    before = read_private(path).decode() if path.exists() else ""
    if any(_parsed(line)[0] == name for line in before.splitlines() if line.strip() and not line.startswith("#")):
        raise SettingsError(f"There is a key of {name} in {path} already: take its line out first.")
    key, salt = secrets.token_urlsafe(32), secrets.token_bytes(_SALT_BYTES)
    write_atomically(path, f"{before}{name} {salt.hex()} {_hashed(salt, key).hex()}\n".encode())
    return key


def _hashed(salt: bytes, key: str) -> bytes:
    # A key has 256 random bits: one hash is as good as a thousand.
    return hashlib.sha256(salt + key.encode()).digest()


def _parsed(line: str) -> tuple[str, bytes, bytes]:
    name, salt, hashed = line.split()
    return name, bytes.fromhex(salt), bytes.fromhex(hashed)
