"""Files are made, written and read in one place: who else did so could leave them open to others, or follow a link."""

import ast

from tree import MODULES, is_in, nodes_of

ELSEWHERE = ("colonnade.files", "colonnade.testing", "colonnade.benchmarks")  # the latter work in folders of their own
METHODS = {"mkdir", "makedirs", "write_text", "write_bytes", "touch", "savez", "mkfifo", "symlink_to"}
READERS = {"json": {"load"}, "tomllib": {"load", "loads"}, "pickle": {"load", "loads"}, "np": {"save"}}
WRITING = set("wax+")
TENSORS = {"colonnade.runtimes.checkpoint", "colonnade.runtimes.row_files", "colonnade.launch.seat_files"}
"""Who may have a library write tensors: into a file that is ours already, or a folder that nobody else may enter."""


def calls_of(module: str) -> set[str]:
    """Calls of a module that go round `files.py`."""
    found: set[str] = set()
    for node in nodes_of(MODULES[module]):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and (
            called.id == "open" or (called.id == "save_file" and module not in TENSORS)
        ):
            found.add(called.id)
        if not isinstance(called, ast.Attribute):
            continue
        owner = called.value.id if isinstance(called.value, ast.Name) else ""
        if called.attr in METHODS or (owner, called.attr) == ("os", "open"):
            found.add(f"{owner}.{called.attr}".strip("."))
        if called.attr in READERS.get(owner, ()):
            found.add(f"{owner}.{called.attr}")
        how = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if called.attr == "open" and any(len(one) <= 3 and WRITING & set(one) for one in how):
            found.add(f"{owner}.open")
    return found


def test_nobody_goes_round_it() -> None:
    calls = {(module, call) for module in MODULES if not is_in(module, ELSEWHERE) for call in calls_of(module)}
    assert calls == set()


def test_who_does_is_noticed() -> None:
    assert {"os.open", "path.mkdir"} <= calls_of("colonnade.files")
    assert "write_text" in " ".join(calls_of("colonnade.benchmarks.party_programs"))
