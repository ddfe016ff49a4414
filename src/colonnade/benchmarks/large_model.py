"""What a feature party holds in memory while it fine-tunes a pre-trained transformer of 22.7 million parameters.

The peak of five exchanges of four rows of 64 tokens over the model's size, each in a process of its own, less the
activations of one forward pass, which any training holds: by `dpzv`, in the memory of the model; by `vafl`, with a
gradient of every weight and what each optimiser remembers of it; and both with adapters of rank 8. Megabytes with
activations are told beside. Needs the extra `transformers`.
"""

from colonnade.benchmarks.benchmark import Benchmark, Watch
from colonnade.benchmarks.party_memory import measured, over_model
from colonnade.models.pretrained import folder

KINDS = {
    "dpzv": "dpzv",
    "vafl_sgd": "vafl, sgd",
    "vafl_momentum": "vafl, momentum",
    "vafl": "vafl, adam",  # its default
}
ADAPTED = ("dpzv", "vafl")


def run(watch: Watch) -> dict[str, float]:
    folder()  # refuses where the extra is missing
    found = {}
    for key, kind in KINDS.items():
        found[f"{key}_memory_over_model"] = _told(watch, key, kind, "pretrained")
    for key in ADAPTED:
        found[f"{key}_memory_over_model_with_adapters"] = _told(watch, key, KINDS[key], "pretrained, lora")
    found["vafl_over_dpzv"] = found["vafl_memory_over_model"] / found["dpzv_memory_over_model"]
    found["vafl_momentum_over_dpzv"] = found["vafl_momentum_memory_over_model"] / found["dpzv_memory_over_model"]
    return found


def _told(watch: Watch, key: str, kind: str, model: str) -> float:
    seen = measured(kind, model)
    megabytes = (seen["peak"] - seen["before"]) / 1e6
    watch(f"{key}, {model}: {megabytes:.0f} MB at the peak, a model of {seen['model'] / 1e6:.0f} MB")
    return over_model(seen)


BENCHMARK = Benchmark(
    "large-model",
    "memory of a party that fine-tunes a pre-trained transformer",
    run,
    {"dpzv_memory_over_model": "<= 1.2", "vafl_over_dpzv": ">= 2.5"},
)
