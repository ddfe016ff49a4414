"""The shell commands on a page of documentation, as a shell reads them: loops unrolled, quotes and variables resolved.

A restricted bash runs the page's blocks with functions in place of all programs, which only write down how they
were called; it can neither find a program nor write a file.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PROGRAMS = (
    "colonnade",
    "make",
    "python",
    "pip",
    "source",
    "cd",
    "curl",
    "ray",
    "ln",
    "systemctl",
    "jupyter",
    "kubectl",
    "helm",
)
BEGINS = re.compile(rf"(?:^|; |&& )(?:{'|'.join(PROGRAMS)}|for|rates\(\)) ", re.MULTILINE)
BLOCK = re.compile(
    r"^```(?P<kind>\w*)\n(?P<fenced>.*?)^```|(?P<indented>(?:^ {4,}\S[^\n]*\n)+)", re.MULTILINE | re.DOTALL
)
RECORD = """
note() { printf '%s\\037' "$@"; printf '\\n'; }
command_not_found_handle() { note "$@"; }
date() { echo today; }
basename() { echo "${1##*/}"; }
"""


def blocks(text: str) -> Iterator[str]:
    """What a reader types: lines behind a prompt, and indented blocks that begin with a program."""
    for found in BLOCK.finditer(text):
        if found["kind"] in ("console", "text"):
            whole = re.sub(r"\\\n *", "", found["fenced"])
            yield "\n".join(map(in_the_shell, re.findall(r"^\w*\$ (.*)", whole, re.MULTILINE)))
        elif found["indented"]:
            block = "\n".join(in_the_shell(line[4:]) for line in found["indented"].splitlines())
            if BEGINS.search(block):
                yield block


def in_the_shell(line: str) -> str:
    """What a shell is given of a line that is for cron or for systemd."""
    line = line.replace("/opt/colonnade/bin/", "")
    if line.startswith("ExecStart="):
        return line.removeprefix("ExecStart=/bin/sh -c ").strip("'").replace("%%", "%")
    line = re.sub(r"^(?:[\d*]+ ){5} *", "", line).replace("\\%", "%")
    return "" if re.match(r"[A-Z]\w+=|\[", line) else line


@cache
def calls(page: Path) -> list[tuple[str, ...]]:
    """The program and the words of every command on a page, in their order."""
    return calls_in(page.read_text(encoding="utf-8"), page.name)


def calls_in(text: str, name: str) -> list[tuple[str, ...]]:
    functions = "".join(f'{program}() {{ note {program} "$@"; }}\n' for program in PROGRAMS)
    shell = [shutil.which("bash") or "bash", "--norc", "-r", "-c", RECORD + functions + "\n".join(blocks(text))]
    done = subprocess.run(shell, capture_output=True, text=True, env={"PATH": "/nowhere"})
    assert not done.stderr, f"{name}: {done.stderr}"
    return [tuple(line.split("\037")[:-1]) for line in done.stdout.splitlines()]
