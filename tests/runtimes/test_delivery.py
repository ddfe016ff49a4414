"""Two books that face each other: whatever is lost between them, every frame is taken once, in order."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import ProtocolError
from colonnade.runtimes.delivery import Delivery
from colonnade.wire.packets import DONE, FRAME, RESUME, Packet, PacketReader, header


def packets(parts: Iterable[bytes | bytearray]) -> list[Packet]:
    return [*PacketReader().feed(b"".join(parts))]


def numbers(parts: Iterable[bytes | bytearray]) -> list[int]:
    return [packet.number for packet in packets(parts) if packet.kind == FRAME]


def resumed(held: int = 0) -> Delivery:
    """A link whose peer has just said that it holds so much."""
    link = Delivery()
    link.resume()
    link.resumed(held)
    return link


def test_frames_are_numbered_from_one_and_given_once() -> None:
    link = resumed()
    assert not link.has_outgoing()
    link.send(bytearray(b"a"))
    link.send(bytearray(b"bc"))
    assert link.has_outgoing()
    assert link.kept_bytes == 3
    assert packets(link.outgoing()) == [
        Packet(FRAME, 1, 0, bytearray(b"a")),
        Packet(FRAME, 2, 0, bytearray(b"bc")),
    ]
    assert link.outgoing() == []
    link.send(bytearray(b"d"))
    assert numbers(link.outgoing()) == [3]


def test_a_frame_tells_what_was_taken() -> None:
    link = resumed()
    link.taken = 4
    assert link.told == 0
    link.send(bytearray(b"a"))
    assert packets(link.outgoing())[0].acknowledged == 4
    assert link.told == 4


def test_what_is_acknowledged_is_forgotten() -> None:
    link = resumed()
    for frame in (b"a", b"bc", b"def"):
        link.send(bytearray(frame))
    link.outgoing()
    link.acknowledged(2)
    assert [number for number, _ in link.kept] == [3]
    assert link.kept_bytes == 3
    link.acknowledged(1)  # an old word changes nothing
    assert [number for number, _ in link.kept] == [3]
    link.acknowledged(3)
    assert link.kept_bytes == 0
    link.send(bytearray(b"g"))
    assert numbers(link.outgoing()) == [4]


def test_a_frame_may_be_acknowledged_before_this_connection_was_given_it() -> None:
    link = resumed()
    link.send(bytearray(b"a"))
    link.send(bytearray(b"b"))
    link.acknowledged(1)  # it had come over the connection before
    assert numbers(link.outgoing()) == [2]


def test_after_a_reconnect_everything_kept_goes_again_but_not_before_the_peer_has_spoken() -> None:
    link = resumed()
    for frame in (b"a", b"b", b"c"):
        link.send(bytearray(frame))
    assert numbers(link.outgoing()) == [1, 2, 3]
    link.taken = 7
    assert packets([link.resume()]) == [Packet(RESUME, 3, 7, bytearray())]
    assert link.outgoing() == []
    link.resumed(1)
    assert numbers(link.outgoing()) == [2, 3]
    assert link.outgoing() == []


@pytest.mark.parametrize("say", [Delivery.acknowledged, Delivery.resumed])
def test_more_cannot_be_acknowledged_than_was_sent(say: object) -> None:
    link = resumed()
    link.send(bytearray(b"a"))
    link.outgoing()
    with pytest.raises(ProtocolError, match="frame 2 was acknowledged; only 1 were sent"):
        say(link, 2)  # type: ignore[operator]
    assert len(link.kept) == 1


def test_the_last_word_follows_the_last_frame_on_every_connection() -> None:
    link = resumed()
    link.send(bytearray(b"a"))
    link.last_word = header(DONE, 0, 0)
    assert [packet.kind for packet in packets(link.outgoing())] == [FRAME, DONE]
    assert not link.has_outgoing()
    link.resume()
    link.resumed(1)
    assert [packet.kind for packet in packets(link.outgoing())] == [DONE]


def test_a_restored_link_goes_on_with_its_numbers() -> None:
    link = resumed()
    for frame in (b"a", b"bc", b"def"):
        link.send(bytearray(frame))
    link.acknowledged(1)
    link.taken = 5
    frames: list[bytes | bytearray] = []
    state = link.state(frames)
    assert frames == [b"bc", b"def"]
    again, others = Delivery(), [bytearray(b"bc"), bytearray(b"def"), bytearray(b"of another link")]
    again.restore(state, others)
    assert others == [b"of another link"]
    assert (again.sent, again.taken, again.kept_bytes) == (3, 5, 5)
    again.send(bytearray(b"g"))
    assert again.resume() == header(RESUME, 4, 5)
    again.resumed(2)
    assert [(one.number, bytes(one.body)) for one in packets(again.outgoing())] == [(3, b"def"), (4, b"g")]


class End:
    """One end of a link: a delivery, and a receiver that takes what comes in order."""

    def __init__(self) -> None:
        self.link = Delivery()
        self.got: list[bytes] = []
        self.here = False  # whether the other end has said what it holds

    def hear(self, packet: Packet) -> None:
        if packet.kind == RESUME:
            self.here = True
            self.link.resumed(packet.acknowledged)
            return
        if packet.number == self.link.taken + 1:
            self.link.taken += 1
            self.got.append(bytes(packet.body))
        assert packet.number <= self.link.taken, "a gap"
        self.link.acknowledged(packet.acknowledged)

    def restarted(self) -> None:
        """Another life on the same books."""
        frames: list[bytes | bytearray] = []
        state = self.link.state(frames)
        self.link = Delivery()
        self.link.restore(state, [bytearray(frame) for frame in frames])


@given(
    story=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["send", "say", "hear", "restart"]), st.integers(0, 1)), st.just(("cut", 0))
        ),
        max_size=60,
    )
)
def test_whatever_is_cut_every_frame_is_taken_once_and_in_order(story: list[tuple[str, int]]) -> None:
    ends = [End(), End()]
    sent: list[list[bytes]] = [[], []]
    wires: list[list[Packet]] = [[], []]  # towards each end

    def cut() -> None:
        for place, end in enumerate(ends):
            end.here = False
            wires[1 - place] = packets([end.link.resume()])

    def say(place: int) -> None:
        if ends[place].here:
            wires[1 - place] += packets(ends[place].link.outgoing())

    def hear(place: int) -> None:
        if wires[place]:
            ends[place].hear(wires[place].pop(0))

    cut()
    for what, place in story:
        match what:
            case "send":
                sent[place].append(b"%d of %d" % (len(sent[place]), place))
                ends[place].link.send(bytearray(sent[place][-1]))
            case "say":
                say(place)
            case "hear":
                hear(place)
            case "restart":
                ends[place].restarted()
                cut()
            case _:
                cut()
    for _ in range(4):
        for place in (0, 1):
            say(place)
            while wires[place]:
                hear(place)
    assert ends[0].got == sent[1]
    assert ends[1].got == sent[0]
