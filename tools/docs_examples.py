"""For the documentation site: examples in docstrings (`>>> …`) are shown as code, not as quotations of quotations."""

import re
from typing import Any

import griffe

# An example: lines with a prompt, and what is printed after them, until an empty line.
EXAMPLE = re.compile(r"(?:^[ ]*>>> .*\n?(?:^(?![ ]*$).*\n?)*)", re.MULTILINE)


class Examples(griffe.Extension):
    """Puts fences around the examples of every docstring."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )
