"""What can go wrong, by whose fault it is.

A message answers four questions: what happened, whose fault, with which values, what to do next. It never contains
a raw column, a label, a weight or a key. The command line prints the message alone; a traceback means a defect here.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from colonnade.exit_codes import ExitCode

_LONGEST_SENTENCE = 600


def plain(sentence: str) -> str:
    """What a peer says, fit for a log and a terminal: one line of printable characters, not too long.

    >>> plain("a name\\x1b[2J")
    'a name�[2J'
    """
    return "".join(letter if letter.isprintable() else "�" for letter in sentence[:_LONGEST_SENTENCE])


class ColonnadeError(Exception):
    """Everything that Colonnade raises on purpose. `exit_code` is what the command line returns.

    >>> import colonnade
    >>> try:
    ...     colonnade.dataset("irsi")
    ... except colonnade.ColonnadeError as error:
    ...     print(type(error).__name__, int(error.exit_code))
    SettingsError 2
    """

    exit_code = ExitCode.FAILED


class SettingsError(ColonnadeError):
    """A wrong call or configuration: the caller can mend it without touching any data.

    >>> import colonnade
    >>> colonnade.Training(epochs=0)
    Traceback (most recent call last):
        ...
    colonnade.errors.SettingsError: training.epochs is 0; it must be above 0.
    """

    exit_code = ExitCode.WRONG


class DataError(ColonnadeError):
    """A party's data do not fit what was asked of them.

    >>> import colonnade
    >>> try:
    ...     colonnade.from_frames({"bank": "no-such-file.csv", "shop": "shop.csv"}, label_party="bank", label="paid")
    ... except colonnade.DataError:
    ...     print("a table could not be read")
    a table could not be read
    """

    exit_code = ExitCode.WRONG


class ProtocolError(ColonnadeError):
    """Bytes or a message that no honest peer would have sent. The only error that decoding may raise.

    Its sentence may hold what the peer said, so it is made fit for a log where it is born.

    >>> from colonnade.wire.codec import decode
    >>> try:
    ...     decode(b"not a frame")
    ... except ProtocolError:
    ...     print("refused")
    refused
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(plain(sentence))


class RunError(ColonnadeError):
    """A run that could not go on, though its settings and data were accepted.

    >>> issubclass(RunError, ColonnadeError), int(RunError.exit_code)
    (True, 1)
    """


class TrainingError(RunError):
    """A training that failed by its settings and data. What was handled just then was sent by somebody honest."""


def unknown_name(what: str, name: str, known: Iterable[str]) -> SettingsError:
    """The error for a misspelt name: offers the nearest one that exists, and never falls back to a default.

    >>> str(unknown_name("algorithm", "valf", ["vafl", "split"]))
    "There is no algorithm 'valf'. Did you mean 'vafl'? Known: split, vafl."
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return SettingsError(f"There is no {what} {name!r}.{hint} Known: {', '.join(names)}.")
