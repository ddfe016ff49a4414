"""For the documentation site: how docstrings are shown there.

Examples (`>>> …`) are code, not quotations of quotations. The sentences under the settings of a class become one table,
in place of a heading for each; their links, which are those of a page in docs/, lead there from docs/reference/.
"""

import re
from typing import Any

import griffe

# An example: lines with a prompt, and what is printed after them, until an empty line.
EXAMPLE = re.compile(r"(?:^[ ]*>>> .*\n?(?:^(?![ ]*$).*\n?)*)", re.MULTILINE)


class Docstrings(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        explained = [one for one in cls.members.values() if one.is_attribute and not one.is_alias and one.docstring]
        if (
            not explained
            or cls.docstring is None
            or "dataclass" not in str(cls.decorators[:1] and cls.decorators[0].value)
        ):
            return
        rows = [f"| `{one.name}` | {in_a_cell(one.docstring.value)} |" for one in explained if one.docstring]
        cls.docstring.value += "\n\n" + "\n".join(["| name | meaning |", "| --- | --- |", *rows])
        for one in explained:
            one.docstring = None


def in_a_cell(text: str) -> str:
    """On one line, with links that lead from docs/reference/ where they lead from docs/.

    >>> in_a_cell("[more](how-to/precision.md), [below](#endurance)")
    '[more](../how-to/precision.md), [below](../settings.md#endurance)'
    """
    to_page = re.sub(r"\]\(#", "](settings.md#", " ".join(text.split()))
    return re.sub(r"\]\((?!\w+:)", "](../", to_page).replace("|", "\\|")
