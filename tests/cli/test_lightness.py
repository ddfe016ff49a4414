"""Help is quick, because nothing heavy is loaded for it: counted by modules, which no busy machine changes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import IRIS, colonnade, toml

from colonnade.wire.authority import issue, make_authority

HEAVY = (
    "torch",
    "numpy",
    "scipy",
    "sklearn",
    "pandas",
    "matplotlib",
    "grpc",
    "ray",
    "numba",
    "pyarrow",
    "cryptography",
)

# Gives each command in one fresh process, and tells after each which heavy packages have been loaded by then.
PROGRAM = """
import contextlib, io, json, sys
from unittest import mock
from colonnade import cli

commands, heavy = json.loads(sys.argv[1])
for command in commands:
    with mock.patch.object(sys, "argv", ["colonnade", *command]), contextlib.redirect_stdout(io.StringIO()) as shown:
        try:
            cli.main()
        except SystemExit as ending:
            assert not ending.code, (command, ending.code)
    assert shown.getvalue(), command
    loaded = [name for name in heavy if name in sys.modules]
    print(json.dumps([" ".join(command), loaded]))
"""


def loaded_after(*commands: tuple[str, ...]) -> dict[str, list[str]]:
    """The heavy packages that were loaded when each command had ended."""
    given = [sys.executable, "-c", PROGRAM, json.dumps([commands, HEAVY])]
    done = subprocess.run(given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


def every_verb() -> list[tuple[str, ...]]:
    from typer.main import get_command

    from colonnade.cli.application import app

    found: list[tuple[str, ...]] = []
    left = [((), get_command(app))]
    while left:
        name, command = left.pop()
        found.append(name)
        left += [((*name, one), inner) for one, inner in getattr(command, "commands", {}).items()]
    return found


def test_no_help_loads_anything_heavy() -> None:
    verbs = every_verb()
    assert ("run",) in verbs and ("attack", "label-inference") in verbs and ("certs", "issue") in verbs
    asked = [(*verb, flag) for verb in verbs for flag in ("--help", "-h")]
    loaded = loaded_after(*asked, ("--version",), ("data", "list"))
    assert {call: packages for call, packages in loaded.items() if packages} == {}


def test_verbs_that_train_nothing_do_not_load_torch() -> None:
    for seed in (0, 1):
        made = colonnade("run", toml("flowers.toml", IRIS), "--no-report", "--set", f"federation.seed={seed}")
        assert made.code == 0, made.err
    runs = ("runs/iris-vafl-0", "runs/iris-vafl-1")
    certificates = (("certs", "init", "ours"), ("certs", "issue", "bank", "--authority", "ours"))
    loaded = loaded_after(
        *certificates, ("certs", "show", "bank/bank.pem"), ("report", runs[0]), ("compare", *runs, "--json")
    )
    assert loaded["certs show bank/bank.pem"] == ["cryptography"]
    assert not {"torch", "sklearn", "pandas", "grpc", "ray", "numba", "pyarrow"} & set(
        loaded[f"compare {runs[0]} {runs[1]} --json"]
    )


def test_a_network_is_trained_without_what_linear_models_and_tables_need() -> None:
    """Numbers in arrays and networks of layers; SymPy is what PyTorch loads for shapes that it does not know."""
    program = """
import sys
from pathlib import Path
import numpy as np
import colonnade
data = colonnade.from_arrays(np.arange(24.0).reshape(6, 4), np.arange(6) % 2, parties=2, test_fraction=0.5)
outcome = colonnade.train(data, colonnade.Vafl(), training=colonnade.Training(epochs=1, batch_size=3))
assert outcome.models
print(*sorted({"pandas", "numba", "sklearn", "scipy.sparse", "scipy.stats", "sympy", "matplotlib"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "\n"), done


@pytest.mark.parametrize("verb", every_verb(), ids=" ".join)
def test_flags_are_shown_as_flags(verb: tuple[str, ...]) -> None:
    shown = colonnade(*verb, "-h").out
    assert "<bool>" not in shown and "BOOLEAN" not in shown
    assert "-h, --help" in shown


def test_the_list_of_verbs_says_whole_sentences() -> None:
    shown = colonnade("-h").out
    assert "..." not in shown.split("Commands:")[1]
    assert max(map(len, shown.splitlines())) <= 80


def test_the_version() -> None:
    from colonnade import __version__

    assert colonnade("--version") == (0, f"colonnade {__version__}\n", "")


JOINING = """
import sys
from pathlib import Path
from colonnade.cli import application, join as verb
from colonnade.federation.file import read_federation
from colonnade.federation.party_file import read_party_file
from colonnade.launch.join import join
from colonnade.runtimes import operations

verbs = application.command()
own = read_party_file(Path("party.toml"))
ready = join(read_federation(Path("federation.toml")), own, without=["shop"], stop_requested=lambda: True)
assert (ready.directory / "journal").exists(), "the label party had begun"
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_a_party_is_ready_without_what_its_run_does_not_use(tmp_path: Path) -> None:
    """A label party that reads its table, builds its model, listens and begins: everything before the first message."""
    make_authority(tmp_path / "authority", "a test", 2)
    issue(tmp_path / "authority", "bank", tmp_path, [], 1)
    (tmp_path / "bank.csv").write_text("id,income,paid\n" + "".join(f"{i},{i / 7},{i % 2}\n" for i in range(40)))
    (tmp_path / "party.toml").write_text(
        '[party]\nname = "bank"\nlisten = "127.0.0.1:0"\n[data]\nfile = "bank.csv"\n'
        '[keys]\ncertificate = "bank.pem"\nkey = "bank.key"\nauthority = "authority.pem"\n'
    )
    (tmp_path / "federation.toml").write_text(
        '[federation]\nlabel_party = "bank"\n[data]\nlabel = "paid"\nid = "id"\n[parties.bank]\n[parties.shop]\n'
        '[training]\nlearning_rate = 0.1\n[network]\naddress = "127.0.0.1:7443"\n'
    )
    done = subprocess.run([sys.executable, "-c", JOINING], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    unused = {"pandas", "sklearn", "scipy", "matplotlib", "numba", "ray", "dp_accounting", "grpc", "sympy", "duckdb"}
    assert unused & set(done.stdout.split()) == set()


ALIGNING = """
import sys
from pathlib import Path
import colonnade.launch.alignment_network
from colonnade.data.id_columns import listed, read_id_columns
from colonnade.data.settings import PartyData

(texts,) = read_id_columns(PartyData(file=sys.argv[1]), Path("/"), ["id"], "shop")
assert listed(texts) == ["07", "", "8"] and listed(texts[1:]) == ["", "8"], listed(texts)
print(*[name for name in ("pandas", "scipy", "numba", "sklearn", "matplotlib") if name in sys.modules])
"""


def test_an_aligning_party_reads_its_ids_without_what_it_does_not_need(tmp_path: Path) -> None:
    """Each of these packages takes tens of megabytes, in a process that is to stay small."""
    (tmp_path / "shop.csv").write_text("id,orders\n07,1\n,2\n8,3\n")
    given = [sys.executable, "-c", ALIGNING, str(tmp_path / "shop.csv")]
    done = subprocess.run(given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
