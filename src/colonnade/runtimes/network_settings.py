"""`[network]` of a federation.toml: what organisations must agree on to find one another."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Network:
    """Where the label party is, and whose randomness is whose."""

    name: ClassVar[str] = "network"
    address: str = ""  # host:port at which feature parties reach the label party
    # Noise, directions, masks and first weights follow from entropy that each party draws for itself. With false they
    # follow from the shared seed, as in a simulation: repeatable, and computable by every other party.
    private_randomness: bool = True
