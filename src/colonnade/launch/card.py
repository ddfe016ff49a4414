"""A model's card as a file: written with every finished run, signed by parties on request, verified by anybody.

card.json is one JSON object, written in one way only, so that no byte of it can change unseen: `card`, and the
`signatures` of those who have signed that very card. Each signature has its certificate beside it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colonnade.errors import ProtocolError, RunError, SettingsError
from colonnade.files import SHARED, check_depth, json_of, json_text, make_folder, read_whole, write_atomically
from colonnade.reports.card import FORMAT, card_of, weights_of
from colonnade.reports.card_page import card_text
from colonnade.wire.certificate_files import bytes_of, moment, read_revoked
from colonnade.wire.certificates import read_credentials
from colonnade.wire.signatures import Signed, authority_files, check_signature, sign

CARD, PAGE = "card.json", "card.md"
_PURPOSE = "model card"
_MOST_BYTES = 1 << 24


@dataclass(frozen=True)
class KeyFiles:
    """What a party signs with: files of `colonnade certs issue`."""

    key: Path
    certificate: Path
    authority: Path | None = None  # None: authority.pem beside the certificate
    revoked: Path | None = None


@dataclass(frozen=True)
class Signer:
    """Who has signed a card, and by which certificate that is believed."""

    name: str
    signed_at: str
    serial: str
    expires: datetime


def write_card(folder: Path, out: Path | None = None, keys: KeyFiles | None = None) -> Path:
    """Make the card of a run or a model; signed by whoever's keys are given, besides those who have signed it before.

    What others have signed stays signed as long as the card says the same.
    """
    out = folder if out is None else out
    card = card_of(folder)
    before = _read(out / CARD) if (out / CARD).is_file() else None
    signatures = [*before["signatures"]] if before and before["card"] == json.loads(_encoded(card)) else []
    if keys is not None:
        mine = _signature(card, keys)
        signatures = [one for one in signatures if one["name"] != mine["name"]] + [mine]
    try:
        if not out.is_dir():
            make_folder(out, mode=SHARED)
        write_atomically(out / CARD, _encoded({"format": FORMAT, "card": card, "signatures": signatures}))
        write_atomically(out / PAGE, card_text(card, signatures).encode())
    except OSError as error:
        raise RunError(f"The card could not be written to {out}: {error.strerror}. Choose another folder.") from None
    return out / CARD


def verify_card(
    path: Path, authority: Path, revoked: Path | None = None, model: Path | None = None
) -> tuple[dict[str, Any], list[Signer]]:
    """The card and who has signed it, if every signature holds. RunError or ProtocolError says what does not.

    `model`: a run or a model whose weights must be those of the card.
    """
    whole = _read(path)
    if not whole["signatures"]:
        raise RunError(f"{path} is not signed: it says what anybody may have written.")
    certificate, listed = authority_files(authority, revoked)
    authority_pem = bytes_of(certificate)
    serials = frozenset() if listed is None else read_revoked(listed)
    signers = []
    for one in whole["signatures"]:
        try:
            signed = Signed(one["certificate"].encode(), bytes.fromhex(one["signature"]))
            if signed.signature.hex() != one["signature"]:
                raise _changed(path)  # in capitals, or with spaces
            facts = check_signature(_signed_bytes(whole["card"], one), _PURPOSE, signed, authority_pem, serials)
        except ProtocolError as error:
            raise RunError(f"{path} is not to be believed. {error}") from None
        except ValueError:
            raise _changed(path) from None
        if facts.name != one["name"]:
            raise RunError(f"{path} says that {one['name']} signed it, but the certificate is that of {facts.name}.")
        _check_member(whole["card"], facts.name)
        signers.append(Signer(facts.name, one["signed_at"], facts.serial, facts.expires))
    if model is not None:
        _check_weights(whole["card"], model, path)
    return whole["card"], signers


def _signature(card: Mapping[str, Any], keys: KeyFiles) -> dict[str, Any]:
    authority, revoked = authority_files(keys.authority or keys.certificate.with_name("authority.pem"), keys.revoked)
    own = read_credentials(keys.key, keys.certificate, authority, revoked)
    _check_member(card, own.name)
    made = {"name": own.name, "signed_at": moment(datetime.now(UTC))}
    signed = sign(_signed_bytes(card, made), _PURPOSE, own)
    return {**made, "certificate": signed.certificate_pem.decode(), "signature": signed.signature.hex()}


def _check_member(card: Mapping[str, Any], name: str) -> None:
    members = [card["model"]["label_party"], *card["model"]["feature_parties"]]
    if name not in members:
        raise SettingsError(
            f"{name} is no party of this model, so it cannot sign its card; its parties are "
            f"{', '.join(str(one) for one in members)}. Give the key and the certificate of one of them."
        )


def _check_weights(card: Mapping[str, Any], model: Path, path: Path) -> None:
    for party, digest in weights_of(model).items():
        if card["weights"].get(party) != digest:
            raise RunError(
                f"The weights of {party} in {model} are not those of {path}: it is the card of another model."
            )


def _signed_bytes(card: Mapping[str, Any], one: Mapping[str, Any]) -> bytes:
    return _encoded({"card": card, "name": one["name"], "signed_at": one["signed_at"]})


def _encoded(value: Any) -> bytes:
    """The one way to write it: keys in order, no infinity."""
    return json_text(value, sort_keys=True, ensure_ascii=False, allow_nan=False) + b"\n"


def _read(path: Path) -> dict[str, Any]:
    """A card.json, byte for byte as one is written."""
    try:
        content = read_whole(path, _MOST_BYTES, links=True)
    except FileNotFoundError:
        raise SettingsError(f"There is no card {str(path)!r}. `colonnade card RUN` writes one.") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.") from None
    try:
        value = json_of(content)
        check_depth(value)
        number = value["format"]
        if isinstance(number, int) and number > FORMAT:
            raise SettingsError(f"{path} has the format {number}, and this version of Colonnade reads up to {FORMAT}.")
        if _encoded(value) == content and _has_form(value):
            return dict(value)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise _changed(path)


def _has_form(value: Mapping[str, Any]) -> bool:
    """Whether all that is read of it is there."""
    model, weights = value["card"]["model"], value["card"]["weights"]
    texts = [one[key] for one in value["signatures"] for key in ("name", "signed_at", "certificate", "signature")]
    return (
        all(isinstance(text, str) for text in texts)
        and isinstance(weights, dict)
        and isinstance(model["label_party"], str)
        and isinstance(model["feature_parties"], list)
    )


def _changed(path: Path) -> RunError:
    return RunError(f"{path} is not a card as it was written: some byte of it has been changed. Take it from a copy.")
