"""What every page looks like, and the pieces that it is made of: one file, without a network."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence

_STYLE = """
:root { color-scheme: light dark; --ink: #1d1d1b; --soft: #5a5a55; --grid: #dcdcd6;
  --surface: #fcfcfa; --row: #f3f3ee; --won: #00694d; --lost: #a94500;
  --blue: #0072b2; --red: #d55e00; --green: #009e73; --pink: #cc79a7; }
@media (prefers-color-scheme: dark) { :root { --ink: #eceae4; --soft: #a8a69e; --grid: #3c3c39;
  --surface: #191918; --row: #232321; --won: #4fc79f; --lost: #f08a45;
  --blue: #56b4e9; --red: #f08a45; --green: #2fc296; --pink: #e0a3c6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 78rem; color: var(--ink);
  background: var(--surface); font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 3rem 0 .5rem; border-bottom: 1px solid var(--grid); }
h3 { font-size: 1rem; margin: 2rem 0 .4rem; }
p, figcaption { max-width: 60rem; margin: .4rem 0; }
p.soft, figcaption, dt { color: var(--soft); }
figcaption { font-size: .87rem; }
figure { margin: .5rem 0 1.5rem; }
svg { display: block; width: 100%; height: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem; margin: .6rem 0; }
dd { margin: 0; }
.scroll { overflow: auto; max-height: 40rem; border: 1px solid var(--grid); }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; }
.scroll table { width: 100%; }
th, td { padding: .28rem .6rem; text-align: left; white-space: nowrap; }
th { position: sticky; top: 0; background: var(--row); font-weight: 600; vertical-align: bottom; }
.scroll th { cursor: pointer; white-space: pre; }
.scroll td:first-child, .scroll th:first-child { position: sticky; left: 0; }
.scroll td:first-child { background: inherit; } .scroll th:first-child { z-index: 1; }
.scroll tbody tr { background: var(--surface); }
th.n, td.n { text-align: right; }
tbody tr:nth-child(even), .scroll tbody tr:nth-child(even) { background: var(--row); }
.won { color: var(--won); } .lost { color: var(--lost); }
ul { margin: .3rem 0; padding-left: 1.2rem; } li { overflow-wrap: anywhere; }
"""

# A click on the head of a column sorts by it; another one the other way round.
_SCRIPT = """
for (const head of document.querySelectorAll(".scroll th")) head.onclick = () => {
  const body = head.closest("table").tBodies[0], at = head.cellIndex;
  const up = head.dataset.up = head.dataset.up === "1" ? "" : "1";
  const key = row => row.cells[at].dataset.v ?? row.cells[at].textContent;
  const order = (a, b) => a - b || String(a).localeCompare(b, undefined, {numeric: true});
  body.append(...[...body.rows].sort((a, b) => (up ? 1 : -1) * order(key(a), key(b))));
};
"""


class Cell(str):
    """HTML of a cell of a table.

    Attributes
    ----------
    value
        What rows are sorted by, if not by the text.
    """

    value: float | None = None


def text(content: object) -> str:
    """Any text, escaped."""
    return html.escape(str(content))


def cell(content: object, value: float | None = None, kind: str = "") -> Cell:
    """A cell of text, escaped; ``kind`` is ``"won"``, ``"lost"`` or nothing."""
    escaped = text(content)
    made = Cell(f'<span class="{kind}">{escaped}</span>' if kind else escaped)
    made.value = value
    return made


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell | str]],
    *,
    words: Collection[int] = (0,),
    scroll: bool = False,
) -> str:
    """A table.

    Parameters
    ----------
    heads
        Names of the columns, not escaped yet.
    rows
        Cells; strings are not escaped yet.
    words
        The columns that hold words; the others hold numbers.
    scroll
        Whether it is long: it scrolls, and sorts when a head is clicked.
    """

    def kind(index: int) -> str:
        return "" if index in words else ' class="n"'

    def one(index: int, content: Cell | str) -> str:
        made = content if isinstance(content, Cell) else cell(content)
        value = "" if made.value is None else f' data-v="{made.value:.9g}"'
        return f"<td{kind(index)}{value}>{made}</td>"

    head = "".join(f"<th{kind(i)}>{text(name)}</th>" for i, name in enumerate(heads))
    body = "\n".join(
        f"<tr>{''.join(one(i, content) for i, content in enumerate(row))}</tr>" for row in rows
    )
    made = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'<div class="scroll">{made}</div>' if scroll else made


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what there is to say of each, not escaped yet."""
    return f"<dl>{''.join(f'<dt>{text(a)}</dt><dd>{text(b)}</dd>' for a, b in pairs)}</dl>"


def bullets(lines: Iterable[str]) -> str:
    """A list of lines, not escaped yet."""
    return f"<ul>{''.join(f'<li>{text(line)}</li>' for line in lines)}</ul>"


def figure(svg: str, caption: str) -> str:
    """A chart, and how to read it; the caption is not escaped yet."""
    return f"<figure>{svg}<figcaption>{text(caption)}</figcaption></figure>"


def document(title: str, body: Iterable[str]) -> str:
    """The whole page."""
    content = "\n".join(body)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body>\n{content}\n<script>{_SCRIPT}</script></body></html>\n"
    )
