"""Fuzzing by mutation, of every target: `python tests/fuzz/fuzz.py [TARGET …] --seconds 3600 --seed 1`.

What breaks a target's invariant is saved in `corpus/TARGET`, named by its digest, and is tried again by every run of
the tests from then on. The same seed and number of cases give the same inputs, but for those made from fresh keys.
"""

import argparse
import hashlib
import random
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from targets import TARGETS, Target

CORPUS = Path(__file__).parent / "corpus"


class BrokenError(AssertionError):
    """An input that a target neither took nor refused."""

    def __init__(self, target: str, data: bytes, where: str) -> None:
        super().__init__(f"{target}: {where}, for {len(data)} bytes: {data[:80]!r}")
        self.data = data
        self.where = where


def inputs(target: Target, seed: int) -> Iterator[bytes]:
    """Without end: valid ones first, then noise and harmed ones."""
    dice = random.Random(f"{target.name} {seed}")
    seeds = target.seeds()
    yield from seeds
    while True:
        if dice.random() < 0.05:
            yield dice.randbytes(dice.randrange(200))
            continue
        data = dice.choice(seeds)
        harm = dice.choice(target.variants)
        with suppress(ValueError, TypeError, KeyError, IndexError):  # harm that needs a form which this one has not
            yield harm(data, dice)


def attempt(target: Target, data: bytes) -> bool:
    """Whether the target took it. BrokenError if it broke its invariant."""
    try:
        return target.one_input(data)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}"
        raise BrokenError(target.name, data, where) from error


def fuzz(target: Target, seed: int, cases: int) -> int:
    """Feed a target so many inputs; how many it took."""
    return sum(attempt(target, data) for data, _ in zip(inputs(target, seed), range(cases), strict=False))


def save(target: Target, data: bytes, corpus: Path = CORPUS) -> Path:
    path = corpus / target.name / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def known(target: Target) -> list[Path]:
    return sorted((CORPUS / target.name).glob("*"))


def _for_seconds(target: Target, seed: int, seconds: float) -> set[str]:
    """Where the target broke, in words; each place is saved once."""
    broken: set[str] = set()
    tried = taken = 0
    slowest = 0.0
    end = time.monotonic() + seconds
    for data in inputs(target, seed):
        begun = time.monotonic()
        tried += 1
        try:
            taken += attempt(target, data)
        except BrokenError as error:
            if error.where not in broken:
                broken.add(error.where)
                print(f"{error}\n  saved as {save(target, data)}", flush=True)
        slowest = max(slowest, time.monotonic() - begun)
        if time.monotonic() >= end:
            break
    print(f"{target.name}: {tried} inputs, {taken} taken, slowest {slowest:.2f} s, {len(broken)} broken", flush=True)
    return broken


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Feed harmed bytes to everything that reads bytes.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together")
    given = parser.parse_args(arguments)
    if unknown := {*given.targets} - {*TARGETS}:
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    chosen = [TARGETS[name] for name in given.targets or TARGETS]
    broken = [_for_seconds(target, given.seed, given.seconds / len(chosen)) for target in chosen]
    return 1 if any(broken) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
