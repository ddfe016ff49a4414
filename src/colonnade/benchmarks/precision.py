"""What fewer bytes cost in accuracy: `vafl` with each precision, beside itself with numbers as they are.

MNIST and UCI credit, four feature parties, a tenth of the training rows for validation, everything else at its
defaults; test accuracy, mean of the seeds. `*_points`: how many are lost, on the set that loses more; `*_spread`:
there, the standard deviation of what single seeds lose; `*_bytes`: what is sent, both ways, over what is sent without a
precision, on the set that saves less; `*_bytes_to_90`: the same until 90 % of MNIST's validation rows are right.
Evaluations are left out, as in every count of bytes.
"""

from math import inf
from statistics import mean, stdev

from colonnade.algorithms.training import Training
from colonnade.array_fields import PRECISIONS
from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.data.loading import dataset
from colonnade.launch.experiment import train
from colonnade.launch.outcome import Outcome

EPOCHS = {"mnist": (3.0, 0.125), "credit_default_uci": (10.0, 1.0)}
"""How many there are, and how many between two evaluations."""
SEEDS = (0, 1, 2)
ALGORITHM, TARGET = "vafl", 0.9


@one_thread
def run(watch: Watch) -> dict[str, float]:
    accuracy: dict[tuple[str, str], list[float]] = {}  # by seed
    sent: dict[tuple[str, str], float] = {}
    until: dict[str, float] = {}
    for name, (epochs, every) in EPOCHS.items():
        data = dataset(name, parties=4, validation=0.1)
        for precision in PRECISIONS:
            training = Training(epochs=epochs, precision=precision, evaluate_every_epochs=every)
            runs = [train(data, ALGORITHM, training=training, seed=seed) for seed in SEEDS]
            accuracy[name, precision] = [100 * one.summary["test"]["accuracy"] for one in runs]
            sent[name, precision] = mean(one.summary["bytes_up"] + one.summary["bytes_down"] for one in runs)
            if name == "mnist":
                until[precision] = mean(_bytes_until_target(one) for one in runs)
            share = sent[name, precision] / sent[name, PRECISIONS[0]]
            each = ", ".join(f"{one:.2f}" for one in accuracy[name, precision])
            watch(f"{name}, {precision}: {mean(accuracy[name, precision]):.2f} % ({each}), {share:.3f} of the bytes")
    found: dict[str, float] = {}
    for precision in PRECISIONS[1:]:
        lost = [_lost(accuracy[name, PRECISIONS[0]], accuracy[name, precision]) for name in EPOCHS]
        shares = [sent[name, precision] / sent[name, PRECISIONS[0]] for name in EPOCHS]
        most = max(lost, key=mean)
        found |= {f"{precision}_points": mean(most), f"{precision}_spread": stdev(most)}
        found[f"{precision}_bytes"] = max(shares)
        found[f"{precision}_bytes_to_90"] = until[precision] / until[PRECISIONS[0]]
    return found


def _lost(plain: list[float], rounded: list[float]) -> list[float]:
    """Points, by seed: the same rows and the same first weights."""
    return [one - other for one, other in zip(plain, rounded, strict=True)]


def _bytes_until_target(outcome: Outcome) -> float:
    looks = [line for line in outcome.metrics if line.get("validation")]
    reached = [look["bytes_up"] + look["bytes_down"] for look in looks if look["validation"]["accuracy"] >= TARGET]
    return float(reached[0]) if reached else inf


BENCHMARK = Benchmark(
    name="precision",
    summary="accuracy and bytes of embeddings and gradients in two bytes a number, or one",
    run=run,
    targets={"float16_points": "<= 0.1", "float16_bytes": "<= 0.52", "int8_points": "<= 0.5", "int8_bytes": "<= 0.3"},
)
