"""Ways to damage bytes, texts and values, all by one generator: the same seed gives the same damage."""

import base64
import copy
import json
import random
from typing import Any

import msgspec
import tomli_w

HOSTILE_VALUES: list[Any] = [
    *(0, 1, -1, 7, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)),
    *(0.0, 1.5, 1e308, -1e308, 5e-324, float("nan"), float("inf"), True, False, None),
    *("", "<f4", "<u4", ">f4", "<f8", "|O", "Stop", "EmbeddingUpload", "x" * 1001, "\x00", "\x1b[2J\n", "../a", "é"),
    *(b"", b"\xff", [], {}, [[[[]]]], {"a": 1}, {"": {}}, [0] * 40, {str(key): key for key in range(40)}),
]
_TOKENS = [
    *(b"[", b"]", b"{", b"}", b"[" * 2000, b'{"a":' * 2000, b"{a=" * 2000, b"9" * 5000, b"-1e999", b"1e-999", b"0x"),
    *(b'"', b"'", b'"""', b"\\", b"\\ud800", b"\\u0000", b"\xff", b"\xef\xbb\xbf", b"\0", b"\r", b"\n", b"#", b","),
    *(b"=", b".", b"true", b"null", b"2026-01-01", b"[[a]]\n", b"[a.b.c]\n", b"a." * 100 + b"a=1\n", b'"" = 1\n'),
    *(b"1_0", b"+inf", b"nan"),
]


def damaged(data: bytes, dice: random.Random) -> bytes:
    """The bytes after one to four mishaps."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(len(changed) + 1)
        match dice.randrange(7):
            case 0 if place < len(changed):
                changed[place] ^= 1 << dice.randrange(8)
            case 1:
                del changed[place:]
            case 2:
                changed[place:place] = dice.randbytes(dice.randint(1, 16))
            case 3 if place < len(changed):
                del changed[place : place + dice.randint(1, 16)]
            case 4:
                size = dice.choice((1, 2, 4, 8))
                number = dice.choice((0, 1, len(data), 4096, 2**31, 2**32 - 1, 2**63, 2**64 - 1))
                order = dice.choice(("little", "big"))
                changed[place : place + size] = (number % 256**size).to_bytes(size, order)
            case 5:
                changed[place:place] = dice.choice(_TOKENS)[: dice.choice((1, 8, 10_000))]
            case _:
                changed[place:place] = changed[: min(1000, dice.randrange(len(changed) + 1))]
    return bytes(changed)


def edited_text(data: bytes, dice: random.Random) -> bytes:
    """A text with lines left out, doubled or exchanged, or with a word replaced by one that nobody writes."""
    lines = data.split(b"\n")
    for _ in range(dice.randint(1, 3)):
        place = dice.randrange(len(lines))
        match dice.randrange(5):
            case 0 if len(lines) > 1:
                del lines[place]
            case 1:
                lines.insert(dice.randrange(len(lines) + 1), lines[place])
            case 2:
                other = dice.randrange(len(lines))
                lines[place], lines[other] = lines[other], lines[place]
            case _:
                key, equals, value = lines[place].partition(b"=")
                token = dice.choice(_TOKENS)
                lines[place] = key + equals + token if equals and dice.random() < 0.7 else value + token + key
    return b"\n".join(lines)


def edited_value(value: Any, dice: random.Random) -> Any:
    """A copy of a value in which one or two things, anywhere, are replaced, left out or doubled."""
    value = copy.deepcopy(value)
    for _ in range(dice.randint(1, 2)):
        value = _edited_once(value, dice)
    return value


def _edited_once(value: Any, dice: random.Random) -> Any:
    table = value
    while isinstance(table, dict | list):
        keys = list(table) if isinstance(table, dict) else list(range(len(table)))
        inner = [key for key in keys if isinstance(table[key], dict | list)]
        if not inner or dice.random() < 0.3:
            break
        table = table[dice.choice(inner)]
    if not isinstance(table, dict | list):
        return dice.choice(HOSTILE_VALUES)
    if not table:
        table.append(dice.choice(HOSTILE_VALUES)) if isinstance(table, list) else table.update(a=1)
        return value
    place = dice.choice(list(table)) if isinstance(table, dict) else dice.randrange(len(table))
    match dice.randrange(4):
        case 0:
            del table[place]
        case 1 if isinstance(table, list):
            table.insert(place, table[place])
        case 1:
            table[dice.choice(("a", "", "name", "x" * 300))] = table[place]
        case _:
            table[place] = copy.deepcopy(dice.choice(HOSTILE_VALUES))
    return value


def edited_messagepack(data: bytes, dice: random.Random) -> bytes:
    return msgspec.msgpack.encode(edited_value(msgspec.msgpack.decode(data), dice))


def edited_json(data: bytes, dice: random.Random) -> bytes:
    return json.dumps(edited_value(json.loads(data), dice), default=repr).encode()


def edited_toml(values: dict[str, Any], dice: random.Random) -> bytes:
    """What TOML cannot say becomes a text."""
    edited = edited_value(values, dice)
    try:
        return tomli_w.dumps(_sayable(edited) if isinstance(edited, dict) else {"a": _sayable(edited)}).encode()
    except (TypeError, ValueError, UnicodeError):
        return repr(edited).encode("utf-8", "replace")


def _sayable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _sayable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_sayable(inner) for inner in value]
    return repr(value) if value is None or isinstance(value, bytes) else value


def edited_pem(data: bytes, dice: random.Random) -> bytes:
    """Damage inside of the armour, which is put on again."""
    first, *body, last = data.strip().split(b"\n")
    der = damaged(base64.b64decode(b"".join(body)), dice)
    return b"\n".join([first, base64.encodebytes(der).strip(), last, b""])
