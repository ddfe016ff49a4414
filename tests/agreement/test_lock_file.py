"""The locks fit what they were made from: every dependency is there, pinned, hashed, as constrained; no address.

PyTorch is not in the large one, as its opening comment says; what PyTorch's CPU build needs is.
"""

import re
import runpy
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tree import ROOT

TEXT = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ("ray", "sql", "serve", "export", "mlflow", "tensorboard", "otel", "transformers", "dev")
PYTHONS = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
ACCELERATORS = re.compile(r"(nvidia|cuda|triton|pytorch-triton|torch)\b")


def locked_lines() -> list[str]:
    """One string a package: the requirement and its hashes, without comments and options."""
    kept = "\n".join(line for line in TEXT.splitlines() if not line.lstrip().startswith("#"))
    return [line for line in kept.replace("\\\n", " ").splitlines() if line.strip() and line[0] != "-"]


def name_of(requirement: Requirement) -> str:
    return canonicalize_name(requirement.name)


LOCKED = [Requirement(line.split("--hash")[0]) for line in locked_lines()]
CONSTRAINTS = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


def asked_for() -> list[Requirement]:
    """What the project and its extras ask for, an extra that names another one included."""
    texts = [*PROJECT["dependencies"], *(text for extra in EXTRAS for text in PROJECT["optional-dependencies"][extra])]
    requirements = [Requirement(text) for text in texts]
    ourselves = [one for one in requirements if name_of(one) == PROJECT["name"]]
    assert all(one.extras <= set(EXTRAS) for one in ourselves)
    return [one for one in requirements if name_of(one) not in (PROJECT["name"], "torch")]


def version_of(requirement: Requirement) -> Version:
    (pin,) = requirement.specifier
    return Version(pin.version)


def locked_version(name: str, python: str) -> Version | None:
    """The version that a Linux machine with this Python would install; None if there is none."""
    where = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    found = [
        version_of(one) for one in LOCKED if name_of(one) == name and (one.marker is None or one.marker.evaluate(where))
    ]
    assert len(found) <= 1, f"{name} is locked {len(found)} times for Python {python}"
    return found[0] if found else None


def test_every_line_is_one_version_with_hashes() -> None:
    assert PYTHONS[0] == "3.11"
    assert len(LOCKED) > len(asked_for())
    for line in locked_lines():
        requirement, *hashes = line.split("--hash=")
        assert re.fullmatch(r"[a-z0-9-]+(\[[a-z0-9,-]+\])?==[^\s*,]+( ; .+)?", requirement.strip()), requirement
        assert hashes, f"{requirement} has no hash"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one.strip()) for one in hashes), requirement


def test_no_address_of_an_index_or_of_a_file() -> None:
    assert not re.search(r"://|--(extra-)?index-url|--find-links|--trusted-host|\s@\s", TEXT)


@pytest.mark.parametrize("python", PYTHONS)
def test_every_dependency_is_locked_as_the_project_asks(python: str) -> None:
    for requirement in asked_for():
        version = locked_version(name_of(requirement), python)
        assert version is not None, f"{requirement} is not in the lock; run `make lock`"
        assert requirement.specifier.contains(version), f"{requirement}, but {version} is locked; run `make lock`"


def test_the_lock_keeps_the_constraints() -> None:
    for constraint in CONSTRAINTS:
        for one in LOCKED:
            if name_of(one) == name_of(constraint):
                assert constraint.specifier.contains(version_of(one)), f"{one} breaks {constraint}; run `make lock`"


def test_torch_is_left_out_and_what_its_cpu_build_needs_is_not() -> None:
    assert not [str(one) for one in LOCKED if ACCELERATORS.match(name_of(one))]
    assert "PyTorch is left out" in TEXT.split("\n", 2)[1]
    assert "torch" in {name_of(one) for one in CONSTRAINTS}
    for needed in map(Requirement, metadata.requires("torch") or []):
        if ACCELERATORS.match(name_of(needed)) or (needed.marker and not needed.marker.evaluate({"extra": ""})):
            continue
        version = locked_version(name_of(needed), PYTHONS[0])
        assert version is not None and needed.specifier.contains(version), f"{needed}; mend lock.toml"


# --- the other two locks, and who uses them -----------------------------------------------------------------------


def test_torch_is_locked_by_itself_in_the_version_of_the_constraints() -> None:
    text = (ROOT / "torch.lock").read_text(encoding="utf-8")
    (line,) = [one for one in re.sub(r"^#.*$", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines() if one]
    pin, *hashes = line.split("--hash=sha256:")
    (wanted,) = [one for one in CONSTRAINTS if name_of(one) == "torch"]
    assert Requirement(pin).specifier == type(wanted.specifier)(f"{wanted.specifier}+cpu")
    assert len({one.strip() for one in hashes}) == 2 * len(PYTHONS)  # for x86_64 and aarch64
    assert all(re.fullmatch(r"[0-9a-f]{64}", one.strip()) for one in hashes)


def test_the_lock_of_the_image_is_what_a_party_needs_of_the_whole() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "image_lock.py"))
    text = tool["IMAGE"].read_text(encoding="utf-8")
    assert text == tool["lock_of_the_image"](), "run `make lock`"
    names = {tool["name_of"](block) for block in tool["blocks"](text)}
    asked = {name_of(Requirement(one)) for one in PROJECT["dependencies"]} - {"torch"}
    assert asked < names and {"setuptools", "sympy", "cffi"} < names  # also what PyTorch and others need in turn
    assert not names & {"pytest", "ray", "ruff", "mypy", "hypothesis"}


def test_ci_installs_from_the_locks_and_pins_its_actions() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    for action in re.findall(r"uses: (.*)$", text, re.MULTILINE):
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v[\d.]+", action), f"{action} may change under us"
    assert {"requirements.lock", "torch.lock", "deploy/requirements.lock"} == set(
        re.findall(r"--require-hashes .*-r (\S+)", text)
    )
