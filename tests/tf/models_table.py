"""What the rewriter does with each model, for the tests and for the documentation.

``python -m tests.tf.models_table`` writes the tables of ``docs/rewriting.md`` anew, that of models
from ``models.yaml``. With ``--run`` it runs all models first and writes ``models.yaml``, whose
changes are to be read: each is a fusion gained or lost.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "rewriting.md"
HEADER = """\
# What becomes of the products of each model (models.py) in each mode (model_runs.py); how many of
# them run, without those that TensorFlow removes; and by how many the ops of the graph become fewer
# or more. Written by models_table.py.
"""
HEADER_FLOAT16 = """\
# Where the CPU computes in float16 (AVX512-FP16 and the like): instead of what models.yaml has.
"""
TITLES = {"open": "Inference, batch and lengths open", "training": "A training step, known shapes"}


def main() -> None:
    """Write the tables, and ``models.yaml`` if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true", help="run all models first")
    if parser.parse_args().run:
        run_all()
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def run_all() -> None:
    """Run every model in every mode and write down what became of it."""
    from . import model_runs, models

    found: dict[Path, dict[str, Any]] = {
        path: model_runs.expected(path)
        for path in (model_runs.EXPECTED, model_runs.EXPECTED_FLOAT16)
    }
    for case in models.MODELS:
        model = model_runs.build(case)
        found[model_runs.expectation(case)][case.name] = {
            mode.name: model_runs.run(case, model, mode).summary()
            for mode in model_runs.MODES.values()
            if case.trains or mode.name != "training"
        }
        print(case.name, flush=True)
    for path, by_name in found.items():
        names = [case.name for case in models.MODELS if case.name in by_name]
        text = HEADER if path == model_runs.EXPECTED else HEADER_FLOAT16
        path.write_text(text + "".join(_entry(n, by_name[n]) for n in names), encoding="utf-8")


def _entry(name: str, by_mode: Mapping[str, Any]) -> str:
    lines = [f"{name}:\n"]
    for mode, summary in by_mode.items():
        lines.append(f"  {mode}:\n    products:\n")
        lines += [f"      {text}: {n}\n" for text, n in summary["products"].items()]
        lines.append(f"    ran: {summary['ran']}\n")
        changes = (f"{op}: {change}" for op, change in summary["ops"].items())
        lines.append(f"    ops: {{{', '.join(changes)}}}\n")
    return "".join(lines)


def with_tables(page: str) -> str:
    """The page with its tables as they should be."""
    for name, lines in (("reasons", _reasons()), ("models", _models())):
        before, rest = page.split(f"<!-- {name}: begin -->\n")
        _, after = rest.split(f"<!-- {name}: end -->")
        text = "\n".join(lines).strip("\n")
        page = f"{before}<!-- {name}: begin -->\n{text}\n<!-- {name}: end -->{after}"
    return page


def _reasons() -> Iterator[str]:
    from tf_tvm_ops import rewrite

    yield "| reason | meaning |"
    yield "|---|---|"
    for word, sentence in rewrite.reasons().items():
        yield f"| `{word}` | {sentence} |"


def _models() -> Iterator[str]:
    from . import model_runs, models

    expected = model_runs.expected()
    for mode, title in TITLES.items():
        yield f"### {title}"
        yield ""
        yield "| model | found | rewritten | fused with them | no more fused because | left alone |"
        yield "|---|---|---|---|---|---|"
        for case in models.MODELS:
            if mode in expected[case.name]:
                yield _row(case.title, expected[case.name][mode]["products"])
        yield ""


def _row(title: str, products: Mapping[str, int]) -> str:
    rewritten = 0
    fused: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for text, count in products.items():
        what, _, reason = text.partition("; ended by ")
        if what.startswith("left alone by "):
            left[what.removeprefix("left alone by ")] += count
            continue
        rewritten += count
        ended[reason] += count
        for part in filter(None, what.partition(" with ")[2].split(", ")):
            fused[part.split()[-1]] += count
    del ended[""]
    cells: list[Any] = [title, sum(products.values()), rewritten]
    cells += [
        ", ".join(f"{fused[part]} {part}{'s' * (fused[part] > 1)}" for part in sorted(fused)),
        _by_reason(ended),
        _by_reason(left),
    ]
    return f"| {' | '.join(map(str, cells))} |".replace("|  ", "| ")


def _by_reason(counts: Counter[str]) -> str:
    return ", ".join(f"{count} `{reason}`" for reason, count in sorted(counts.items()))


if __name__ == "__main__":
    main()
