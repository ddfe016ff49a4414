"""What the command line prints with: two consoles, forms of numbers, and what Ctrl-C means."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console

from colonnade.errors import ColonnadeError
from colonnade.exit_codes import ExitCode

console = Console()
errors = Console(stderr=True)


class InterruptedCommandError(ColonnadeError):
    """Somebody pressed Ctrl-C and the command ended at once. `exit_code` says whether its work can be resumed."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def interrupted(meaning: str, exit_code: ExitCode = ExitCode.INTERRUPTED) -> Iterator[None]:
    """While this holds, a Ctrl-C that is not caught inside ends the command with what it meant."""
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedCommandError(f"Interrupted. {meaning}", exit_code) from None


def show_learnt(learnt: Iterable[str]) -> None:
    """What parties have learnt of one another, a sentence per line."""
    for sentence in learnt:
        console.print(f"  learnt: {sentence}", markup=False, highlight=False, soft_wrap=True)


def tell(sentence: str) -> None:
    """One line to whoever watches, beside what the command prints as its result."""
    errors.print(sentence, markup=False, highlight=False, soft_wrap=True)


def megabytes(count: float) -> str:
    return f"{count / 1e6:.2f} MB" if count < 1e8 else f"{count / 1e6:.0f} MB"


def shown(value: float | None, form: str, convert: Callable[[float], object] = lambda value: value) -> str:
    """A table's cell; a dash for what is not known."""
    return "–" if value is None else form.format(convert(value))
