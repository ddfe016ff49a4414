"""What a party signs for others to read later: bytes, under the key of its certificate (ECDSA, SHA-256).

The certificate travels with the signature. Whoever verifies needs the authority's certificate, and nothing secret.
"""

from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from colonnade.errors import ProtocolError
from colonnade.wire.certificate_files import certificates_of
from colonnade.wire.certificates import (
    CertificateFacts,
    Credentials,
    check_peer,
    facts_of,
    peer_public_key,
    signing_key,
)


class Signed(NamedTuple):
    """A signature, and the certificate of whoever made it."""

    certificate_pem: bytes
    signature: bytes


def sign(content: bytes, purpose: str, own: Credentials) -> Signed:
    """Sign bytes. `purpose`: what they are, so that a signature for one thing is none for another."""
    signature = signing_key(own).sign(_whole(content, purpose), ec.ECDSA(SHA256()))
    return Signed(_as_written(own.certificate_pem), signature)


def check_signature(
    content: bytes, purpose: str, signed: Signed, authority_pem: bytes, revoked: frozenset[int]
) -> CertificateFacts:
    """What the certificate of the signer says, if these very bytes were signed with its key and it is to be believed.

    Else ProtocolError.
    """
    name = check_peer(signed.certificate_pem, authority_pem, revoked, shown="of the signature")
    if signed.certificate_pem != _as_written(signed.certificate_pem):
        raise ProtocolError(f"The certificate of {name!r} beside its signature has been written otherwise since.")
    try:
        peer_public_key(signed.certificate_pem).verify(signed.signature, _whole(content, purpose), ec.ECDSA(SHA256()))
    except InvalidSignature:
        raise ProtocolError(
            f"The signature of {name!r} does not fit: what was signed has been changed since, or was signed with "
            "another key."
        ) from None
    return facts_of(certificates_of(signed.certificate_pem, "the signer's certificate")[0])


def _as_written(certificate_pem: bytes) -> bytes:
    """In the one form of several that PEM allows: the last bits of its base64, spaces and line ends may differ."""
    found = certificates_of(certificate_pem, "the signer's certificate")
    return b"".join(one.public_bytes(Encoding.PEM) for one in found)


def _whole(content: bytes, purpose: str) -> bytes:
    return f"colonnade {purpose}\0".encode() + content


def authority_files(authority: Path, revoked: Path | None) -> tuple[Path, Path | None]:
    """The authority's certificate and its list of revoked ones, which lies beside it unless another is named.

    `authority`: its certificate, or the directory that holds it.
    """
    certificate = authority / "authority.pem" if authority.is_dir() else authority
    beside = certificate.with_name("revoked.txt")
    return certificate, revoked or (beside if beside.exists() else None)
