"""What a training costs in ε: for each kind of protected data and each adversary, with the conditions in words.

`claimed` is the paper's own formula. `sound` composes every release that touched a row, worst row, against an adversary
who knows the rows of every batch; it is infinite where something unnoised carries the data. `conditional` is what would
be left if the named hidden state were no way out. Nothing here looks at a value: releases in, figures out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import SettingsError, unknown_name
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.gaussian import epsilon_of, release_mu

SECRET, SEED, SHARED = "secret", "seed", "shared"
"""Whence the noise: a party's own entropy; the seed of whoever runs everybody; a seed that all parties have."""
OUTSIDER = "somebody on the wire who sees the releases and not their rows"
TOGETHER = "all feature parties together"
EVERYBODY = "all other parties together"


@dataclass(frozen=True, eq=False)  # counts by row are arrays, which do not compare to one truth
class Release:
    """Releases of one kind: same mechanism, sensitivity, noise and viewers.

    >>> Release("gaussian", 2.0, 4.0, 9, "labels of bank, training rows", ("shop",)).mu
    1.5
    """

    mechanism: str  # "gaussian"
    sensitivity: float  # largest L2 change of the value if one row's data change; infinite if nothing bounds it
    noise: float  # standard deviation on each coordinate
    times: int | NDArray[Any]  # the most that touched any row; or how many touched row 0, 1, …
    protects: str  # as in the events: "labels of NAME, training rows", "columns of NAME, test rows"
    viewers: tuple[str, ...]  # the parties that see the released values

    def __post_init__(self) -> None:
        if self.mechanism != "gaussian":
            raise unknown_name("noise mechanism", self.mechanism, ["gaussian"])
        release_mu(self.sensitivity, self.noise)  # refuses a release without noise
        if (np.asarray(self.times) < 0).any():
            raise SettingsError(f"Releases of {self.protects} are counted a negative number of times.")

    @classmethod
    def of(cls, event: PrivacyEvent, times: int | NDArray[np.int64]) -> "Release":
        """So many releases like this event."""
        return cls(event.mechanism, event.sensitivity, event.noise, times, event.protects, event.viewers)

    @property
    def mu(self) -> float:
        """μ of these releases for the row that they touched most."""
        return worst_row_mu([self])


def recorded_releases(kinds: Iterable[Mapping[str, Any]]) -> list[Release]:
    """The releases of a ledger: of its `summary()`, or exact row by row of its `by_row()`.

    A summary has only each kind's most used row; where kinds have different ones, its figures are upper bounds.
    Releases whose rows were not written down count for every row. A kind with `costs` says in μ² what rows had cost.
    """

    def times(kind: Mapping[str, Any]) -> int | NDArray[Any]:
        if "costs" in kind:
            return np.asarray(kind["costs"], np.float64)
        if "per_row" in kind and any(kind["per_row"]):
            return np.array(kind["per_row"], np.int64)
        return int(kind.get("max_releases_per_row", 0) or kind["releases"])

    return [
        Release(
            mechanism=kind["mechanism"],
            sensitivity=math.inf if kind["sensitivity"] is None else kind["sensitivity"],
            noise=kind["noise"],
            times=times(kind),
            protects=kind["protects"],
            viewers=tuple(kind["viewers"]),
        )
        for kind in kinds
    ]


def row_mus(releases: Sequence[Release]) -> NDArray[np.float64]:
    """μ_i = √Σ (sensitivity/noise)² over all releases that touched row i, of one population of rows.

    Releases counted by their most used row count for every row. Without any count by row there is one figure.
    """
    lengths = [release.times.size for release in releases if isinstance(release.times, np.ndarray)]
    squares = np.zeros(max(lengths, default=1))
    for release in releases:
        times = release.times
        touched = slice(times.size) if isinstance(times, np.ndarray) else slice(None)
        with np.errstate(invalid="ignore"):  # ∞ · 0: an unbounded release that never touched the row
            cost = np.nan_to_num(release_mu(release.sensitivity, release.noise) ** 2 * np.asarray(times), posinf=np.inf)
        squares[touched] += cost
    return np.sqrt(squares)


def worst_row_mu(releases: Sequence[Release]) -> float:
    """μ of the row that lost most. No amplification: whoever knows the rows of each batch is told that much."""
    return float(row_mus(releases).max(initial=0.0))


@dataclass(frozen=True)
class Direction:
    """Whose data are protected, and how else than by noised releases they get out."""

    protects: str  # as in the events
    owner: str
    unnoised: str | None = None  # what carries these data without noise, such as "gradients"
    hidden_state: str | None = None  # what is updated from them without noise, such as "the bottom model of shop"


@dataclass(frozen=True)
class ClaimedPrivacy:
    """What a paper's formula says of a noise; and by another reading of the same formula, where it has two."""

    mu: float
    otherwise: float | None = None
    readings: str = ""  # which two

    def epsilons(self, delta: float) -> tuple[float, float | None]:
        """ε by the reading that we take, and by the other one."""
        return epsilon_of(self.mu, delta), None if self.otherwise is None else epsilon_of(self.otherwise, delta)


@dataclass(frozen=True)
class Guarantee:
    """The price of one row's data against one adversary."""

    direction: str  # what is protected
    adversary: str
    claimed: float | None  # ε by the paper's formula; None: its paper claims nothing here
    claimed_otherwise: float | None  # ε by another reading of that formula; None: there is one reading
    sound: float  # ε that holds end to end under the conditions; may be infinite
    conditional: float | None  # ε of the releases alone where `sound` must count more; else None
    delta: float
    conditions: tuple[str, ...]

    def as_values(self) -> dict[str, Any]:
        """Plain values for JSON, which has no infinity: None under `sound` or `conditional` with no bound says "∞"."""
        return {
            "direction": self.direction,
            "adversary": self.adversary,
            "claimed": self.claimed,
            "claimed_otherwise": self.claimed_otherwise,
            "sound": _number(self.sound),
            "conditional": None if self.conditional is None else _number(self.conditional),
            "delta": self.delta,
            "conditions": list(self.conditions),
        }


def account(
    direction: Direction,
    releases: Sequence[Release],
    delta: float,
    label_party: str,
    feature_parties: Sequence[str],
    *,
    claimed: ClaimedPrivacy | None = None,
    conditions: Sequence[str] = (),
    randomness: str = SECRET,
) -> list[Guarantee]:
    """One figure for each adversary: every other party, parties together, and somebody on the wire.

    `releases` may protect anything; those of this direction are picked out. `conditions` are added to every figure.
    `randomness`: with SHARED every other party can compute the noise and take it off, so nothing is claimed or kept.
    """
    own = [release for release in releases if release.protects == direction.protects]
    parties = [label_party, *feature_parties]
    if direction.owner not in parties:
        raise unknown_name("party that owns protected data", direction.owner, parties)
    if randomness not in _NOISE_IS:
        raise unknown_name("source of noise", randomness, _NOISE_IS)
    known_noise = randomness == SHARED
    by_paper, otherwise = (None, None) if claimed is None or known_noise else claimed.epsilons(delta)
    total = epsilon_of(worst_row_mu(own), delta)
    readings = [] if claimed is None or otherwise is None else [claimed.readings]
    said = [_NEIGHBOURS, _NOISE_IS[randomness], *conditions, *readings, *_ways_out(direction, own)]
    open_end = not own or direction.unnoised is not None or known_noise
    blank = Guarantee(direction.protects, "", by_paper, otherwise, total, None, delta, ())

    def figure(adversary: str, alone: float | None, words: Sequence[str]) -> Guarantee:
        """`alone`: ε of what the adversary itself was sent, if there is more that its view depends on."""
        if open_end:
            return replace(blank, adversary=adversary, sound=math.inf, conditions=(*said, *words))
        sound = total
        if direction.hidden_state is not None:
            sound, alone = math.inf, total if alone is None else alone
        return replace(blank, adversary=adversary, sound=sound, conditional=alone, conditions=(*said, *words))

    figures = []
    others = [party for party in feature_parties if party != direction.owner]
    for party in parties:
        if party == direction.owner:
            continue
        seen = [release for release in own if party in release.viewers]
        name = f"{'label' if party == label_party else 'feature'} party {party}"
        if not seen:
            figures.append(figure(name, None, [_KNOWN, _SECOND_HAND]))
        elif len(seen) == len(own):
            figures.append(figure(name, None, [_KNOWN]))
        else:
            figures.append(figure(name, epsilon_of(worst_row_mu(seen), delta), [_KNOWN, _OTHERS_COUNT]))
    if len(others) > 1:
        figures.append(figure(TOGETHER, None, [_KNOWN]))
    if others and direction.owner != label_party:
        figures.append(figure(EVERYBODY, None, [_KNOWN]))
    figures.append(figure(OUTSIDER, None, [_NOT_AMPLIFIED]))
    return figures


def labels_hidden_state(label_party: str, server_update: str) -> str | None:
    """What of the label party is updated from its labels without noise; None if nothing is.

    Algorithms that have no such choice update by the gradient: "first-order".
    """
    known = {"zeroth-order": False, "first-order": False, "auto": False, "plain": False}
    known |= {"private-zo": True, "dp-sgd": True, "frozen": True}
    if server_update not in known:
        raise unknown_name("server_update", server_update, known)
    return None if known[server_update] else f"the top model of {label_party}"


def columns_hidden_state(party: str, bottom_update: str) -> str | None:
    """What of a feature party is updated from its columns without noise; None if nothing is.

    "first-order" takes gradients through raw columns. "zeroth-order" moves along its own random directions by numbers
    that come back from the label party: what it sent was noised, so its model depends on columns through releases only.
    """
    known = {"first-order": False, "zeroth-order": True, "dp-sgd": True, "frozen": True}
    if bottom_update not in known:
        raise unknown_name("update of a bottom model", bottom_update, known)
    return None if known[bottom_update] else f"the bottom model of {party}"


_NEIGHBOURS = "Neighbouring data sets differ in these data of one row; which rows exist is public."
_NOISE_IS = {
    SECRET: "The noise is drawn from randomness that the adversary does not know, and used once.",
    SEED: (
        "The noise of this run follows from its seed, so that it can be repeated: the figures are those of the same "
        "run between organisations, each with randomness of its own, used once. Whoever knows the seed can take it off."
    ),
    SHARED: (
        "No guarantee: with network.private_randomness = false the noise follows from the shared seed, and every party "
        "can compute it and take it off."
    ),
}
_KNOWN = "The adversary knows the rows of every batch: no amplification by subsampling is counted."
_SECOND_HAND = (
    "It is sent none of these releases; what it is sent is computed from them and tells no more than they do."
)
_OTHERS_COUNT = (
    "What it is sent also depends on releases to other parties, through their models, so those count as well. The "
    "conditional figure is of its own releases, given the uploads of the other parties."
)
_NOT_AMPLIFIED = (
    "No amplification is counted: the batches are cut from a shuffled order, or row by row, for which none is known to "
    "hold, or their number is not known."
)


def _ways_out(direction: Direction, own: Sequence[Release]) -> list[str]:
    words = []
    if direction.unnoised is not None:
        words.append(f"No guarantee: {direction.unnoised} carry these data without noise.")
    elif not own:
        words.append("No guarantee: no release of these data was noised.")
    if direction.hidden_state is not None:
        words.append(
            f"No guarantee end to end: {direction.hidden_state} is updated from these data without noise, and later "
            f"releases of other rows depend on it. The conditional figure is conditional on {direction.hidden_state}."
        )
    if any(math.isinf(release.sensitivity) for release in own):
        words.append("No guarantee: a release has no clip, so nothing bounds its sensitivity.")
    return words


def _number(value: float) -> float | None:
    return None if math.isinf(value) else value
