"""What a training is going to release, before anything is sent: how often it uses a row, and with which sensitivity.

Every upload counts: training, warm-up, refresh, evaluation and prediction. A plan gives the same `Release`s that a
ledger gives afterwards, with bounds in place of counts.
"""

import math
from dataclasses import dataclass

from colonnade.errors import SettingsError
from colonnade.privacy.accounting import Release

UNLIKELY = 1e-6
"""How likely it may be, over the order of batches, that some row is used more often than a plan counts."""


@dataclass(frozen=True)
class ReleasePlan:
    """How a training uses its rows.

    >>> plan = ReleasePlan(rows=1000, batch_size=100, epochs=5, feature_parties=("shop", "store"))
    >>> plan.exchanges, plan.uses
    (100, (5, 0))
    """

    rows: int  # D: training rows
    batch_size: int  # B
    epochs: float  # of each feature party
    label_party: str = "label"
    feature_parties: tuple[str, ...] = ("feature",)
    whole_batches: bool = False  # the rows left over at the end of an epoch make no short batch
    in_flight: int = 1  # uploads of a party that may still wait for a reply when the training ends
    warm_up: bool = False  # every party first uploads all its rows
    refreshes: int = 0  # of a training row at one party: at most
    evaluations: int = 0  # of a test row at one party, and predictions
    validations: int = 0  # of a validation row at one party
    embeddings_per_upload: int = 1  # noised anew, one more for each point at which a party looks

    def __post_init__(self) -> None:
        if not 1 <= self.batch_size <= self.rows:
            raise SettingsError(
                f"The plan has batches of {self.batch_size}; with {self.rows} rows it must be 1 to all."
            )
        if not 0 < self.epochs < math.inf:
            raise SettingsError(f"The plan has {self.epochs} epochs; it must be above 0 and finite.")
        if not self.feature_parties:
            raise SettingsError("The plan has no feature party; name at least one.")
        for name in ("in_flight", "refreshes", "evaluations", "validations"):
            if getattr(self, name) < 0:
                raise SettingsError(f"The plan has {name} = {getattr(self, name)}; it must not be negative.")
        if self.embeddings_per_upload < 1:
            raise SettingsError("The plan sends no embedding in an upload; embeddings_per_upload must be at least 1.")

    @property
    def short_batch(self) -> int:
        """Rows of the last batch of an epoch if it is short; else 0."""
        return 0 if self.whole_batches else self.rows % self.batch_size

    @property
    def batches_per_epoch(self) -> int:
        return self.rows // self.batch_size + (self.short_batch > 0)

    @property
    def exchanges_per_party(self) -> int:
        return max(1, math.ceil(self.epochs * self.batches_per_epoch - 1e-9))

    @property
    def exchanges(self) -> int:
        """Of all feature parties."""
        return self.exchanges_per_party * len(self.feature_parties)

    @property
    def uses(self) -> tuple[int, int]:
        """How often one party's exchanges use a row, at most: in whole batches, and in short ones.

        In a shuffled order a row is used once an epoch, and falls into the short batch with probability (D mod B)/D.
        For all rows and parties together the bounds hold but for a probability of UNLIKELY.
        """
        most = self._uses_of(self.exchanges_per_party)
        short = self._most(most, self.short_batch / self.rows) if self.short_batch else 0
        return most - short, short

    @property
    def uploads_of_a_row(self) -> int:
        """How often one party uploads a row, at most: those that no reply came to are seen as well."""
        return self._uses_of(self.exchanges_per_party + self.in_flight)

    def _uses_of(self, batches: int) -> int:
        return math.ceil(batches / self.batches_per_epoch)

    def _most(self, trials: int, probability: float) -> int:
        from scipy import stats  # slow to import

        return int(stats.binom.isf(UNLIKELY / (self.rows * len(self.feature_parties)), trials, probability))

    @property
    def labels(self) -> str:
        """What slopes protect, as the events call it."""
        return f"labels of {self.label_party}, training rows"

    def columns(self, party: str, which: str = "training rows") -> str:
        """What embeddings protect, as the events call it."""
        return f"columns of {party}, {which}"

    def conditions(self) -> list[str]:
        """What must come true for the plan's figures to hold."""
        words = [
            f"Planned: every feature party uses a row once an epoch, for {self.epochs:g} epochs. One that runs "
            "ahead uses its rows more often; the ledger counts that."
        ]
        if self.short_batch:
            whole, short = self.uses
            words.append(
                f"The last batch of an epoch has {self.short_batch} rows, not {self.batch_size}. A row is counted "
                f"{whole} times in whole batches and {short} times in that one by each party. A batch size that "
                "divides the rows costs less."
            )
            words.append(f"Over the order of the rows that is exceeded with a probability of at most {UNLIKELY:g}.")
        return words


def slope_releases(
    plan: ReleasePlan, clip: float, noise: float, server_clip: float = 0.0, server_noise: float = 0.0
) -> list[Release]:
    """DPZV: to each feature party the mean of its batch's clipped slopes, and the label party's own private updates.

    One row moves a mean over B by at most 2C/B. With server_noise = 0 the label party releases nothing of its own; what
    it does without noise is a matter of `labels_hidden_state`.
    """
    releases = []
    for party in plan.feature_parties:
        kinds: list[tuple[float, float, tuple[str, ...]]] = [(clip, noise, (party,))]
        if server_noise > 0:
            kinds.append((server_clip, server_noise, plan.feature_parties))
        for bound, deviation, viewers in kinds:
            for rows, times in zip((plan.batch_size, plan.short_batch), plan.uses, strict=True):
                if rows > 0:
                    releases.append(Release("gaussian", 2 * bound / rows, deviation, times, plan.labels, viewers))
    return releases


def embedding_releases(plan: ReleasePlan, party: str, clip: float, noise: float) -> list[Release]:
    """One feature party's noised embeddings: of training rows in uploads, warm-up and refreshes; of test rows; and of
    validation rows, where there are any.

    Two clipped embeddings of a row are at most 2C apart; without a clip nothing bounds that.
    """
    sensitivity = 2 * clip if clip > 0 else math.inf
    training = plan.uploads_of_a_row * plan.embeddings_per_upload + plan.warm_up + plan.refreshes
    viewers = (plan.label_party,)
    counts = {"training rows": training, "test rows": plan.evaluations}
    if plan.validations:
        counts["validation rows"] = plan.validations
    return [
        Release("gaussian", sensitivity, noise, times, plan.columns(party, which), viewers)
        for which, times in counts.items()
    ]


def update_releases(plan: ReleasePlan, party: str, clip: float, noise: float) -> list[Release]:
    """One feature party's steps by DP-SGD: the sum of a batch's clipped gradients, divided by B even if it is short.

    The label party sees them through every later embedding. A step for each upload is counted, answered or not.
    """
    times = plan.uploads_of_a_row
    viewers = (plan.label_party,)
    return [Release("gaussian", 2 * clip / plan.batch_size, noise, times, plan.columns(party), viewers)]
