"""A small authority: it makes the parties' keys and certificates, keeps a record of them, and revokes them.

Its directory has four files. A private key is readable by its owner alone from its first byte on.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from colonnade.errors import RunError, SettingsError, unknown_name
from colonnade.files import alone_in, make_folder, write_atomically, write_new
from colonnade.names import check_party_name
from colonnade.wire.certificate_files import (
    HEX,
    bytes_of,
    in_hex,
    moment,
    private_key_of,
    private_pem,
    read_certificates,
    read_revoked,
    secret_bytes,
    serial_of,
    utc_now,
)

AUTHORITY_KEY, AUTHORITY, ISSUED, REVOKED = "authority.key", "authority.pem", "issued.txt", "revoked.txt"
"""The files of an authority's directory. The first is its secret, the second and the last go to every party."""

MOST_DAYS = 36_500

_READABLE, _SECRET = 0o644, 0o600
_BACKDATED = timedelta(hours=1)  # clocks of two organisations differ; a certificate is of use at once
_HOST_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_HOST_LABEL}(\.{_HOST_LABEL})*")


@dataclass(frozen=True)
class Issued:
    """A new certificate, and where it and its key are."""

    name: str
    serial: int
    expires: datetime
    key: Path
    certificate: Path
    authority: Path


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
    now = utc_now()
    certificate = _signed(
        subject,
        key.public_key(),
        (subject, key),
        (now - _BACKDATED, now + timedelta(days=days)),
        [(x509.BasicConstraints(ca=True, path_length=0), True), (_key_usage(signs_certificates=True), True)],
    )
    with _written(directory):
        make_folder(directory)
        write_new(directory / AUTHORITY_KEY, private_pem(key), _SECRET)  # of two who do this at once, one is told
        try:
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
    now = utc_now()
    expires = now + timedelta(days=days)
    if expires > issuer.not_valid_after_utc:
        left = (issuer.not_valid_after_utc - now).days
        raise SettingsError(
            f"The authority in {authority} itself is valid until {moment(issuer.not_valid_after_utc)}, so a "
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
            make_folder(out)
            _hand_out_authority(authority, out, issuer)
            # On record before it exists anywhere: what was issued can be revoked.
            line = " ".join([in_hex(serial), expires.strftime("%Y-%m-%dT%H:%M:%SZ"), name, *hosts])
            record = authority / ISSUED
            write_atomically(record, bytes_of(record, b"") + f"{line}\n".encode(), _READABLE)
            write_atomically(out / f"{name}.key", private_pem(key), _SECRET)
            write_atomically(out / f"{name}.pem", certificate.public_bytes(Encoding.PEM), _READABLE)
    return Issued(
        name, serial, certificate.not_valid_after_utc, out / f"{name}.key", out / f"{name}.pem", out / AUTHORITY
    )


def revoke(authority: Path, name_or_serial: str) -> tuple[int, ...]:
    """Put every valid certificate of a party, or the one of a serial number, on the list; returns what is new on it."""
    read_certificates(authority / AUTHORITY, "the directory of an authority made by `colonnade certs init`")
    with _locked(authority):
        records = _records(authority)
        chosen = [one for one in records if one.name == name_or_serial]
        if not chosen and HEX.fullmatch(name_or_serial):
            serial = serial_of(name_or_serial)
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
        before = read_revoked(listed) if listed.exists() else frozenset()
        now = utc_now()
        fresh = [one for one in chosen if one.serial not in before and one.expires > now]
        if fresh:
            lines = "".join(f"{in_hex(one.serial)}  # {one.name}, revoked {now:%Y-%m-%d}\n" for one in fresh)
            with _written(authority):
                write_atomically(listed, bytes_of(listed, b"") + lines.encode(), _READABLE)
    return tuple(one.serial for one in fresh)


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
    revoked = read_revoked(authority / REVOKED) if (authority / REVOKED).exists() else frozenset()
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


class _Record(NamedTuple):
    """A line of issued.txt."""

    serial: int
    expires: datetime
    name: str
    hosts: list[str]


def _records(authority: Path) -> list[_Record]:
    records = []
    path = authority / ISSUED
    for number, line in enumerate(bytes_of(path, b"").decode("utf-8", "replace").splitlines(), 1):
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


def _read_authority(directory: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    path = directory / AUTHORITY_KEY
    if not path.exists():
        raise SettingsError(f"There is no authority in {directory}: make one with `colonnade certs init {directory}`.")
    key = private_key_of(secret_bytes(path), path)
    for certificate in read_certificates(directory / AUTHORITY, "the authority's certificate"):
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
        if issuer not in read_certificates(held, "an authority's certificate"):
            raise SettingsError(f"{held} is another authority's, and is not overwritten. Choose another --out.")
    else:
        write_atomically(held, issuer.public_bytes(Encoding.PEM), _READABLE)
    write_atomically(out / REVOKED, bytes_of(authority / REVOKED, b""), _READABLE)


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
    with ExitStack() as held:
        with _written(authority):
            held.enter_context(alone_in(authority))
        yield
