"""How a party of a real-time runtime waits, keeps and survives: the settings that stations share."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Endurance:
    """How a party of a real-time runtime waits, keeps and survives."""

    notice_seconds: float = 1.0  # a peer that is away for longer is reported to the algorithm
    arrival_seconds: float = 30.0  # the same, for a peer that has not been there since this process began
    silent_seconds: float = 300.0  # the same, for one that is connected and owes something, and says nothing
    linger_seconds: float = 30.0  # after the end, how long to stay for peers that have not heard of it
    checkpoint_seconds: float = 30.0
    sync: bool = False  # whether the journal also survives a loss of power
    waiting_frames: int = 1024  # of one peer, before reading from it pauses
    waiting_bytes: int = 64 << 20

    @property
    def services_a_turn(self) -> int:
        """How much is handled before the disk is waited for: of what gathers meanwhile, all. Without sync, one."""
        return 16 if self.sync else 1
