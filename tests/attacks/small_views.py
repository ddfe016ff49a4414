"""Views written by hand: a transcript is a list of messages with their sender and receiver."""

from collections.abc import Sequence

from colonnade.attacks.view import PartyView, PooledView, WireView
from colonnade.messages import Message
from colonnade.party import Received, Send
from colonnade.trace import record_of
from colonnade.wire.codec import encode


def party_view(party: str, transcript: Sequence[tuple[str, str, Message]]) -> PartyView:
    """What `party` saw of this; messages between others are left out, as they would be."""
    records = []
    for now, (sender, receiver, message) in enumerate(transcript):
        frame = encode(message)
        if sender == party:
            records.append(record_of(Send(receiver, message), frame))
        elif receiver == party:
            records.append(record_of(Received(float(now), sender, message), frame))
    return PartyView(party, tuple(records))


def pooled_view(parties: Sequence[str], transcript: Sequence[tuple[str, str, Message]]) -> PooledView:
    """What these parties saw of it together."""
    return PooledView(tuple(party_view(party, transcript) for party in parties))


def wire_view(transcript: Sequence[tuple[str, str, Message]]) -> WireView:
    """What somebody saw who read every link."""
    return WireView(tuple((sender, receiver, encode(message)) for sender, receiver, message in transcript))
