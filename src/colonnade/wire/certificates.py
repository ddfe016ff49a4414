"""Who is who: a party's own key and certificate, those of its peers, and when to believe them.

A party is known by the name in its certificate, once as the common name and once as an alternative name, which is what
TLS compares. No message and no `repr` shows a private key. An unusable local file raises SettingsError, a
peer's certificate that is not credible ProtocolError.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from colonnade.errors import ProtocolError, SettingsError
from colonnade.names import is_party_name
from colonnade.wire.certificate_files import (
    bytes_of,
    certificates_of,
    in_hex,
    moment,
    private_key_of,
    read_certificates,
    read_revoked,
    secret_bytes,
    utc_now,
)

# Between a renewal's two renames a reader may meet the new key with the old certificate; it looks again.
_LOOKS, _SECONDS_BETWEEN_LOOKS = 10, 0.02
_GRAIN_NANOSECONDS = 100_000_000
# What parsing an extension may raise; none of them comes from a certificate that was made here.
_UNREADABLE = (ValueError, TypeError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)


@dataclass(frozen=True)
class Credentials:
    """What a party shows of itself and trusts in others, checked. `revoked` are serial numbers."""

    name: str
    key_pem: bytes = field(repr=False)
    certificate_pem: bytes = field(repr=False)
    authority_pem: bytes = field(repr=False)
    revoked: frozenset[int] = field(repr=False)
    expires: datetime
    good_between: tuple[datetime, datetime] = field(repr=False)  # while nothing of it has to be looked at again


class CertificateFacts(NamedTuple):
    """What a certificate says, believed or not."""

    name: str
    serial: str
    issuer: str
    is_authority: bool
    valid_from: datetime
    expires: datetime
    hosts: list[str]


# --- a party ----------------------------------------------------------------------------------------------------


def read_credentials(
    key: Path, certificate: Path, authority: Path, revoked: Path | None, expected_name: str | None = None
) -> Credentials:
    """A party's own credentials from its files, with every check that its peers will make.

    Reading them again after a renewal gives the new ones, never a key with another key's certificate.
    """
    authority_pem = bytes_of(authority)
    authorities = certificates_of(authority_pem, str(authority))
    serials = frozenset() if revoked is None else read_revoked(revoked)
    for _ in range(_LOOKS):
        key_pem = secret_bytes(key)
        private = private_key_of(key_pem, key)
        certificate_pem = bytes_of(certificate)
        own = certificates_of(certificate_pem, str(certificate))[0]
        if own.public_key() == private.public_key():
            break
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    else:
        raise SettingsError(
            f"The key {key} does not belong to the certificate {certificate}. Give the two files that one "
            "`colonnade certs issue` wrote, or issue them anew."
        )
    if fault := _fault(own, authorities, serials, utc_now()):
        raise SettingsError(f"The certificate {certificate} {fault}")
    name = _common_name(own)
    if expected_name is not None and name != expected_name:
        raise SettingsError(
            f"The certificate {certificate} is that of {name!r}, but this party is {expected_name!r}. Give the key and "
            f"the certificate that were issued for {expected_name!r}."
        )
    between = _good_between(own, authorities)
    return Credentials(name, key_pem, certificate_pem, authority_pem, serials, own.not_valid_after_utc, between)


class CredentialFiles:
    """A party's files, asked for at every connection: read again when one of them has changed, checked at every time.

    Reading and checking them takes a millisecond or more, and strangers decide how often somebody connects.
    """

    def __init__(
        self, key: Path, certificate: Path, authority: Path, revoked: Path | None, expected_name: str | None = None
    ) -> None:
        self._paths = (key, certificate, authority, revoked)
        self._expected_name = expected_name
        self._known: tuple[list[tuple[int, ...]], Credentials] | None = None

    def read(self) -> Credentials:
        """As `read_credentials`; called in several threads."""
        looks = [_look_of(path) for path in self._paths if path is not None]
        known = self._known
        if known is not None and None not in looks and known[0] == looks:
            first, last = known[1].good_between
            if first <= utc_now() <= last:
                return known[1]
        self._known = None
        found = read_credentials(*self._paths, self._expected_name)
        settled = [look for look in looks if look is not None and _is_settled(look)]
        if len(settled) == len(looks):
            self._known = settled, found
        return found


def _look_of(path: Path) -> tuple[int, ...] | None:
    """What tells a file from the same file changed; None if there is none to be seen."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _is_settled(look: tuple[int, ...]) -> bool:
    """Whether the last change is so long ago that another since would show: times have a grain of some milliseconds."""
    return abs(time.time_ns() - look[-1]) > _GRAIN_NANOSECONDS


def check_peer(
    certificate_pem: bytes,
    authority_pem: bytes,
    revoked: frozenset[int],
    now: datetime | None = None,
    shown: str = "that the peer showed",
) -> str:
    """The name of the party whose certificate this is, if it is one to be believed now."""
    authorities = certificates_of(authority_pem, "the authority's certificate")
    certificate = _peer_certificate(certificate_pem)
    if fault := _fault(certificate, authorities, revoked, now or utc_now()):
        raise ProtocolError(f"The certificate {shown} {fault}")
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
    return private_key_of(credentials.key_pem, Path(f"{credentials.name}.key"))


def read_facts(path: Path) -> list[CertificateFacts]:
    """What the certificates in a file say; nothing is checked."""
    return [facts_of(certificate) for certificate in read_certificates(path, "a certificate")]


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
                f"of {name!r}, serial {in_hex(certificate.serial_number)}, was revoked. Only a new one from the "
                "authority will do."
            )
    except _UNREADABLE:
        return "has parts that cannot be read. Issue it with `colonnade certs`."
    return ""


def _good_between(own: x509.Certificate, authorities: Sequence[x509.Certificate]) -> tuple[datetime, datetime]:
    """From when until when a certificate that is good now stays so, as far as times go."""
    now = utc_now()
    issuers = [one for one in authorities if _is_issued_by(own, one) and not _date_fault(one, "", "", now)]
    issuer = max(issuers, key=lambda one: one.not_valid_after_utc, default=own)
    first = max(own.not_valid_before_utc, issuer.not_valid_before_utc)
    return first, min(own.not_valid_after_utc, issuer.not_valid_after_utc)


def _date_fault(certificate: x509.Certificate, whose: str, remedy: str, now: datetime) -> str:
    if now > certificate.not_valid_after_utc:
        return f"{whose} expired on {moment(certificate.not_valid_after_utc)}: {remedy}."
    if now < certificate.not_valid_before_utc:
        return (
            f"{whose} is not valid before {moment(certificate.not_valid_before_utc)}, and the clock here says "
            f"{moment(now)}: set the clock right, here or where it was issued."
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


def facts_of(certificate: x509.Certificate) -> CertificateFacts:
    """What a certificate says; nothing is checked."""
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
        in_hex(certificate.serial_number),
        _issuer_name(certificate.issuer),
        is_authority,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        hosts,
    )


def _peer_certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except (ValueError, x509.InvalidVersion):
        raise ProtocolError(
            "What the peer showed is not a PEM certificate. It must show the one that the authority issued to it."
        ) from None
