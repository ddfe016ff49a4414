"""From a privacy budget to the noise that keeps it, for a plan; and back.

Sound: every release of the plan composed, against all parties that know the rows. What papers ask for instead, which
keeps less than it says, is in claims.py. Whether a budget that is kept by the releases is kept end to end depends on
hidden state as well: accounting.py has the words.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from colonnade.errors import SettingsError
from colonnade.privacy.accounting import worst_row_mu
from colonnade.privacy.gaussian import mu_of
from colonnade.privacy.plan import ReleasePlan, embedding_releases, slope_releases


def slope_noise(epsilon: float, delta: float, plan: ReleasePlan, clip: float, *, update_share: float = 0.0) -> float:
    """σ for mean slopes, so that a label costs ε against all feature parties together.

    `update_share`: which part of the budget's μ² is left for the label party's own private update (`top_noise`).

    >>> plan = ReleasePlan(rows=1000, batch_size=100, epochs=4)
    >>> round(slope_noise(epsilon=1.0, delta=1e-5, plan=plan, clip=1.0), 4)
    0.1492
    """
    _check(clip)
    return _slope_mu(plan, clip, 1.0, update_share) / _budget(epsilon, delta)


def top_noise(epsilon: float, delta: float, plan: ReleasePlan, server_clip: float, update_share: float) -> float:
    """σ for the label party's private updates, one for every answer, with that share of the budget's μ²."""
    return _slope_mu(plan, server_clip, 1.0, 1 - update_share) / _budget(epsilon, delta)


def slope_clip(epsilon: float, delta: float, plan: ReleasePlan, noise: float, *, update_share: float = 0.0) -> float:
    """The largest clip with which that noise keeps the budget."""
    return _budget(epsilon, delta) / _slope_mu(plan, 1.0, noise, update_share)


def embedding_noise(epsilon: float, delta: float, plan: ReleasePlan, clip: float) -> float:
    """c for embeddings, so that a row's columns at one party cost ε against everybody else.

    Training and test rows alike: whichever are released more often decide.

    >>> plan = ReleasePlan(rows=1000, batch_size=100, epochs=2, warm_up=True)
    >>> round(embedding_noise(epsilon=8.0, delta=1e-5, plan=plan, clip=1.0), 4)
    2.4009
    """
    _check(clip)
    return _embedding_mu(plan, clip, 1.0) / _budget(epsilon, delta)


def embedding_clip(epsilon: float, delta: float, plan: ReleasePlan, noise: float) -> float:
    """The largest clip with which that noise keeps the budget."""
    return _budget(epsilon, delta) / _embedding_mu(plan, 1.0, noise)


@dataclass(frozen=True)
class Suggestion:
    """How to come to a wanted ratio of noise to signal: any one of the changes does."""

    noise_to_signal: float  # of the plan as it is: the sound noise over the clip, the largest value that is noised
    epochs: int | None  # the most with which the ratio is kept; None: not even one
    batch_size: int | None  # the least with which it is; None: none is, or the batch size has no effect


def suggest_for_slopes(
    epsilon: float, delta: float, plan: ReleasePlan, noise_to_signal: float, *, update_share: float = 0.0
) -> Suggestion:
    """Epochs or a batch size for mean slopes with noise of at most `noise_to_signal` times their clip.

    The sound σ/C = 2√n/(Bμ), n being a row's uses: the clip cancels, four times the epochs double the ratio, and
    twice the batch size halves it.
    """

    def ratio(changed: ReleasePlan) -> float:
        return slope_noise(epsilon, delta, changed, 1.0, update_share=update_share)

    _check_ratio(noise_to_signal)
    epochs = _most_epochs(plan, ratio, noise_to_signal)
    if ratio(replace(plan, batch_size=plan.rows)) > noise_to_signal:
        return Suggestion(ratio(plan), epochs, None)
    # Each row exactly once an epoch, in whole batches, makes the ratio inverse to B. Anything else only adds to it, and
    # short batches do so without any order: from the least size that could do, one has to look.
    at_best = ratio(replace(plan, whole_batches=True))
    least = max(1, math.ceil(plan.batch_size * at_best / noise_to_signal * (1 - 1e-9)))
    sizes = (size for size in range(least, plan.rows) if ratio(replace(plan, batch_size=size)) <= noise_to_signal)
    return Suggestion(ratio(plan), epochs, next(sizes, plan.rows))


def suggest_for_embeddings(epsilon: float, delta: float, plan: ReleasePlan, noise_to_signal: float) -> Suggestion:
    """Epochs for embeddings with noise of at most `noise_to_signal` times their clip, on each coordinate.

    The sound c/C = 2√n/μ, n being a row's releases: only fewer of them help.
    """

    def ratio(changed: ReleasePlan) -> float:
        return embedding_noise(epsilon, delta, changed, 1.0)

    _check_ratio(noise_to_signal)
    return Suggestion(ratio(plan), _most_epochs(plan, ratio, noise_to_signal), None)


def _most_epochs(plan: ReleasePlan, ratio: Callable[[ReleasePlan], float], wanted: float) -> int | None:
    """The most whole epochs; the ratio grows with them without bound."""
    if ratio(replace(plan, epochs=1)) > wanted:
        return None
    few, many = 1, 2
    while ratio(replace(plan, epochs=many)) <= wanted:
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if ratio(replace(plan, epochs=middle)) <= wanted else (few, middle)
    return few


def _slope_mu(plan: ReleasePlan, clip: float, noise: float, others_share: float) -> float:
    """Of one label, over all feature parties, if what is released besides has that share of μ²."""
    return worst_row_mu(slope_releases(plan, clip, noise)) / math.sqrt(1 - others_share)


def _embedding_mu(plan: ReleasePlan, clip: float, noise: float) -> float:
    """Of one row's columns at one party; training and test rows are different rows, so the worse of the two."""
    releases = embedding_releases(plan, plan.feature_parties[0], clip, noise)
    return max(worst_row_mu([release]) for release in releases)


def _budget(epsilon: float, delta: float) -> float:
    mu = mu_of(epsilon, delta)
    if math.isinf(mu):
        raise SettingsError("The privacy budget ε is infinite; that needs no noise. Give a finite one.")
    return mu


def _check(clip: float) -> None:
    if not 0 < clip < math.inf:
        raise SettingsError(f"The clip is {clip}; noise is calibrated to a finite clip above 0.")


def _check_ratio(noise_to_signal: float) -> None:
    if not 0 < noise_to_signal < math.inf:
        raise SettingsError(f"The wanted noise-to-signal ratio is {noise_to_signal}; it must be above 0 and finite.")
