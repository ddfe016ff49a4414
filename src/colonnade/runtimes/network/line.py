"""What every carrier gives the two ends of the network: a line, on which whole messages are heard and said in order.

A line is an open, encrypted connection to one other program, with the certificate that this has shown. How it comes
about is the carrier's own: TLS over a socket (`tls_lines.py`), or a stream of gRPC (`grpc_lines.py`). Who may say what
on it, and how often, its users decide.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Protocol

from colonnade.wire.certificates import Credentials

Heard = bytes | bytearray | memoryview
Take = Callable[[Heard], float | None]
"""Takes a message at once and gives after how many seconds it takes the next; None: it has not taken it."""


class LineEndedError(Exception):
    """Nothing more can be said on a line; who reads from it hears why."""


class UnreachableError(Exception):
    """A line could not be opened, or broke.

    `is_stranger`: for the certificate that the other side showed. `speaks`: what carrier is wanted there.
    """

    def __init__(self, sentence: str, is_stranger: bool = False, speaks: str = "") -> None:
        super().__init__(sentence)
        self.is_stranger = is_stranger
        self.speaks = speaks


class Line(ABC):
    """One open line, whichever carrier's."""

    certificate: bytes = b""  # what the other side showed, as PEM; nothing if it showed none
    take: Take | None = None  # is offered what is heard while somebody waits for it; where a carrier does so
    is_direct = False  # whether `put` may be used

    @abstractmethod
    async def read(self) -> Heard | None:
        """The next message; None when the other side says no more. UnreachableError: the line broke."""

    @abstractmethod
    async def write(self, message: bytes) -> None:
        """Say this, once there is room for it. LineEndedError if it cannot be said."""

    def put(self, message: bytes) -> None:
        """The same at once, for few messages; what there is no room for waits here. Only if `is_direct`."""
        raise NotImplementedError

    @property
    def is_clear(self) -> bool:
        """Whether nothing waits here to be sent."""
        return True

    @abstractmethod
    async def conclude(self) -> None:
        """Say that this was the last word, after everything before it."""

    @abstractmethod
    def close(self) -> None:
        """End at once, in both directions; who reads is told that nothing more comes."""

    def greeted(self) -> None:
        """Who is at the other end is known: longer messages may come."""
        return


Serve = Callable[[Line], Coroutine[Any, Any, None]]


class Porter(Protocol):
    """What a listener tells of those who come, and asks for; called in any thread."""

    def knock(self) -> None:
        """A connection has come."""

    def own(self) -> Credentials | None:
        """What to show to those who come now; None if it cannot be read."""

    def tell_of_fault(self, sentence: str, *values: object) -> None: ...


class Listener(ABC):
    """The label party's port."""

    carrier: ClassVar[str]

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    async def start(self, own: Credentials, porter: Porter, serve: Serve) -> int:
        """Listen, and serve every line that comes in a task of its own, until this ends; the port, 0 if it is taken."""

    @abstractmethod
    async def stop(self) -> None:
        """End; lines that are open have a moment to end before."""


class Dialler(ABC):
    """How the label party is reached."""

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    def line(self, own: Credentials, label_party: str) -> AbstractAsyncContextManager[Line]:
        """A line to what answers there, open until the context ends. UnreachableError: there is none."""

    def stranger(self, label_party: str) -> UnreachableError:
        """Somebody answered, who is not the label party."""
        return UnreachableError(
            f"What answers at {self.address} could not show a certificate of {label_party} from our authority. Check "
            "the address, and that both parties' certificates are of the same authority.",
            is_stranger=True,
        )

    def refused(self, own: Credentials, label_party: str) -> UnreachableError:
        """The other side ended TLS: our own certificate was found good when it was read, so it is of another mind."""
        return UnreachableError(
            f"What answers there closes the connection before a word. If it is {label_party}, its TLS does not accept "
            f"the certificate of {own.name}, which by our clock is valid until {own.expires:%Y-%m-%d %H:%M} UTC: "
            f"compare authority.pem, and the clock, with those of {label_party}."
        )
