"""A clock that a test turns by hand: seconds pass when they are told to, and no test waits for one."""


class FakeClock:
    """Called, it says the time in seconds, as `time.monotonic` does."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds

    def tick(self, seconds: float) -> None:
        self.seconds += seconds
