"""What the papers claim: their own formulas, as printed, for the noise that makes a training μ-GDP.

They are here to be compared with, not to be relied on. Both count on amplification by subsampling, which needs an
adversary who does not know which rows were used; the parties of these protocols do (docs/privacy.md).
"""

import math


def slopes_noise(mu: float, clip: float, exchanges: int, rows: int) -> float:
    """σ = 2C√T/(Dμ), DPZV, Theorem VI.5: T counts the exchanges of all feature parties, D the training rows.

    Its proof reads σ = r·s/(μ/√T) with the sampling rate r = B/D and the sensitivity s = 2C/B.
    """
    return 2 * clip * math.sqrt(exchanges) / (rows * mu)


def slopes_mu(noise: float, clip: float, exchanges: int, rows: int) -> float:
    """μ by the same formula.

    >>> slopes_mu(noise=0.5, clip=1.0, exchanges=100, rows=40)
    1.0
    """
    return 2 * clip * math.sqrt(exchanges) / (rows * noise)


def embeddings_noise(mu: float, clip: float, queries: int, batch_size: int, rows: int) -> float:
    """c = O(N_m√K/(μN)), VAFL, Theorem 9: N_m is the batch size, N the rows, K the queries of party m.

    The theorem leaves its constant open. We take the sensitivity 2C, the bound of the distance that its proof calls B̄;
    and its proof, which is by steps, for K: uploads. Its words count samples, N_m in each upload:
    `embeddings_mu_by_samples`.
    """
    return 2 * clip * batch_size * math.sqrt(queries) / (mu * rows)


def embeddings_mu(noise: float, clip: float, queries: int, batch_size: int, rows: int) -> float:
    """μ by the same formula.

    >>> embeddings_mu(noise=4.0, clip=1.0, queries=100, batch_size=4, rows=20)
    1.0
    """
    return 2 * clip * batch_size * math.sqrt(queries) / (noise * rows)


def embeddings_mu_by_samples(noise: float, clip: float, queries: int, batch_size: int, rows: int) -> float:
    """μ by the words of the theorem, in which K is the number of samples that h_m has processed: √N_m times as much.

    >>> embeddings_mu_by_samples(noise=4.0, clip=1.0, queries=100, batch_size=4, rows=20)
    2.0
    """
    return embeddings_mu(noise, clip, queries * batch_size, batch_size, rows)
