"""What a program of Colonnade returns to the shell, or to whatever supervises it. One meaning per code, the same for
every verb and for the processes of parties. docs/exit-codes.md is the same table for people.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a program ended."""

    DONE = 0
    """Everything that was asked for is done; for a party, its part of the training."""
    FAILED = 1
    """It could not go on, or a replay found a difference."""
    WRONG = 2
    """A wrong call, file or setting: the same call will fail again until somebody mends it."""
    STOPPED = 3
    """Stopped as requested, with its state saved: the same work can be resumed. Not a failure, after which a supervisor
    should start it again at once, and not the end of the work, after which it should not start it again at all."""
    NOT_BETTER = 4
    """A model was trained, and is not as good as the one that it was to replace."""
    INTERRUPTED = 130
    """Ctrl-C ended it without saving: before anything was done, in work that cannot be resumed, or by a second Ctrl-C
    that did not wait for the checkpoint. It is what shells return for a program that SIGINT ended, 128 + 2."""
