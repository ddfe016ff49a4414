"""The import rules of ARCHITECTURE.md, and what no module may import at all."""

import ast
import sys

import pytest
from tree import MODULES, imports_of, is_in, nodes_of, reached_from

ALGORITHMS = [name for name in MODULES if is_in(name, ("colonnade.algorithms",))]
RUNTIMES = [name for name in MODULES if is_in(name, ("colonnade.runtimes",))]
ATTACKS = [name for name in MODULES if is_in(name, ("colonnade.attacks",))]
REPORTS = [name for name in MODULES if is_in(name, ("colonnade.reports",))]
COSTS = [name for name in MODULES if is_in(name, ("colonnade.costs",))]
PREDICTION = [name for name in MODULES if is_in(name, ("colonnade.prediction",))]
SERVING = [name for name in MODULES if is_in(name, ("colonnade.serving",))]
WIRE = [name for name in MODULES if is_in(name, ("colonnade.wire",))]


def outside(module: str) -> set[str]:
    """Packages from elsewhere that a module imports, the standard library's left out."""
    tops = {name.split(".")[0] for name in imports_of(module)}
    return tops - set(sys.stdlib_module_names) - {"colonnade"}


def ours(module: str) -> set[str]:
    return {name for name in imports_of(module) if is_in(name, ("colonnade",))}


def test_there_is_something_to_look_at() -> None:
    assert {"colonnade.algorithms.split_models.vafl", "colonnade.algorithms.split_models.parts.bottom"} <= set(
        ALGORITHMS
    )
    assert "colonnade.runtimes.simulate.simulation" in RUNTIMES
    assert "colonnade.wire.codec" in ours("colonnade.runtimes.driver")
    assert "heapq" in imports_of("colonnade.runtimes.simulate.agenda")
    assert "colonnade.privacy.events" in reached_from("colonnade.algorithms.split_models.vafl")


# --- algorithms: no carrier, no clock, no thread, no I/O, no global randomness ----------------------------------

IMPURE = (
    *("time", "datetime", "sched", "asyncio", "threading", "concurrent", "multiprocessing", "queue", "signal"),
    *("socket", "select", "selectors", "ssl", "http", "urllib", "subprocess", "os", "io", "pathlib", "tempfile"),
    *("random", "secrets", "uuid"),
)


@pytest.mark.parametrize("module", ALGORITHMS)
def test_an_algorithm_cannot_know_what_carries_it(module: str) -> None:
    forbidden = (
        "colonnade.wire",
        "colonnade.runtimes",
        "colonnade.cli",
        "colonnade.reports",
        "colonnade.launch",
    )
    assert not [name for name in {*ours(module), *reached_from(module)} if is_in(name, forbidden)]


@pytest.mark.parametrize("module", ALGORITHMS)
def test_an_algorithm_has_no_clock_no_thread_and_no_files(module: str) -> None:
    assert not [name for name in imports_of(module) if is_in(name, IMPURE)]
    for node in nodes_of(MODULES[module]):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used = f"{node.value.id}.{node.attr}"
            assert used not in ("np.random", "numpy.random", "torch.manual_seed", "torch.seed", "torch.save"), used
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("open", "print", "input"), f"line {node.lineno}"


# --- the other side ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", RUNTIMES)
def test_a_runtime_cannot_know_what_it_carries(module: str) -> None:
    forbidden = (
        "colonnade.algorithms",
        "colonnade.models",
        "colonnade.data",
        "colonnade.reports",
        "colonnade.launch",
        "colonnade.federation",
        "colonnade.cli",
    )
    assert not [name for name in {*ours(module), *reached_from(module)} if is_in(name, forbidden)]


@pytest.mark.parametrize("module", REPORTS)
def test_reports_see_only_files(module: str) -> None:
    allowed = ("colonnade.errors", "colonnade.files", "colonnade.messages", "colonnade.trace", "colonnade.reports")
    assert not [name for name in ours(module) if not is_in(name, allowed)]
    assert outside(module) <= {"numpy", "matplotlib", "mpl_toolkits"}


@pytest.mark.parametrize("module", ATTACKS)
def test_attacks_see_only_traces_and_messages(module: str) -> None:
    allowed = ("errors", "messages", "party", "state", "trace", "wire.codec", "attacks")
    assert not [name for name in ours(module) if not is_in(name, tuple(f"colonnade.{one}" for one in allowed))]
    assert outside(module) <= {"numpy", "torch", "sklearn"}


def test_only_the_trials_bring_attacks_and_federations_together() -> None:
    users = [name for name in MODULES if any(is_in(one, ("colonnade.attacks",)) for one in imports_of(name))]
    meeting = ("colonnade.attacks", "colonnade.trials", "colonnade.cli")
    assert ATTACKS and not [name for name in users if not is_in(name, meeting)]


@pytest.mark.parametrize("module", WIRE)
def test_the_wire_knows_messages_and_nothing_else(module: str) -> None:
    beneath = ("colonnade.errors", "colonnade.files", "colonnade.names", "colonnade.messages", "colonnade.wire")
    assert all(is_in(name, beneath) for name in ours(module))
    assert outside(module) <= {"numpy", "msgspec", "cryptography"}


def test_the_bottom_of_everything_imports_nothing_above_it() -> None:
    assert ours("colonnade.exit_codes") == set()
    assert ours("colonnade.errors") == {"colonnade.exit_codes"}
    assert ours("colonnade.messages") <= {"colonnade.errors"}
    assert ours("colonnade.party") <= {
        "colonnade.errors",
        "colonnade.messages",
        "colonnade.privacy.events",
        "colonnade.state",
    }


@pytest.mark.parametrize("module", COSTS)
def test_what_a_plan_costs_does_not_depend_on_what_carries_it(module: str) -> None:
    forbidden = ("colonnade.runtimes", "colonnade.launch")
    assert not [name for name in {*ours(module), *reached_from(module)} if is_in(name, forbidden)]


@pytest.mark.parametrize("module", PREDICTION)
def test_parties_of_a_prediction_cannot_know_what_carries_them(module: str) -> None:
    lock = "colonnade.runtimes.run_lock"
    forbidden = ("colonnade.runtimes", "colonnade.launch", "colonnade.cli")
    assert not [name for name in ours(module) - {lock} if is_in(name, forbidden)]


@pytest.mark.parametrize("module", SERVING)
def test_serving_does_not_know_how_it_is_started(module: str) -> None:
    forbidden = ("colonnade.launch", "colonnade.cli", "colonnade.trials", "colonnade.federation.file")
    assert not [name for name in ours(module) if is_in(name, forbidden)]


def test_only_a_few_rooms_know_both_algorithms_and_runtimes() -> None:
    rooms = ("federation", "estimators", "launch", "trials", "benchmarks", "reproductions", "cli", "testing")
    meeting = tuple(f"colonnade.{room}" for room in rooms)
    both = [
        name
        for name in MODULES
        if any(is_in(one, ("colonnade.algorithms",)) for one in imports_of(name))
        and any(is_in(one, ("colonnade.runtimes",)) for one in imports_of(name))
    ]
    assert "colonnade.launch.experiment" in both
    assert [name for name in both if not is_in(name, meeting)] == ["colonnade"]  # which exports what both have


def test_only_programs_import_the_command_line() -> None:
    users = {name for name in MODULES if any(is_in(one, ("colonnade.cli",)) for one in imports_of(name))}
    programs = {"colonnade.__main__", "colonnade.benchmarks.party_program"}
    assert {name for name in users if not is_in(name, ("colonnade.cli",))} == programs


def test_there_is_no_cycle() -> None:
    """Also not through imports inside functions: modules that need one another are one module, or three."""
    imported = {module: [name for name in imports_of(module) if name in MODULES] for module in MODULES}
    while free := [module for module, needed in imported.items() if not needed]:
        imported = {
            module: [name for name in needed if name not in free]
            for module, needed in imported.items()
            if module not in free
        }
    assert imported == {}


# --- bytes are hostile ------------------------------------------------------------------------------------------

UNSAFE = ("pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle")
UNSAFE_CALLS = ("torch.load", "torch.save", "torch.jit.load", "pd.read_pickle", "pandas.read_pickle", "yaml.load")


def dotted(node: ast.expr) -> str:
    """`torch.load` of such an expression; "" of any other."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("module", MODULES)
def test_nothing_that_is_read_can_run(module: str) -> None:
    assert not [name for name in imports_of(module) if is_in(name, UNSAFE)]
    for node in nodes_of(MODULES[module]):
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            assert not {"load", "save"} & {alias.name for alias in node.names}
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func)
        assert called not in UNSAFE_CALLS, f"line {node.lineno}"
        assert called not in ("eval", "exec", "compile", "__import__"), f"line {node.lineno}"
        if called in ("np.load", "numpy.load"):  # its default is safe; say so all the same
            said = {keyword.arg: keyword.value for keyword in node.keywords}
            value = said.get("allow_pickle")
            assert isinstance(value, ast.Constant) and value.value is False, f"line {node.lineno}"
