"""The carriers of the network by name: how lines come about. Each is loaded when it is asked for."""

from colonnade.runtimes.network.line import Dialler, Listener


def listener(carrier: str, address: str) -> Listener:
    """The label party's port."""
    if carrier == "grpc":
        from colonnade.runtimes.network.grpc_lines import GrpcListener

        return GrpcListener(address)
    from colonnade.runtimes.network.tls_lines import TlsListener

    return TlsListener(address)


def dialler(carrier: str, address: str) -> Dialler:
    """A feature party's way to it."""
    if carrier == "grpc":
        from colonnade.runtimes.network.grpc_lines import GrpcDialler

        return GrpcDialler(address)
    from colonnade.runtimes.network.tls_lines import TlsDialler

    return TlsDialler(address)
