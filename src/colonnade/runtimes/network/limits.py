"""How long and how large: every pause and every size of the network runtime, and what gRPC is told of them."""

CHUNK_BYTES = 1 << 21
"""Packets go out in pieces of at most this size: a piece is what a receiver must hold at once."""
LARGEST_PIECE_BYTES = 2 * CHUNK_BYTES + (1 << 16)
RELAY_BYTES = 32 << 20  # envelopes that wait for one party, before those who send them are not read from
HELLO_SECONDS = 10.0
FIRST_RETRY_SECONDS = 0.2
LONGEST_RETRY_SECONDS = 10.0
EXPIRY_CHECK_SECONDS = 20.0
PARTING_SECONDS = 5.0
MOST_KNOCKS = 1 << 16

OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_PIECE_BYTES),
    ("grpc.max_send_message_length", LARGEST_PIECE_BYTES),
    # A peer whose machine is gone without a word is noticed by these.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]
SERVER_OPTIONS = [
    ("grpc.so_reuseport", 0),  # else a second label party would share the port, and the guests, without a word
    ("grpc.server_handshake_timeout_ms", int(1000 * HELLO_SECONDS)),
]
