"""An aligning party from its seat, by method and role."""

from types import ModuleType

from colonnade.alignment import ecdh, hashed
from colonnade.alignment.conversation import AligningParty
from colonnade.alignment.seat import AlignmentSeat

_METHODS: dict[str, ModuleType] = {"ecdh": ecdh, "hashed": hashed}


def build_aligning_party(seat: AlignmentSeat) -> AligningParty:
    """The label party or a feature party of the seat's method."""
    method = _METHODS[seat.method]
    party: AligningParty = (method.LabelParty if seat.name == seat.label_party else method.FeatureParty)(seat)
    return party
