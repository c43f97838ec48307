"""Plans that are made once and used often: Plan::Bind of cc/dispatch/product.cc."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tf_tvm_ops import _native

SOURCES = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sections(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The lines that plan_probe.cc prints of each plan."""
    probe = tmp_path_factory.mktemp("probe") / "plan_probe"
    lib = Path(_native.__file__).parent / "lib"
    subprocess.run(
        [
            *(os.environ.get("CXX", "c++"), "-std=c++17", "-o", probe),
            *(f"-I{SOURCES}", Path(__file__).with_name("plan_probe.cc")),
            *(f"-L{lib}", "-ltf_tvm_ops_dispatch", f"-Wl,-rpath,{lib}"),
            "-Wl,--allow-shlib-undefined",  # libtvm_ffi is found when the probe runs
        ],
        check=True,
    )
    printed = subprocess.run([probe], check=True, capture_output=True, text=True).stdout
    titles_and_lines = (section.split("\n") for section in printed.strip().split("\n\n"))
    return {title: lines for title, *lines in titles_and_lines}


# Operands of float16 whose outer batches are 120, 160, 24 and 96 bytes apart.
AT_1000 = [
    "lhs 1000 rhs 2000 addend 3000 out 4000 kind 1 matrices 0-4",
    "lhs 1120 rhs 2160 addend 3024 out 4096 kind 1 matrices 0-4",
]
AT_5000 = [
    "lhs 5000 rhs 6000 addend 7000 out 8000 kind 1 matrices 0-4",
    "lhs 5120 rhs 6160 addend 7024 out 8096 kind 1 matrices 0-4",
]


def test_data_may_follow(sections: dict[str, list[str]]) -> None:
    assert sections["bound"] == AT_1000


def test_data_may_be_given_with_the_product(sections: dict[str, list[str]]) -> None:
    assert sections["with data"] == AT_1000


def test_data_may_be_exchanged(sections: dict[str, list[str]]) -> None:
    assert sections["bound again"] == AT_5000
    assert sections["copied before"] == AT_1000


def test_addend_is_ignored_without_one(sections: dict[str, list[str]]) -> None:
    """Nor does it keep batches apart: all three are one."""
    assert sections["without addend"] == ["lhs 1000 rhs 2000 addend 0 out 4000 kind 0 matrices 0-8"]
