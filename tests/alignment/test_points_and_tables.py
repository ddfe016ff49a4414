"""The arithmetic under an alignment: points, scalars, tables, and processes that multiply."""

import random
from functools import cache

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.alignment import jacobi, multiplication
from colonnade.alignment.curve25519 import multiples
from colonnade.alignment.jacobi import are_squares
from colonnade.alignment.lookup import Lookup
from colonnade.alignment.multiplication import Multipliers, Multiply, multiply, quickest
from colonnade.alignment.points import hashed_to_curve
from colonnade.alignment.scalars import ORDER, blinding_pair, clamped
from colonnade.alignment.tables import cells_for, filled, keystream, read
from colonnade.data.absence import NOWHERE

PRIME = 2**255 - 19


def words(numbers: list[int]) -> np.ndarray:
    return np.frombuffer(b"".join(one.to_bytes(32, "little") for one in numbers), "<u8").reshape(-1, 4)


@settings(max_examples=30)
@given(st.lists(st.integers(0, PRIME - 1), min_size=1, max_size=20))
def test_squares_are_those_of_eulers_criterion(numbers: list[int]) -> None:
    wanted = [pow(one, (PRIME - 1) // 2, PRIME) == 1 for one in numbers]
    assert are_squares(words(numbers)).tolist() == wanted


def test_another_process_finds_the_same_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = words([random.Random(place).randrange(PRIME) for place in range(50)])
    monkeypatch.setattr(jacobi, "MANY", 10)
    with jacobi.SquareFinder(50) as squares:
        assert squares is not are_squares and squares(numbers).tolist() == are_squares(numbers).tolist()
    with jacobi.SquareFinder(5) as squares:
        assert squares is are_squares


def test_every_id_is_hashed_to_the_curve_and_another_domain_to_another_point() -> None:
    keys = [str(number).encode() for number in range(100)]
    for point in hashed_to_curve(keys, b"one"):
        u = int.from_bytes(point.tobytes(), "little")
        assert pow((u**3 + 486662 * u**2 + u) % PRIME, (PRIME - 1) // 2, PRIME) == 1
    assert not (hashed_to_curve(keys, b"one") == hashed_to_curve(keys, b"two")).all(axis=1).any()


@settings(max_examples=10)
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_the_second_scalar_of_a_pair_takes_the_first_off(secret: bytes, other: bytes) -> None:
    blind, unblind = blinding_pair(secret)
    assert blind == clamped(blind) and unblind == clamped(unblind)
    assert int.from_bytes(blind, "little") * int.from_bytes(unblind, "little") % ORDER == 1
    points = hashed_to_curve([b"a", b"b", b"c"], b"").tobytes()
    blinded = multiply(blind, points)
    assert multiply(unblind, multiply(other, blinded)) == multiply(other, points) != points


def test_multiples_are_those_of_x25519_whatever_the_number_of_processes() -> None:
    scalar, points = clamped(bytes(range(32))), hashed_to_curve([bytes([n]) for n in range(230)], b"").tobytes()
    key = X25519PrivateKey.from_private_bytes(scalar)
    one_by_one = [key.exchange(X25519PublicKey.from_public_bytes(points[at : at + 32])) for at in range(0, 7360, 32)]
    assert multiply(scalar, points) == b"".join(one_by_one)
    three = Multipliers(3)
    try:
        assert three(scalar, points) == b"".join(one_by_one)
        with pytest.raises(ValueError):
            three(scalar, points[:-32] + bytes(32))  # a point of small order
        assert three(scalar, points) == b"".join(one_by_one)
        three._others[0].kill()
        three._others[0].wait()
        assert three(scalar, points) == b"".join(one_by_one)
    finally:
        three.close()


EDGES = [2, 3, 9, 2**26 - 1, 2**51, 2**254, PRIME - 2, PRIME + 2, 2**255 - 1, 2**255 + 5, 2**256 - 1]
"""What carries go through, what is not below the prime, and a highest bit that is none of the number."""


def test_compiled_multiples_are_those_of_openssl_and_points_of_small_order_are_refused() -> None:
    drawn = random.Random(1)
    points = words(EDGES).tobytes() + drawn.randbytes(32 * 2000)
    for secret in (bytes(32), bytes([255] * 32), drawn.randbytes(32)):
        scalar = clamped(secret)
        assert multiples(scalar, points) == multiply(scalar, points)
    for small in (0, 1, PRIME - 1, PRIME, PRIME + 1):
        with pytest.raises(ValueError):
            multiples(scalar, points[:3200] + small.to_bytes(32, "little"))


@pytest.mark.parametrize("way", [multiply, multiples])
@pytest.mark.parametrize(
    ("scalar", "point", "result"),  # RFC 7748, section 5.2, and its iteration once
    [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
        ("09" + 31 * "00", "09" + 31 * "00", "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"),
    ],
)
def test_both_ways_give_what_the_standard_says(way: Multiply, scalar: str, point: str, result: str) -> None:
    assert way(clamped(bytes.fromhex(scalar)), bytes.fromhex(point)).hex() == result


SMALL = [
    *(0, 1, PRIME - 1, PRIME, PRIME + 1),  # orders 1, 4 and 2, and the first two again, not reduced
    int.from_bytes(bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"), "little"),
    int.from_bytes(bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"), "little"),
]
"""Every u-coordinate below 2^255 of a point of small order, on the curve or on its twist."""


@pytest.mark.parametrize("way", [multiply, multiples])
@pytest.mark.parametrize("highest", [0, 2**255])
@pytest.mark.parametrize("small", SMALL)
def test_no_point_of_small_order_is_multiplied(way: Multiply, highest: int, small: int) -> None:
    scalar, good = clamped(bytes(range(32))), (9).to_bytes(32, "little")
    with pytest.raises(ValueError):
        way(scalar, 3 * good + (small + highest).to_bytes(32, "little") + good)


@given(st.binary(min_size=32, max_size=32), st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=3))
def test_any_points_and_scalars_give_the_bits_of_openssl(secret: bytes, points: list[bytes]) -> None:
    whole = b"".join(points)
    try:
        right = multiply(clamped(secret), whole)
    except ValueError:
        with pytest.raises(ValueError):
            multiples(clamped(secret), whole)
    else:
        assert multiples(clamped(secret), whole) == right


def test_very_many_points_are_multiplied_in_processes_alone_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(multiplication, "MANY", 200)
    scalar, points = clamped(bytes(range(32))), hashed_to_curve([bytes([n]) for n in range(230)], b"").tobytes()
    right = multiply(scalar, points)
    with Multipliers(1, 230) as one:
        assert isinstance(one, Multipliers) and one(scalar, points) == right
        assert len(one._others) == 1 and multiplication.COMPILED in one._others[0].args
        with pytest.raises(ValueError):
            one(scalar, points[:-32] + bytes(32))
        one._others[0].kill()
        one._others[0].wait()
        assert one(scalar, points) == right
    with Multipliers(1, 199) as few:
        assert few is multiply


def test_a_quick_way_is_taken_only_if_it_is_right() -> None:
    def wrong(scalar: bytes, points: bytes) -> bytes:
        return bytes(len(points))

    assert quickest(multiply, wrong) is multiply
    remembering = cache(multiply)
    assert quickest(multiply, remembering) is remembering


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12), st.integers(0, 12))
def test_names_are_found_also_where_their_halves_are_alike(names: list[tuple[int, int]], known: int) -> None:
    every = np.array(names, np.uint64).reshape(-1, 2)
    held = names[:known]
    wanted = [held.index(name) if name in held else NOWHERE for name in names]
    assert Lookup(every[:known]).places(every).tolist() == wanted


@pytest.mark.parametrize("count", [0, 1, 2, 50, 5000])
def test_a_table_is_right_for_its_keys_and_random_for_others(count: int) -> None:
    keys, values, others = (keystream(bytes([n] * 32), count) for n in (1, 2, 3))
    number, cells = filled(keys, values, b"k" * 32)
    assert len(cells) == cells_for(count)
    assert (read(cells, number, keys) == values).all()
    assert not (read(cells, number, others) == values).all(axis=1).any()
    assert cells.any(axis=1).all(), "a cell that is 0 says that nobody needs it"


def test_a_table_has_no_more_ones_than_a_random_one() -> None:
    """Also where all values are alike but for a mask: 32,000 bits, five deviations."""
    keys = keystream(b"k" * 32, 300)
    _, cells = filled(keys, keystream(b"v" * 32, 300), b"t" * 32)
    bits = np.unpackbits(cells.view(np.uint8))
    assert abs(int(bits.sum()) - len(bits) / 2) < 5 * (len(bits) / 4) ** 0.5


def test_random_ids_of_any_length_never_meet() -> None:
    drawn = random.Random(0)
    keys = [drawn.randbytes(drawn.randrange(40)) + bytes([n % 256, n // 256]) for n in range(500)]
    assert len({point.tobytes() for point in hashed_to_curve(keys, b"")}) == 500
