"""What a reader finds on an HTML page."""

from __future__ import annotations

import re
from html.parser import HTMLParser


class Page(HTMLParser):
    """Tables by the heading before them, all text, and what elements refer to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.text = ""
        self.tags: set[str] = set()
        self.references: list[str] = []
        self._heading, self._in_heading = "", False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.references += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]
        if tag in ("h2", "h3"):
            self._heading, self._in_heading = "", True
        elif tag == "table":
            self.tables[self._heading] = []
        elif tag == "tr":
            self.tables[self._heading].append([])
        elif tag in ("td", "th"):
            self.tables[self._heading][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("h2", "h3"):
            self._in_heading = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_heading:
            self._heading += data
        elif self.lasttag in ("td", "th", "span") and self.tables.get(self._heading):
            self.tables[self._heading][-1][-1] += data.strip("\n") if data.isspace() else data

    def rows(self, heading: str) -> list[dict[str, str]]:
        """Those of a table, by the names of its columns; a repeated one has its place added."""
        head, *rows = self.tables[heading]
        names = [re.sub(r"-?\s+", " ", name) for name in head]
        names = [name + "'" * names[:i].count(name) for i, name in enumerate(names)]
        return [dict(zip(names, row, strict=True)) for row in rows]
