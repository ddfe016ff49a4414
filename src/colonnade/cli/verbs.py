"""What every verb has: help that shows a flag as a flag, and Ctrl-C that is one sentence."""

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

from colonnade.cli.output import InterruptedCommandError
from colonnade.exit_codes import ExitCode

_WHOLE_SENTENCE = 1000
"""How many letters the list of verbs may take of a verb's first sentence; Typer would cut it at the line's end."""


def _without_type(parameters: Iterable[Any]) -> list[Any]:
    """Typer would write `<bool>` beside every flag, as if it took a value."""
    shown = list(parameters)
    for parameter in shown:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return shown


class Verb(TyperCommand):
    """A verb."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_type(super().get_params(ctx))

    def get_short_help_str(self, limit: int = 0) -> str:
        return super().get_short_help_str(_WHOLE_SENTENCE)


class Verbs(TyperGroup):
    """All verbs, or one with others under it."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_type(super().get_params(ctx))

    def get_short_help_str(self, limit: int = 0) -> str:
        return super().get_short_help_str(_WHOLE_SENTENCE)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # where it means something more, the verb says so itself
            raise InterruptedCommandError("Interrupted.", ExitCode.INTERRUPTED) from None
