"""Who is who: a small authority, a key and a certificate a party, and the checks of both.

A party is known by the name in its certificate, once as the common name and once as an alternative name, which is what
TLS compares. A private key is readable by its owner alone from its first byte on, and no message or `repr` shows one.
Own files that will not do are a SettingsError, a peer's certificate that will not do is a ProtocolError.
"""

import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from colonnade.errors import ProtocolError, RunError, SettingsError, unknown_name
from colonnade.files import write_atomically
from colonnade.names import check_party_name, is_party_name

AUTHORITY_KEY, AUTHORITY, ISSUED, REVOKED = "authority.key", "authority.pem", "issued.txt", "revoked.txt"
"""The files of an authority's directory. The first is its secret, the second and the last go to every party."""

MOST_DAYS = 36_500

_READABLE, _SECRET = 0o644, 0o600
_BACKDATED = timedelta(hours=1)  # clocks of two organisations differ; a certificate is of use at once
# Between a renewal's two renames a reader may meet the new key with the old certificate; it looks again.
_LOOKS, _SECONDS_BETWEEN_LOOKS = 10, 0.02

_HOST_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_HOST_LABEL}(\.{_HOST_LABEL})*")
_HEX = re.compile(r"[0-9A-Fa-f:]+")
# What parsing an extension may raise; none of them comes from a certificate that was made here.
_UNREADABLE = (ValueError, TypeError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)


@dataclass(frozen=True)
class Issued:
    """A new certificate, and where it and its key are."""

    name: str
    serial: int
    expires: datetime
    key: Path
    certificate: Path
    authority: Path


@dataclass(frozen=True)
class Credentials:
    """What a party shows of itself and trusts in others, checked. `revoked` are serial numbers."""

    name: str
    key_pem: bytes = field(repr=False)
    certificate_pem: bytes = field(repr=False)
    authority_pem: bytes = field(repr=False)
    revoked: frozenset[int] = field(repr=False)
    expires: datetime


class CertificateFacts(NamedTuple):
    """What a certificate says, believed or not."""

    name: str
    serial: str
    issuer: str
    is_authority: bool
    valid_from: datetime
    expires: datetime
    hosts: list[str]


# --- the authority ----------------------------------------------------------------------------------------------


def make_authority(directory: Path, name: str, days: int) -> None:
    """A new authority in a directory that has none; `name` says whose it is."""
    _check_days(days)
    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise SettingsError(f"The authority's name {name!r} will not do: give 1 to 64 printable characters.")
    files = (AUTHORITY_KEY, AUTHORITY, ISSUED, REVOKED)
    for file in files:
        if (directory / file).exists():
            raise SettingsError(
                f"{directory / file} exists already, and an authority is never overwritten: every certificate that it "
                "issued would be void. Choose another directory."
            )
    key = ec.generate_private_key(ec.SECP256R1())
    # Other than any party's subject, or a party's certificate would look like one that signed itself.
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, name),
            x509.NameAttribute(NameOID.COMMON_NAME, "Colonnade authority"),
        ]
    )
    now = _now()
    certificate = _signed(
        subject,
        key.public_key(),
        (subject, key),
        (now - _BACKDATED, now + timedelta(days=days)),
        [(x509.BasicConstraints(ca=True, path_length=0), True), (_key_usage(signs_certificates=True), True)],
    )
    with _written(directory):
        directory.mkdir(parents=True, exist_ok=True)
        # Created here or not at all, so that of two who do this at once one is told.
        handle = os.open(directory / AUTHORITY_KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _SECRET)
        try:
            with os.fdopen(handle, "wb") as secret:
                secret.write(_private_pem(key))
                secret.flush()
                os.fsync(secret.fileno())
            write_atomically(directory / ISSUED, b"# serial, expires, name, hosts: all that was issued\n", _READABLE)
            write_atomically(directory / REVOKED, b"# serials of revoked certificates, for every party\n", _READABLE)
            write_atomically(directory / AUTHORITY, certificate.public_bytes(Encoding.PEM), _READABLE)
        except BaseException:
            for file in files:
                (directory / file).unlink(missing_ok=True)  # half an authority is in the way of a whole one
            raise


def issue(authority: Path, name: str, out: Path, hosts: Sequence[str], days: int) -> Issued:
    """A key and a certificate for a party, in `out`, with the authority's certificate and list; again: a renewal.

    The old certificate stays valid until it expires or is revoked.
    """
    _check_days(days)
    _check_name(name)
    addresses = [_host(host) for host in hosts]
    issuer_key, issuer = _read_authority(authority)
    now = _now()
    expires = now + timedelta(days=days)
    if expires > issuer.not_valid_after_utc:
        left = (issuer.not_valid_after_utc - now).days
        raise SettingsError(
            f"The authority in {authority} itself is valid until {_moment(issuer.not_valid_after_utc)}, so a "
            f"certificate cannot last {days} days: "
            + (f"ask for at most {left}." if left > 0 else "make a new authority with `colonnade certs init`.")
        )
    key = ec.generate_private_key(ec.SECP256R1())
    both_ends = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
    names = x509.SubjectAlternativeName([*dict.fromkeys([x509.DNSName(name), *addresses])])
    certificate = _signed(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        key.public_key(),
        (issuer.subject, issuer_key),
        (max(now - _BACKDATED, issuer.not_valid_before_utc), expires),
        [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_key_usage(signs_certificates=False), True),
            (both_ends, False),
            (names, False),
        ],
    )
    serial = certificate.serial_number
    with _locked(authority):
        _check_unlike_others(authority, name, hosts, now)
        with _written(out):
            out.mkdir(parents=True, exist_ok=True)
            _hand_out_authority(authority, out, issuer)
            # On record before it exists anywhere: what was issued can be revoked.
            line = " ".join([_hex(serial), expires.strftime("%Y-%m-%dT%H:%M:%SZ"), name, *hosts])
            record = authority / ISSUED
            write_atomically(record, _bytes_of(record, b"") + f"{line}\n".encode(), _READABLE)
            write_atomically(out / f"{name}.key", _private_pem(key), _SECRET)
            write_atomically(out / f"{name}.pem", certificate.public_bytes(Encoding.PEM), _READABLE)
    return Issued(
        name, serial, certificate.not_valid_after_utc, out / f"{name}.key", out / f"{name}.pem", out / AUTHORITY
    )


def revoke(authority: Path, name_or_serial: str) -> tuple[int, ...]:
    """Put every valid certificate of a party, or the one of a serial number, on the list; returns what is new on it."""
    _read_certificates(authority / AUTHORITY, "the directory of an authority made by `colonnade certs init`")
    with _locked(authority):
        records = _records(authority)
        chosen = [one for one in records if one.name == name_or_serial]
        if not chosen and _HEX.fullmatch(name_or_serial):
            serial = _serial(name_or_serial)
            chosen = [one for one in records if one.serial == serial]
            if not chosen and len(name_or_serial) > 16:
                raise SettingsError(
                    f"The authority in {authority} has not issued a certificate with the serial {name_or_serial}. "
                    f"{authority / ISSUED} lists all."
                )
        if not records:
            raise SettingsError(f"The authority in {authority} has not issued any certificate yet.")
        if not chosen:
            raise unknown_name("party with a certificate named", name_or_serial, {one.name for one in records})
        listed = authority / REVOKED
        before = _read_revoked(listed) if listed.exists() else frozenset()
        now = _now()
        fresh = [one for one in chosen if one.serial not in before and one.expires > now]
        if fresh:
            lines = "".join(f"{_hex(one.serial)}  # {one.name}, revoked {now:%Y-%m-%d}\n" for one in fresh)
            with _written(authority):
                write_atomically(listed, _bytes_of(listed, b"") + lines.encode(), _READABLE)
    return tuple(one.serial for one in fresh)


# --- a party ----------------------------------------------------------------------------------------------------


def read_credentials(
    key: Path, certificate: Path, authority: Path, revoked: Path | None, expected_name: str | None = None
) -> Credentials:
    """A party's own credentials from its files, with every check that its peers will make.

    Reading them again after a renewal gives the new ones, never a key with another key's certificate.
    """
    authority_pem = _bytes_of(authority)
    authorities = _certificates(authority_pem, str(authority))
    serials = frozenset() if revoked is None else _read_revoked(revoked)
    for _ in range(_LOOKS):
        key_pem = _secret_bytes(key)
        private = _private_key(key_pem, key)
        certificate_pem = _bytes_of(certificate)
        own = _certificates(certificate_pem, str(certificate))[0]
        if own.public_key() == private.public_key():
            break
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    else:
        raise SettingsError(
            f"The key {key} does not belong to the certificate {certificate}. Give the two files that one "
            "`colonnade certs issue` wrote, or issue them anew."
        )
    if fault := _fault(own, authorities, serials, _now()):
        raise SettingsError(f"The certificate {certificate} {fault}")
    name = _common_name(own)
    if expected_name is not None and name != expected_name:
        raise SettingsError(
            f"The certificate {certificate} is that of {name!r}, but this party is {expected_name!r}. Give the key and "
            f"the certificate that were issued for {expected_name!r}."
        )
    return Credentials(name, key_pem, certificate_pem, authority_pem, serials, own.not_valid_after_utc)


def check_peer(
    certificate_pem: bytes, authority_pem: bytes, revoked: frozenset[int], now: datetime | None = None
) -> str:
    """The name of the party whose certificate this is, if it is one to be believed now."""
    authorities = _certificates(authority_pem, "the authority's certificate")
    certificate = _peer_certificate(certificate_pem)
    if fault := _fault(certificate, authorities, revoked, now or _now()):
        raise ProtocolError(f"The certificate that the peer showed {fault}")
    return _common_name(certificate)


def peer_public_key(certificate_pem: bytes) -> ec.EllipticCurvePublicKey:
    """The key with which a peer signs; check the certificate first."""
    try:
        public = _peer_certificate(certificate_pem).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        public = None
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise ProtocolError("The peer's certificate has no elliptic-curve key. It must come from `colonnade certs`.")
    return public


def signing_key(credentials: Credentials) -> ec.EllipticCurvePrivateKey:
    """The private key of a party's certificate."""
    return _private_key(credentials.key_pem, Path(f"{credentials.name}.key"))


def read_facts(path: Path) -> list[CertificateFacts]:
    """What the certificates in a file say; nothing is checked."""
    return [_facts(certificate) for certificate in _read_certificates(path, "a certificate")]


# --- what makes a certificate credible --------------------------------------------------------------------------


def _fault(
    certificate: x509.Certificate, authorities: Sequence[x509.Certificate], revoked: frozenset[int], now: datetime
) -> str:
    """What is wrong with a certificate: the rest of a sentence that begins with it. Empty if nothing is.

    The signature comes first: before it, what the certificate says of itself, its name above all, means nothing.
    """
    try:
        issuers = [authority for authority in authorities if _is_issued_by(certificate, authority)]
        if not issuers:
            trusted = ", ".join(repr(_issuer_name(authority.subject)) for authority in authorities)
            return (
                f"was not issued by the authority that this party trusts ({trusted}). All parties of a federation need "
                "certificates from the same one."
            )
        name = _common_name(certificate)
        if not is_party_name(name) or name not in _alternative_names(certificate):
            return "does not name one party, as common name and as alternative name. Issue it with `colonnade certs`."
        fault = _date_fault(certificate, f"of {name!r}", f"issue it anew with `colonnade certs issue {name}`", now)
        if fault:
            return fault
        if all(_date_fault(issuer, "", "", now) for issuer in issuers):
            # Of several certificates of one authority a valid one is enough.
            return f"of {name!r} is good, but " + _date_fault(
                issuers[0], "that of its authority", "make a new authority and new certificates", now
            )
        constraints = _extension(certificate, x509.BasicConstraints)
        usage = _extension(certificate, x509.ExtendedKeyUsage)
        both = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
        if constraints is None or constraints.ca or usage is None or not both <= set(usage):
            return (
                f"of {name!r} is not made for both ends of a connection. Issue it with `colonnade certs issue {name}`."
            )
        if certificate.serial_number in revoked:
            return (
                f"of {name!r}, serial {_hex(certificate.serial_number)}, was revoked. Only a new one from the "
                "authority will do."
            )
    except _UNREADABLE:
        return "has parts that cannot be read. Issue it with `colonnade certs`."
    return ""


def _date_fault(certificate: x509.Certificate, whose: str, remedy: str, now: datetime) -> str:
    if now > certificate.not_valid_after_utc:
        return f"{whose} expired on {_moment(certificate.not_valid_after_utc)}: {remedy}."
    if now < certificate.not_valid_before_utc:
        return (
            f"{whose} is not valid before {_moment(certificate.not_valid_before_utc)}, and the clock here says "
            f"{_moment(now)}: set the clock right, here or where it was issued."
        )
    return ""


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    constraints = _extension(authority, x509.BasicConstraints)
    if constraints is None or not constraints.ca:
        return False
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


Kind = TypeVar("Kind", bound=x509.ExtensionType)


def _extension(certificate: x509.Certificate, kind: type[Kind]) -> Kind | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _common_name(certificate: x509.Certificate) -> str:
    """The one common name; empty if there are none or several."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def _alternative_names(certificate: x509.Certificate) -> list[str]:
    names = _extension(certificate, x509.SubjectAlternativeName)
    return [] if names is None else names.get_values_for_type(x509.DNSName)


def _issuer_name(subject: x509.Name) -> str:
    for part in (NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME):
        if found := subject.get_attributes_for_oid(part):
            return str(found[0].value)
    return subject.rfc4514_string()


def _facts(certificate: x509.Certificate) -> CertificateFacts:
    try:
        constraints = _extension(certificate, x509.BasicConstraints)
        names = _extension(certificate, x509.SubjectAlternativeName)
        is_authority = constraints is not None and constraints.ca
        name = _issuer_name(certificate.subject) if is_authority else _common_name(certificate)
        hosts = [] if names is None else [str(one.value) for one in names if str(one.value) != name]
    except _UNREADABLE:
        is_authority, name, hosts = False, _common_name(certificate), []
    return CertificateFacts(
        name,
        _hex(certificate.serial_number),
        _issuer_name(certificate.issuer),
        is_authority,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        hosts,
    )


# --- names, hosts, days -----------------------------------------------------------------------------------------


def _check_days(days: int) -> None:
    if not 1 <= days <= MOST_DAYS:
        raise SettingsError(f"A certificate cannot be valid for {days} days: give 1 to {MOST_DAYS}.")


def _check_name(name: str) -> None:
    """Refuse what cannot name a party, and what TLS would not compare as a name."""
    check_party_name(name)
    if name.lower() == "authority":
        raise SettingsError("A party cannot be named 'authority': its files would be the authority's. Choose another.")
    if _is_address(name) or name.endswith("."):
        raise SettingsError(
            f"The party name {name!r} will not do in a certificate: TLS may take it for an address or drop its last "
            "dot. Choose another name for the party; an address is given with --host."
        )


def _host(host: str) -> x509.GeneralName:
    if _is_address(host):
        return x509.IPAddress(ip_address(host))
    if len(host) > 253 or not _HOST.fullmatch(host):
        raise SettingsError(
            f"The host {host!r} will not do: give a DNS name such as label.example.org, without wildcards, or an IP "
            "address."
        )
    return x509.DNSName(host)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _check_unlike_others(authority: Path, name: str, hosts: Sequence[str], now: datetime) -> None:
    """No two parties may pass for one another: TLS compares names and hosts alike, and without regard to case."""
    revoked = _read_revoked(authority / REVOKED) if (authority / REVOKED).exists() else frozenset()
    for other in _records(authority):
        if other.name == name or other.expires < now or other.serial in revoked:
            continue
        taken = {other.name.lower(), *map(str.lower, other.hosts)}
        clash = name if name.lower() in taken else next((h for h in hosts if h.lower() == other.name.lower()), None)
        if clash is not None:
            raise SettingsError(
                f"{clash!r} is taken: the party {other.name!r} has a certificate with that name or host, and TLS does "
                f"not tell the two apart. Choose another, or revoke it first: `colonnade certs revoke {other.name}`."
            )


def _signed(
    subject: x509.Name,
    public: ec.EllipticCurvePublicKey,
    issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey],
    valid: tuple[datetime, datetime],
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
) -> x509.Certificate:
    """A certificate with a new serial; of every extension, whether who does not understand it must refuse."""
    issuer_name, issuer_key = issuer
    issued_with = x509.SubjectKeyIdentifier.from_public_key(issuer_key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issued_with), critical=False)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(issuer_key, SHA256())


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _now() -> datetime:
    return datetime.now(UTC)


def _moment(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"


def _hex(serial: int) -> str:
    return f"{serial:040x}"


def _serial(text: str) -> int:
    return int(text.replace(":", "") or "0", 16)


# --- files ------------------------------------------------------------------------------------------------------


class _Record(NamedTuple):
    """A line of issued.txt."""

    serial: int
    expires: datetime
    name: str
    hosts: list[str]


def _records(authority: Path) -> list[_Record]:
    records = []
    path = authority / ISSUED
    for number, line in enumerate(_bytes_of(path, b"").decode("utf-8", "replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            serial, expires, name, *hosts = line.split()
            records.append(_Record(int(serial, 16), datetime.fromisoformat(expires).astimezone(UTC), name, hosts))
        except ValueError:
            raise SettingsError(
                f"{path}, line {number}, is not a serial, a date, a name and hosts. Restore the file; it is the record "
                "of what was issued."
            ) from None
    return records


def _read_revoked(path: Path) -> frozenset[int]:
    """The serials on a list. A list that is missing or torn is refused: nothing is accepted for want of it."""
    serials = set()
    for number, line in enumerate(_bytes_of(path).decode("utf-8", "replace").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        if not _HEX.fullmatch(text):
            raise SettingsError(
                f"{path}, line {number}, is not a serial number in hexadecimal. Take the list anew from the authority; "
                "comments begin with '#'."
            )
        serials.add(_serial(text))
    return frozenset(serials)


def _read_authority(directory: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    path = directory / AUTHORITY_KEY
    if not path.exists():
        raise SettingsError(f"There is no authority in {directory}: make one with `colonnade certs init {directory}`.")
    key = _private_key(_secret_bytes(path), path)
    for certificate in _read_certificates(directory / AUTHORITY, "the authority's certificate"):
        if certificate.public_key() == key.public_key():
            return key, certificate
    raise SettingsError(f"The key {path} does not belong to {directory / AUTHORITY}. Restore the two from one backup.")


def _hand_out_authority(authority: Path, out: Path, issuer: x509.Certificate) -> None:
    """The authority's certificate and list beside a party's; another authority's that is there already stays."""
    if out.resolve() == authority.resolve():
        return
    held = out / AUTHORITY
    if held.exists():
        # Several in one file are the way from one authority to the next: leave them.
        if issuer not in _read_certificates(held, "an authority's certificate"):
            raise SettingsError(f"{held} is another authority's, and is not overwritten. Choose another --out.")
    else:
        write_atomically(held, issuer.public_bytes(Encoding.PEM), _READABLE)
    write_atomically(out / REVOKED, _bytes_of(authority / REVOKED, b""), _READABLE)


def _read_certificates(path: Path, what: str) -> list[x509.Certificate]:
    if not path.exists():
        raise SettingsError(f"There is no file {path}. Give {what}.")
    return _certificates(_bytes_of(path), str(path))


def _certificates(pem: bytes, where: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion):
        found = "a private key" if b"PRIVATE KEY-----" in pem else "something else"
        raise SettingsError(
            f"{where} is not a PEM certificate but {found}. Give the .pem file that `colonnade certs` wrote."
        ) from None


def _peer_certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except (ValueError, x509.InvalidVersion):
        raise ProtocolError(
            "What the peer showed is not a PEM certificate. It must show the one that the authority issued to it."
        ) from None


def _private_key(pem: bytes, path: Path) -> ec.EllipticCurvePrivateKey:
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


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _bytes_of(path: Path, absent: bytes | None = None) -> bytes:
    """A file's content; `absent` if there is no such file, where that is no mistake."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        if absent is not None:
            return absent
        raise SettingsError(f"There is no file {path}. `colonnade certs issue` writes what a party needs.") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.") from None


def _secret_bytes(path: Path) -> bytes:
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


@contextmanager
def _written(directory: Path) -> Iterator[None]:
    """Failures to write, in a sentence."""
    try:
        yield
    except FileExistsError as error:
        raise SettingsError(f"{error.filename} exists already. Choose another directory.") from None
    except OSError as error:
        raise RunError(f"{directory} could not be written to: {error.strerror}.") from error


@contextmanager
def _locked(authority: Path) -> Iterator[None]:
    """One change of an authority's record at a time."""
    with _written(authority):
        folder = os.open(authority, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
