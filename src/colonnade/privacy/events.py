"""What a noised release was: the record that travels with every value that noise has touched.

Every noised value is returned together with its event; a release without an event is non-private. An event
holds numbers about the mechanism and never the value itself. Accountants read events; they do not look at
values.
"""

from dataclasses import dataclass, field

import numpy as np

from colonnade.errors import SettingsError


@dataclass(frozen=True)
class PrivacyEvent:
    """One use of a noise mechanism on some rows.

    >>> PrivacyEvent("gaussian", sensitivity=2.0, noise=4.0, rows=64, protects="row", viewers=("bank",))
    PrivacyEvent(mechanism='gaussian', sensitivity=2.0, noise=4.0, rows=64, protects='row', viewers=('bank',))
    """

    mechanism: str  # "gaussian": noise of N(0, noise²) on each coordinate
    sensitivity: float  # the largest L2 change of one row's value; infinite if nothing bounds it
    noise: float  # standard deviation on each coordinate, in the units of the value
    rows: int  # how many rows were released
    # They stay with their owner: no repr, so that no log or trace shows them.
    row_ids: np.ndarray | None = field(default=None, repr=False, compare=False, kw_only=True)
    protects: str  # what is hidden: whose, and which unit, such as "bank's features of one row"
    viewers: tuple[str, ...]  # the parties that see the released value

    def __post_init__(self) -> None:
        if not self.sensitivity >= 0 or not self.noise > 0:
            raise SettingsError(
                f"A privacy event of the mechanism {self.mechanism!r} has sensitivity {self.sensitivity} and "
                f"noise {self.noise}. Sensitivity must be at least 0 and noise above 0; a release without "
                "noise has no event."
            )
        if self.rows < 0 or (self.row_ids is not None and len(self.row_ids) != self.rows):
            listed = "no" if self.row_ids is None else len(self.row_ids)
            raise SettingsError(
                f"A privacy event of the mechanism {self.mechanism!r} counts {self.rows} rows and lists "
                f"{listed} row ids. Give the number of released rows, and no ids or one id for each row."
            )
