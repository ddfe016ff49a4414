"""How long, how large and how often: every bound of the network runtime, and what gRPC is told of them."""

import logging
import resource

log = logging.getLogger("colonnade.network")

CHUNK_BYTES = 1 << 21
"""Packets go out in pieces of at most this size: a piece is what a receiver must hold at once."""
LARGEST_PIECE_BYTES = 2 * CHUNK_BYTES + (1 << 16)
SLICE_BYTES = 1 << 16  # of a piece, before other streams are looked at

# --- the port ---

MOST_CONNECTIONS = 1024  # at once, of everybody; and no more than half of the files that the process may open
KNOCKS_PER_SECOND = 32  # connections; more of them a second, besides two per party, are a flood
HANDSHAKE_SECONDS = 10.0
IDLE_SECONDS = 5.0  # a connection of gRPC without a stream is closed after this
STREAMS_PER_CONNECTION = 8
KEEPALIVE_SECONDS, KEEPALIVE_PATIENCE_SECONDS = 10.0, 5.0
"""A peer whose machine is gone without a word is noticed so: asked after the first, away after the second on top."""
OTHER_CARRIER = 'this label party has [network] carrier = "tls"'  # what a caller with gRPC is told, in HTTP/2

# --- one party ---

HELLO_SECONDS = 10.0
LARGEST_HELLO_BYTES = 1 << 18
STREAMS_PER_PARTY = 4  # at once, before their Hello or after it; one of them carries packets
GREETINGS_PER_SECOND, GREETINGS_AT_ONCE = 2.0, 20
VAIN_SHARE, LEAST_VAIN_SHARE, VAIN_SECONDS = 0.1, 0.02, 0.05
"""Bytes that bring nothing new may take this share of a party's time, divided among its peers; so much at once."""
BYTE_SECONDS, FRAME_SECONDS, MESSAGE_SECONDS = 2e-9, 3e-4, 1e-4
"""What a byte and a frame that is new may take without being in vain; what a message takes that brings none."""
NEIGHBOURLY_SECONDS = 1.0  # of such time that another feature party may be behind with, before it is not listened to
RELAY_BYTES = 32 << 20  # envelopes of one sender that wait for others, before it is not read from
RELAY_PATIENCE_SECONDS = 30.0  # how long it is then not read from

# --- waiting ---

LOOK_SECONDS = 0.2  # at what no event tells of: a request to stop, who is awaited, how far everybody is

WELCOME_SECONDS = 60.0  # the label party may be at a long piece of work
FIRST_RETRY_SECONDS = 0.2
LONGEST_RETRY_SECONDS = 10.0
EXPIRY_CHECK_SECONDS = 20.0
PARTING_SECONDS = 5.0
LAST_WORD_SECONDS = 1.0  # for the other side to end a connection that is over
CLOSING_SECONDS = 0.5  # for all connections, when the label party ends
MOMENT_OF_WAITING_SECONDS = 2.0  # who comes within it is not worth a word
FIRST_WORD_OF_WAITING_SECONDS, LONGEST_SILENCE_SECONDS = 30.0, 3600.0

OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_PIECE_BYTES),
    ("grpc.max_send_message_length", LARGEST_PIECE_BYTES),
    ("grpc.keepalive_time_ms", int(1000 * KEEPALIVE_SECONDS)),
    ("grpc.keepalive_timeout_ms", int(1000 * KEEPALIVE_PATIENCE_SECONDS)),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]
SERVER_OPTIONS = [
    ("grpc.so_reuseport", 0),  # else a second label party would share the port, and the guests, without a word
    ("grpc.server_handshake_timeout_ms", int(1000 * HANDSHAKE_SECONDS)),
    ("grpc.max_connection_idle_ms", int(1000 * IDLE_SECONDS)),
    ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
]


def connections_at_once() -> int:
    """How many connections the label party takes: journal, checkpoints and its own files need the rest."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else max(16, min(MOST_CONNECTIONS, files // 2))


def raise_file_limit() -> None:
    """Allow this process as many open files as it may allow itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # such as a system whose hard limit is more than it grants
            log.debug("the limit of open files stays %d", soft)
