"""The import rules of ARCHITECTURE.md, and what no module may import at all."""

import ast
import sys
from collections.abc import Collection

from tree import MODULES, imports_of, is_in, nodes_of, reached_from

ALGORITHMS = [name for name in MODULES if is_in(name, ("colonnade.algorithms",))]
RUNTIMES = [name for name in MODULES if is_in(name, ("colonnade.runtimes",))]
ATTACKS = [name for name in MODULES if is_in(name, ("colonnade.attacks",))]
REPORTS = [name for name in MODULES if is_in(name, ("colonnade.reports",))]
COSTS = [name for name in MODULES if is_in(name, ("colonnade.costs",))]
PREDICTION = [name for name in MODULES if is_in(name, ("colonnade.prediction",))]
WATCHING = [name for name in MODULES if is_in(name, ("colonnade.watching",))]
SERVING = [name for name in MODULES if is_in(name, ("colonnade.serving",))]
WIRE = [name for name in MODULES if is_in(name, ("colonnade.wire",))]


def outside(module: str) -> set[str]:
    """Packages from elsewhere that a module imports, the standard library's left out."""
    tops = {name.split(".")[0] for name in imports_of(module)}
    return tops - set(sys.stdlib_module_names) - {"colonnade"}


def ours(module: str) -> set[str]:
    return {name for name in imports_of(module) if is_in(name, ("colonnade",))}


def uses(modules: Collection[str], packages: tuple[str, ...], *, reached: bool = False) -> list[tuple[str, str]]:
    """Who imports something of these packages, and what; with `reached` also through other modules."""
    return [
        (module, name)
        for module in modules
        for name in {*ours(module), *(reached_from(module) if reached else ())}
        if is_in(name, packages)
    ]


def others_than(modules: Collection[str], packages: tuple[str, ...]) -> list[tuple[str, str]]:
    """Who imports something of ours that is not of these packages, and what."""
    return [(module, name) for module in modules for name in ours(module) if not is_in(name, packages)]


def packages_of(modules: Collection[str]) -> set[str]:
    return {name for module in modules for name in outside(module)}


def test_there_is_something_to_look_at() -> None:
    assert all((ALGORITHMS, RUNTIMES, ATTACKS, REPORTS, COSTS, PREDICTION, SERVING, WIRE))
    assert ("colonnade.runtimes.driver", "colonnade.wire.codec") in uses(RUNTIMES, ("colonnade.wire",))
    assert uses(ALGORITHMS, ("colonnade.privacy.events",), reached=True)
    assert others_than(WIRE, ()) and "numpy" in packages_of(WIRE)
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


def test_an_algorithm_cannot_know_what_carries_it() -> None:
    forbidden = (
        "colonnade.wire",
        "colonnade.runtimes",
        "colonnade.cli",
        "colonnade.reports",
        "colonnade.launch",
    )
    assert uses(ALGORITHMS, forbidden, reached=True) == []


def test_an_algorithm_has_no_clock_no_thread_and_no_files() -> None:
    assert [(module, name) for module in ALGORITHMS for name in imports_of(module) if is_in(name, IMPURE)] == []
    random = {"np.random", "numpy.random", "torch.manual_seed", "torch.seed", "torch.save"}
    for module in ALGORITHMS:
        for node in nodes_of(MODULES[module]):
            if isinstance(node, ast.Attribute):
                assert dotted(node) not in random, f"{module}, line {node.lineno}"
            if isinstance(node, ast.Call):
                assert dotted(node.func) not in ("open", "print", "input"), f"{module}, line {node.lineno}"


# --- the other side ---------------------------------------------------------------------------------------------


def test_a_runtime_cannot_know_what_it_carries() -> None:
    forbidden = (
        "colonnade.algorithms",
        "colonnade.models",
        "colonnade.data",
        "colonnade.reports",
        "colonnade.launch",
        "colonnade.federation",
        "colonnade.cli",
    )
    assert uses(RUNTIMES, forbidden, reached=True) == []


def test_reports_see_only_files() -> None:
    allowed = ("colonnade.errors", "colonnade.files", "colonnade.messages", "colonnade.trace", "colonnade.reports")
    assert others_than(REPORTS, allowed) == []
    assert packages_of(REPORTS) <= {"numpy", "matplotlib", "mpl_toolkits"}


def test_attacks_see_only_traces_and_messages() -> None:
    allowed = ("errors", "messages", "party", "state", "trace", "wire.codec", "attacks")
    assert others_than(ATTACKS, tuple(f"colonnade.{one}" for one in allowed)) == []
    assert packages_of(ATTACKS) <= {"numpy", "torch", "sklearn"}


def test_only_the_trials_bring_attacks_and_federations_together() -> None:
    users = [name for name in MODULES if any(is_in(one, ("colonnade.attacks",)) for one in imports_of(name))]
    meeting = ("colonnade.attacks", "colonnade.trials", "colonnade.cli")
    assert ATTACKS and not [name for name in users if not is_in(name, meeting)]


def test_the_wire_knows_messages_and_nothing_else() -> None:
    beneath = (
        *("colonnade.errors", "colonnade.files", "colonnade.names", "colonnade.array_fields", "colonnade.messages"),
        "colonnade.wire",
    )
    assert others_than(WIRE, beneath) == []
    assert packages_of(WIRE) <= {"numpy", "msgspec", "cryptography"}


def test_the_bottom_of_everything_imports_nothing_above_it() -> None:
    assert ours("colonnade.exit_codes") == set()
    assert ours("colonnade.errors") == {"colonnade.exit_codes"}
    assert ours("colonnade.array_fields") == set()
    assert ours("colonnade.messages") <= {"colonnade.errors", "colonnade.array_fields"}
    assert ours("colonnade.party") <= {
        "colonnade.errors",
        "colonnade.messages",
        "colonnade.privacy.events",
        "colonnade.state",
    }


def test_what_a_plan_costs_does_not_depend_on_what_carries_it() -> None:
    assert uses(COSTS, ("colonnade.runtimes", "colonnade.launch"), reached=True) == []


def test_parties_of_a_prediction_cannot_know_what_carries_them() -> None:
    found = uses(PREDICTION, ("colonnade.runtimes", "colonnade.launch", "colonnade.cli"))
    assert {name for _, name in found} <= {"colonnade.runtimes.run_lock"}


def test_serving_does_not_know_how_it_is_started() -> None:
    forbidden = ("colonnade.launch", "colonnade.cli", "colonnade.trials", "colonnade.federation.file")
    assert uses(SERVING, forbidden) == []


def test_who_watches_reads_files() -> None:
    allowed = (
        *("errors", "files", "runtimes.live_files", "runtimes.steering", "runtimes.network.settings"),
        *("privacy.gaussian", "serving.http_server", "watching"),
    )
    assert WATCHING and others_than(WATCHING, tuple(f"colonnade.{one}" for one in allowed)) == []


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


def is_unsafe(node: ast.AST) -> bool:
    """Whether it imports or calls what can run what it reads."""
    if isinstance(node, ast.ImportFrom) and node.module == "torch":
        return bool({"load", "save"} & {alias.name for alias in node.names})
    if not isinstance(node, ast.Call):
        return False
    called = dotted(node.func)
    if called in ("np.load", "numpy.load"):  # its default is safe; say so all the same
        value = {keyword.arg: keyword.value for keyword in node.keywords}.get("allow_pickle")
        return not (isinstance(value, ast.Constant) and value.value is False)
    return called in UNSAFE_CALLS or called in ("eval", "exec", "compile", "__import__")


def test_nothing_that_is_read_can_run() -> None:
    assert [(module, name) for module in MODULES for name in imports_of(module) if is_in(name, UNSAFE)] == []
    unsafe = [
        (module, ast.unparse(node)) for module, path in MODULES.items() for node in nodes_of(path) if is_unsafe(node)
    ]
    assert unsafe == []


def test_what_can_run_is_noticed() -> None:
    unsafe = ("torch.load(x)", "eval(x)", "np.load(x)", "np.load(x, allow_pickle=True)", "from torch import load")
    safe = ("np.load(x, allow_pickle=False)", "json.loads(x)", "from torch import nn", "re.compile(x)")
    assert [any(map(is_unsafe, ast.walk(ast.parse(one)))) for one in (*unsafe, *safe)] == [True] * 5 + [False] * 4
