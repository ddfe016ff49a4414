"""Writes deploy/requirements.lock: of requirements.lock, what a party needs to run, and neither tests nor Ray.

`make lock` runs it. Which package needs which is in the comments of requirements.lock ("via").
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
WHOLE = ROOT / "requirements.lock"
IMAGE = ROOT / "deploy" / "requirements.lock"
HEAD = """# What the image of deploy/Dockerfile is made of, but PyTorch: of requirements.lock what a party needs to run.
# `make lock` writes it. Install it with --require-hashes, then torch.lock, then Colonnade itself without dependencies.
"""


def blocks(text: str) -> list[str]:
    """One string a package: its requirement, its hashes, and who needs it."""
    lines = [line for line in text.splitlines(keepends=True) if line.strip() and not line.startswith("#")]
    return re.findall(r"^\S.*\n(?:[ \t]+.*\n)*", "".join(lines), re.MULTILINE)


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def needed_by(block: str) -> set[str]:
    """The packages that a block's comment names."""
    comment = re.sub(r"^.*?# via", "", block, count=1, flags=re.DOTALL)
    return {name_of(word) for word in re.findall(r"[A-Za-z][A-Za-z0-9._-]*", re.sub(r"\(.*?\)|\[.*?\]", "", comment))}


def lock_of_the_image() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {name_of(one) for one in project["dependencies"]}
    found = blocks(WHOLE.read_text(encoding="utf-8"))
    while more := {name_of(block) for block in found if needed_by(block) & needed} - needed:
        needed |= more
    return HEAD + "".join(block for block in found if name_of(block) in needed)


if __name__ == "__main__":
    IMAGE.write_text(lock_of_the_image(), encoding="utf-8")
    sys.stdout.write(f"{IMAGE.relative_to(ROOT)}: {len(blocks(IMAGE.read_text(encoding='utf-8')))} packages\n")
