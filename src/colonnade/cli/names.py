"""Names that help texts show and shells complete, without loading what they name: PyTorch takes seconds.

tests/cli/test_completion.py holds them against the tables that they are taken from; those of algorithms are written by
`make tables`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

# algorithms: names begin
DEFAULT_ALGORITHM = "vafl"
WITH_SNAPSHOTS = "afsvrg"
AUDITED = ("dpzv", "vafl", "czofo")
# algorithms: names end

RUNTIMES = ("simulate", "processes", "ray")
PLACES = ("network", "processes", "simulate")
BENCHMARKS = (
    "defaults",
    "split",
    "zeroth-order",
    "linear",
    "first-order",
    "quasi-newton",
    "runtimes",
    "privacy",
    "hostile",
    "loading",
    "align",
    "missing-rows",
    "precision",
    "serve",
    "tabular",
    "watch",
    "plan",
    "rows",
    "parties",
    "large-model",
)
EXPORT_FORMS = ("onnx", "torchscript", "torch-export", "sklearn", "coefficients")
ROW_PARTS = ("test", "validation", "train")
SUMS = ("plain", "two-tree", "pairwise")


def algorithm_names() -> list[str]:
    """The names of all algorithms: each is written in a file of its name."""
    rooms = Path(__file__).parents[1] / "algorithms"
    return sorted(path.stem.replace("_", "-") for path in rooms.glob("*_models/*.py") if path.stem != "__init__")


def data_set_names() -> list[str]:
    """The names of all data sets."""
    from colonnade.data.catalogue import names

    return [facts.name for facts in names()]


def offering(known: Sequence[str] | Callable[[], Sequence[str]]) -> Callable[[str], list[str]]:
    """For a shell: the names that begin with what somebody has typed so far."""

    def begin_with(incomplete: str) -> list[str]:
        names = known() if callable(known) else known
        return [name for name in names if name.startswith(incomplete)]

    return begin_with
