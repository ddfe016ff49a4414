"""How a party of a real-time runtime waits, keeps and survives: the settings that stations share."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Endurance:
    """How a party of a real-time runtime waits, keeps and survives."""

    notice_seconds: float = 1.0
    """(seconds) a peer that is away for longer is reported to the algorithm"""
    arrival_seconds: float = 30.0
    """(seconds) a peer that has not been there since this process began is reported after this"""
    silent_seconds: float = 300.0
    """(seconds) a peer that is connected, was sent something since it last sent anything, and says nothing is reported
    after this"""
    linger_seconds: float = 30.0
    """(seconds) after the end, how long to stay for peers that have not heard of it"""
    checkpoint_seconds: float = 30.0
    """(seconds) between checkpoints"""
    sync: bool = False
    """whether the journal also survives a loss of power; every turn then waits for the disk"""
    waiting_frames: int = 1024
    """(frames) of one peer, before reading from it pauses"""
    waiting_bytes: int = 64 << 20
    """(bytes) of one peer, before reading from it pauses"""

    @property
    def services_a_turn(self) -> int:
        """How much is handled before the disk is waited for: of what gathers meanwhile, all. Without sync, one."""
        return 16 if self.sync else 1
