"""For the documentation site: two files at the root of the repository are pages of it, too."""

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {"architecture.md": "ARCHITECTURE.md", "glossary.md": "GLOSSARY.md"}


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """The page's own text, or that of the file that it stands for."""
    name = PAGES.get(page.file.src_uri)
    return markdown if name is None else (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
