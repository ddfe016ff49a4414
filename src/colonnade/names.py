"""What a party may be called. The name stands in file names, certificates, logs and on the wire, so it is plain."""

import re

from colonnade.errors import SettingsError

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TAKEN = "simulate"  # the simulation's own checkpoints lie beside the parties'


def is_party_name(name: str) -> bool:
    return _PLAIN.fullmatch(name) is not None and name != _TAKEN


def check_party_name(name: str) -> None:
    """Refuse what cannot be a party's name."""
    if not is_party_name(name):
        raise SettingsError(
            f"The party name {name!r} will not do: use letters, digits, '_', '-' and '.', at most 64, "
            f"beginning with a letter or digit; {_TAKEN!r} is taken."
        )
