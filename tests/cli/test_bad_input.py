"""A user's mistake is one clear sentence and exit code 2, and leaves no half-written run behind."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import IRIS, colonnade, complaint, refused, tables, toml, write_tables

from colonnade.algorithms import ALGORITHMS


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("algorithm.name=valf", "no algorithm 'valf'. Did you mean 'vafl'?"),
        ("algorithm.name=7", f"no algorithm '7'. Known: {', '.join(sorted(ALGORITHMS))}."),
        ("algorithm.wait_fro=2", "no setting in [algorithm] named 'wait_fro'. Did you mean 'wait_for'?"),
        ("algorithm.wait_for=3", "algorithm.wait_for is 3; there are 2 feature parties"),
        ("algorithm.wait_for=true", "algorithm.wait_for is wrong: expected a whole number, got true or false"),
        ("algorithm.wait_for=1.5", "algorithm.wait_for is wrong: expected a whole number, got a number with decimals"),
        ("algorithm.refresh_timeout_seconds=nan", "algorithm.refresh_timeout_seconds is nan"),
        ("algorithm.activation_seconds=nan", "algorithm.activation_seconds must be finite"),
        ("algorithm.activation_seconds.party9=1", "activation_seconds 'party9'. Did you mean 'party"),
        ("traning.epochs=3", "no section 'traning'. Did you mean 'training'?"),
        ("training.epohcs=3", "no setting in [training] named 'epohcs'. Did you mean 'epochs'?"),
        ("training.epochs=many", "training.epochs is wrong: expected a number, got text"),
        ("training.epochs=-1", "training.epochs is -1.0"),
        ("training.epochs=nan", "training.epochs is nan"),
        ("training.batch_size=500", "training.batch_size is 500; with 112 training rows it must be 1 to 112"),
        ("training.batch_size=0", "training.batch_size is 0"),
        ("training.optimiser=adma", "no value of training.optimiser 'adma'. Did you mean 'adam'?"),
        ("data.set=irsi", "no data set 'irsi'. Did you mean 'iris'?"),
        ("data.set=mnist", "COLONNADE_DATA is not set"),
        ("data.split=equal-column", "no split 'equal-column'. Did you mean 'equal-columns'?"),
        ("data.split=row-strips", "'row-strips' cuts images"),
        ("data.parties=9", "9 parties cannot share 4 columns"),
        ("data.test_fraction=1", "data.test_fraction is 1.0"),
        ("bottom.kind=mpl", "no bottom model 'mpl'. Did you mean 'mlp'?"),
        ("bottom.kind=cnn", "'cnn' was given rows of shape (2,)"),
        ("bottom.hidden=3", "bottom.hidden is wrong: expected a list, got a whole number"),
        ("top.kind=concat-mpl", "no top model 'concat-mpl'. Did you mean 'concat-mlp'?"),
        ("privacy.noise=nan", "'noise' is nan"),
        ("privacy.update_share=1", "privacy.update_share is 1.0; it must be below 1"),
        ("simulate.loss=1", "simulate.loss is 1.0"),
        ("simulate.latency_seconds=slow", "simulate.latency_seconds is 'slow'"),
        ("simulate.latency_seconds=-1", "simulate.latency_seconds"),
        ("simulate.compute_seconds=x", "simulate.compute_seconds is 'x'"),
        ("simulate.parties.party9.slowdown=3", "simulate.parties 'party9'. Did you mean 'party"),
        ("simulate.parties.party2.slowdwon=3", "named 'slowdwon'. Did you mean 'slowdown'?"),
        ("simulate.parties.party2.slowdown=fast", "simulate.parties.party2.slowdown is wrong: expected a number"),
        ("simulate.parties.party2=3", "[simulate.parties.party2] must be a table"),
        ("simulate.links.party1.latency_seconds=1", 'simulate.links has "party1"; write it as "from -> to"'),
        ("parties.party1.bottom.knid=mlp", "no setting in [parties.party1.bottom] named 'knid'. Did you mean 'kind'?"),
        ("federation.seed=-1", "federation.seed is -1"),
        ("federation.seed=2026-01-01", "federation.seed is wrong: expected a whole number, got date"),
        ("federation.label_party=a/b", "party name 'a/b' will not do"),
        ("federation.name=../mine", "federation.name is '../mine'"),
        ("epochs=3", "write it as section.name=value"),
        ("nonsense", "write it as section.name=value"),
        ("data.set.name=3", "set is a value, not a section"),
    ],
)
def test_a_wrong_setting(change: str, sentence: str) -> None:
    flowers = toml("flowers.toml", IRIS)
    assert sentence in refused("run", flowers, "--set", change, "--out", "mine")
    assert sentence in refused("run", flowers, "--set", change)
    assert [path.name for path in Path().iterdir()] == ["flowers.toml"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[data\n", "wrong.toml is not valid TOML"),
        ("[data]\nset =\n", "(at line 2, column 6)"),
        ("", "no [data] section"),
        ("[dtaa]\n", "no section 'dtaa'. Did you mean 'data'?"),
        ("data = 3\n", "[data] must be a table"),
        ('data = {set = "iris"}\nalgorithm = "vafl"\n', "[algorithm] must be a table"),
        ('data = {set = "iris"}\nparties = 3\n', "[parties] must be a table"),
        ('data = {set = "iris"}\nparties = {a = 3}\n', "[parties.a] must be a table"),
        ('data = {set = "iris"}\nsimulate = {parties = 3}\n', "simulate.parties is wrong: expected a table"),
        ('data = {set = "iris"}\n', "no feature party: set data.parties"),
        (
            'data = {set = "iris"}\nalgorithm = {name = "afsgd", step = "fixd"}\n',
            "no value of algorithm.step 'fixd'. Did you mean 'fixed'? Known: auto, fixed, search.",
        ),
    ],
)
def test_a_wrong_file(text: str, sentence: str) -> None:
    assert sentence in refused("run", toml("wrong.toml", text), "--out", "mine")
    assert not Path("mine").exists()


def test_a_file_that_is_not_there_or_no_text() -> None:
    assert refused("run", "absent.toml") == "There is no file absent.toml. Give the path of a federation.toml."
    Path("bytes.toml").write_bytes(b"\xff\xfe\x00")
    assert "bytes.toml is not valid TOML: it is not UTF-8 text" in refused("run", "bytes.toml")
    assert "is a directory" in refused("run", ".")


def test_an_unknown_runtime() -> None:
    sentence = refused("run", toml("flowers.toml", IRIS), "--runtime", "simulat")
    assert "no runtime 'simulat'. Did you mean 'simulate'?" in sentence


@pytest.mark.parametrize("wrong", [("rnu",), ("run",), ("run", "x", "--nope"), ("run", "x", "--threads", "many"), ()])
def test_a_wrong_call_shows_the_usage(wrong: tuple[str, ...]) -> None:
    answer = colonnade(*wrong)
    assert answer.code == 2
    assert "Usage: colonnade" in answer.err + answer.out
    assert "Traceback" not in answer.err


# --- data -------------------------------------------------------------------------------------------------------

HELD = tables()
SHOP, CLINIC, BANK = HELD["shop"], HELD["clinic"], HELD["bank"]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"clinic": CLINIC.rename(columns={"age": "orders"})}, "'orders' is held by both 'shop' and 'clinic'"),
        ({"shop": SHOP[3:]}, "'shop' lacks 3"),
        ({"shop": SHOP.assign(id=SHOP["id"] // 2)}, "repeats ids (20 of its 40 rows"),
        ({"shop": SHOP.assign(id=SHOP["id"].where(SHOP["id"] > 3))}, "4 rows without an id"),
        ({"bank": BANK.assign(default=1)}, "all of one class"),
        ({"bank": BANK.assign(default=BANK["default"].where(BANK["id"] > 3))}, "the label is missing in 4 of the 40"),
    ],
)
def test_wrong_data(changed, sentence: str) -> None:
    assert sentence in refused("run", write_tables(**changed), "--out", "mine")
    assert not Path("mine").exists()


ONE_TEXT = SHOP["orders"].astype(str).where(SHOP["id"] != 3, "many")


@pytest.mark.parametrize(
    ("shop", "line"),
    [
        (SHOP.assign(orders=SHOP["orders"].where(SHOP["id"] > 3)), "'orders' misses a value in 4 train rows"),
        (SHOP.assign(orders=np.inf), "column 'orders', rows 1, 2, 3 and 27 more: is infinite"),
        (SHOP.assign(orders=ONE_TEXT), "column 'orders', row 4: is text where a number belongs"),
        (SHOP.assign(orders=ONE_TEXT, returns=np.inf), "column 'returns', rows 1, 2, 3 and 27 more: is infinite"),
    ],
)
def test_cells_that_cannot_be_used(shop: pd.DataFrame, line: str) -> None:
    said = complaint("run", write_tables(shop=shop), "--set", "data.missing=refuse", "--out", "mine")
    assert "'shop'" in said and "'shop.csv'" in said and line in said
    assert not Path("mine").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ('parties.shop.columns=["ordres"]', "'shop' has no column 'ordres'. Did you mean 'orders'?"),
        ('parties.shop.columns=["id"]', "that is the id"),
        ("parties.shop.columns=orders", "parties.shop.columns is wrong: expected a list, got text"),
        ("parties.shop.file=absent.csv", "'shop' has no file 'absent.csv'"),
        ("parties.shop.file=three.toml", "whose kind is not known by its ending"),
        ("parties.shop.fiel=shop.csv", "named 'fiel'. Did you mean 'file'?"),
        ("data.id=idd", "has no id column 'idd'. Did you mean 'id'?"),
        ("federation.label_party=bnak", "'bnak' has no data"),
    ],
)
def test_wrong_words_about_data(change: str, sentence: str) -> None:
    assert sentence in refused("run", write_tables(), "--set", change, "--out", "mine")
    assert not Path("mine").exists()


@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 9, b"id,orders\n1,2\n3,4,5,6\n", b"PAR1"])
@pytest.mark.parametrize("file", ["shop.csv", "clinic.parquet", "bank.npz"])
def test_a_file_of_another_kind(file: str, content: bytes) -> None:
    federation = write_tables()
    Path(file).write_bytes(content)
    party = file.partition(".")[0]
    assert f"'{party}'" in refused("run", federation, "--out", "mine")
    assert not Path("mine").exists()


# --- directories ------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_directory_that_exists_is_left_alone() -> None:
    flowers = toml("flowers.toml", IRIS)
    for name in ("mine", "taken"):
        Path(name).mkdir()
        Path(name, "keep").write_text("this")
        assert f"The directory {name} exists already" in refused("run", flowers, "--out", name)
        assert contents(Path(name)) == {f"{name}/keep": b"this"}
    assert "exists already" in refused("run", flowers, "--out", "flowers.toml")
    assert flowers.read_text() == IRIS


def test_a_directory_that_cannot_be_made() -> None:
    flowers = toml("flowers.toml", IRIS)
    sentence = refused("run", flowers, "--out", "flowers.toml/mine")
    assert sentence == (
        "The run directory flowers.toml/mine could not be made: Not a directory. Choose another one with --out."
    )


def test_a_directory_that_may_not_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    flowers = toml("flowers.toml", IRIS)
    Path("locked").mkdir(mode=0o500)
    if os.geteuid() == 0:  # to whom every directory is writable

        def refuse(path: str, *rest: object, make: Any = os.mkdir) -> None:
            if Path(path).parent.name == "locked":
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            make(path, *rest)

        monkeypatch.setattr(os, "mkdir", refuse)
    assert "could not be made: Permission denied" in refused("run", flowers, "--out", "locked/mine")


def test_resume_of_what_is_no_run() -> None:
    flowers = toml("flowers.toml", IRIS)
    Path("empty").mkdir()
    assert refused("run", "empty", "--resume") == "empty is not a run to resume: it has no federation.toml."
    assert "absent is not a run to resume" in refused("run", flowers, "--resume", "--out", "absent")
    assert not [*Path("empty").iterdir()] and not Path("absent").exists()


def test_resume_without_a_checkpoint() -> None:
    colonnade("run", toml("flowers.toml", IRIS), "--no-report", "--out", "mine")
    for path in Path("mine/checkpoints").glob("*-*"):
        path.unlink()
    before = contents(Path("mine"))
    assert "There is no whole checkpoint in mine/checkpoints" in refused("run", "mine", "--resume", code=1)
    shutil.rmtree("mine/checkpoints")
    assert "data.json is missing or torn" in refused("run", "mine", "--resume", code=1)
    assert contents(Path("mine")) == {name: text for name, text in before.items() if "checkpoints" not in name}


def test_resume_with_other_settings_names_them() -> None:
    colonnade("run", toml("flowers.toml", IRIS), "--no-report", "--out", "mine")
    before = contents(Path("mine"))
    changes = ("--set", "training.epochs=9", "--set", "federation.seed=3")
    sentence = refused("run", "mine", "--resume", *changes)
    assert "was started with other settings: federation.seed, training.epochs differ" in sentence
    assert "without --trace" in refused("run", "mine", "--resume", "--trace")
    assert contents(Path("mine")) == before


def test_resume_with_other_data_says_whose() -> None:
    colonnade("run", write_tables(), "--no-report", "--out", "mine")
    before = contents(Path("mine"))
    write_tables(shop=SHOP.assign(orders=SHOP["orders"].where(SHOP["id"] != 3, 0.5)))
    assert "since the run in mine was started: columns of shop." in refused("run", "mine", "--resume")
    write_tables(bank=BANK.assign(default=1 - BANK["default"]))
    assert "since the run in mine was started: labels." in refused("run", "mine", "--resume")
    write_tables(**{name: held.assign(id=held["id"] + 1) for name, held in HELD.items()})
    assert "rows or their order" in refused("run", "mine", "--resume")
    Path("shop.csv").unlink()
    assert "'shop' has no file" in refused("run", "mine", "--resume")
    assert contents(Path("mine")) == before
    write_tables()
    assert colonnade("run", "mine", "--resume", "--no-report").code == 0


# --- TOML that no file of a person is ----------------------------------------------------------------------------

UNREADABLE = {
    "deep brackets": (b"[data]\nset = " + b"[" * 20_000, "nested too deeply"),
    "deep tables": (b"[data]\nset = " + b"{a=" * 20_000, "nested too deeply"),
    "deep keys": (b"[data]\n" + b"a." * 2_000 + b"a = 1", "nested more than 64 deep"),
    "many digits": (b"[federation]\nseed = " + b"7" * 5000, "a number has too many digits"),
    "many bits": (b"[federation]\nseed = " + b"7" * 50, "an integer has more than 64 bits"),
    "not UTF-8": (b"[data]\nset = '\xff'", "not UTF-8"),
    "a NUL": (b"[data]\nset = '\0'", "is not valid TOML"),
    "too large": (b"#" * ((16 << 20) + 1), "larger than the 16,777,216 bytes"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_toml_that_cannot_be_read_is_one_sentence(tmp_path: Path, what: str) -> None:
    content, sentence = UNREADABLE[what]
    (tmp_path / "bad.toml").write_bytes(content)
    assert sentence in refused("run", tmp_path / "bad.toml")
    good = toml(str(tmp_path / "good.toml"), IRIS)
    assert sentence in refused("join", good, "--party", tmp_path / "bad.toml")


def test_a_directory_or_a_pipe_is_no_toml_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path, "is a directory"),
        (tmp_path / "pipe", "is a pipe"),
        (Path("/dev/zero"), "a device"),
    ):
        assert words in refused("run", path)  # at once: nobody writes to the pipe


@pytest.mark.parametrize("value", ["[" * 20_000, "7" * 5000, "{a=" * 20_000, "7" * 50], ids=range(4))
def test_a_change_that_cannot_be_read_is_one_sentence(tmp_path: Path, value: str) -> None:
    told = refused("run", toml(str(tmp_path / "good.toml"), IRIS), "--set", f"federation.seed={value}")
    assert "--set federation.seed=…" in told and len(told) < 300


def test_a_link_to_a_federation_is_followed(tmp_path: Path) -> None:
    """As a cluster hands out configuration."""
    (tmp_path / "link.toml").symlink_to(toml(str(tmp_path / "good.toml"), IRIS))
    assert colonnade("account", tmp_path / "link.toml", "--json").code == 0
