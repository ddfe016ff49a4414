"""A line of TLS as somebody else would write it, from what the protocol says: both ends, for those who mean harm."""

import socket
import ssl
import tempfile
from contextlib import suppress

PATIENCE_SECONDS = 30.0
OURS = "colonnade/1"


class TlsCaller:
    """One connection with the certificate of one's choice; messages with their length before them."""

    def __init__(self, link: ssl.SSLSocket) -> None:
        self._link = link
        self.ending = ""  # how it ended, in Python's words

    @classmethod
    def calling(
        cls, port: int, authority: bytes, certificate: bytes | None, key: bytes | None, speaks: str = OURS
    ) -> "TlsCaller":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=authority.decode())
        context.set_alpn_protocols([speaks])
        if certificate is not None and key is not None:
            show(context, certificate, key)
        link = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        return cls(context.wrap_socket(link))

    def say(self, *words: bytes) -> None:
        with suppress(OSError):  # it has been closed: hearing tells why
            for word in words:
                self._link.sendall(len(word).to_bytes(4, "little") + word)

    def say_raw(self, data: bytes) -> None:
        with suppress(OSError):
            self._link.sendall(data)

    def hear(self) -> bytes | None:
        """The next message; None when it has ended, however."""
        head = self._read(4)
        length = int.from_bytes(head, "little")
        return self._read(length) if len(head) == 4 and length else None

    def _read(self, size: int) -> bytes:
        data = b""
        try:
            while len(data) < size:
                if not (more := self._link.recv(size - len(data))):
                    return b""
                data += more
        except OSError as error:
            self.ending = str(error)
            return b""
        return data

    def close(self) -> None:
        self._link.close()


def show(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(key + b"\n" + certificate)
        file.flush()
        context.load_cert_chain(file.name)
