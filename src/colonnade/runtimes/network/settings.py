"""`[network]` of a federation.toml: what organisations must agree on to find one another."""

from dataclasses import dataclass
from typing import ClassVar

from colonnade.errors import SettingsError, unknown_name

CARRIERS = ("tls", "grpc")


@dataclass(frozen=True)
class NetworkSettings:
    """Where the label party is, and whose randomness is whose."""

    name: ClassVar[str] = "network"
    address: str = ""
    """`host:port` at which feature parties reach the label party"""
    private_randomness: bool = True
    """noise, directions, masks and first weights follow from entropy that each party draws for itself. With false they
    follow from the shared seed, as in a simulation: repeatable, and computable by every other party, so that noise
    protects nothing (ε = ∞), a target is refused, and masks hide nothing"""
    carrier: str = "tls"
    """what carries messages between organisations: `"tls"`, one socket per party with TLS 1.3, or `"grpc"`, a stream of
    HTTP/2, slower, for where a proxy wants that. The same at all parties; another is refused by name"""

    def __post_init__(self) -> None:
        if self.carrier not in CARRIERS:
            raise unknown_name("network.carrier", self.carrier, CARRIERS)
        if self.address:
            parse_address(self.address, "[network] address")


def parse_address(text: str, setting: str, *, any_port: bool = False) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 host stands in brackets. `any_port`: also 0, for one that is free.

    >>> parse_address("bank.example.org:7443", "[network] address"), parse_address("[::1]:7443", "[party] listen")
    (('bank.example.org', 7443), ('::1', 7443))
    """
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_host = bare and (bare == host) == (":" not in bare) and not any(one.isspace() or one in "/[]" for one in bare)
    is_port = port.isascii() and port.isdecimal() and len(port) < 6 and (0 if any_port else 1) <= int(port) <= 65535
    if not is_host or not is_port:
        raise SettingsError(
            f"{setting} is {text!r}; write it as host:port, such as 127.0.0.1:7443 or [::1]:7443, with a port from "
            f"{0 if any_port else 1} to 65535."
        )
    return bare, int(port)
