"""What fewer bytes cost in accuracy: `vafl` with each precision, beside itself with numbers as they are.

MNIST and UCI credit, four feature parties, everything else at its defaults; test accuracy after as many epochs, mean of
the seeds. `*_points`: how many points are lost, on the set that loses more; `*_bytes`: what is sent, up and down, over
what is sent without a precision, on the set that saves less. Evaluations are left out, as in every count of bytes.
"""

from statistics import mean

from colonnade.algorithms.training import Training
from colonnade.array_fields import PRECISIONS
from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.data.loading import dataset
from colonnade.launch.experiment import train

EPOCHS = {"mnist": 5.0, "credit_default_uci": 10.0}
SEEDS = (0, 1)
ALGORITHM = "vafl"


@one_thread
def run(watch: Watch) -> dict[str, float]:
    accuracy: dict[tuple[str, str], float] = {}
    sent: dict[tuple[str, str], float] = {}
    for name, epochs in EPOCHS.items():
        data = dataset(name, parties=4)
        for precision in PRECISIONS:
            training = Training(epochs=epochs, precision=precision, evaluate_every_epochs=0)
            runs = [train(data, ALGORITHM, training=training, seed=seed).summary for seed in SEEDS]
            accuracy[name, precision] = 100 * mean(one["test"]["accuracy"] for one in runs)
            sent[name, precision] = mean(one["bytes_up"] + one["bytes_down"] for one in runs)
            share = sent[name, precision] / sent[name, PRECISIONS[0]]
            watch(f"{name}, {precision}: {accuracy[name, precision]:.2f} %, {share:.3f} of the bytes")
    found: dict[str, float] = {}
    for precision in PRECISIONS[1:]:
        lost = [accuracy[name, PRECISIONS[0]] - accuracy[name, precision] for name in EPOCHS]
        shares = [sent[name, precision] / sent[name, PRECISIONS[0]] for name in EPOCHS]
        found |= {f"{precision}_points": max(lost), f"{precision}_bytes": max(shares)}
    return found


BENCHMARK = Benchmark(
    name="precision",
    summary="accuracy and bytes of embeddings and gradients in two bytes a number, or one",
    run=run,
    targets={"float16_points": "<= 0.1", "float16_bytes": "<= 0.52", "int8_points": "<= 0.5", "int8_bytes": "<= 0.3"},
)
