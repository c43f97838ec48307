"""The API page against the code."""

from __future__ import annotations

from pathlib import Path

from tf_tvm_ops import config

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_every_environment_variable_is_on_the_page() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if "| `TF_" in line]
    for variable in config.ALL:
        (row,) = (row for row in rows if f"`{variable.name}`" in row)
        if variable is not config.CPU_TARGET:  # has as many as there are targets
            assert all(f"`{choice}`" in row for choice in variable.choices)
    assert len(rows) == len(config.ALL)
