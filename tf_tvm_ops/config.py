"""The environment variables of tf_tvm_ops: every one of them, and nowhere else.

The C++ side reads the same names: the build runs ``python config.py`` to write them into a header.
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """One environment variable.

    Attributes
    ----------
    name
        As set in the environment.
    default
        Its value when unset or empty.
    choices
        The values allowed, or empty when any text is.
    meaning
        One sentence for ``tf-tvm-ops doctor`` and the documentation.
    """

    name: str
    default: str
    choices: tuple[str, ...]
    meaning: str

    def get(self) -> str:
        """The value in force.

        Raises
        ------
        ValueError
            If the value is not one of ``choices``.
        """
        value = os.environ.get(self.name) or self.default
        if self.choices and value not in self.choices:
            raise ValueError(
                f"{self.name}={value!r}: expected one of {', '.join(self.choices)}; "
                f"unset it to get {self.default!r}"
            )
        return value


PACKS = Variable(
    "TF_TVM_OPS_PACKS",
    "",
    (),
    "Folders of packs to load, separated by colons, the first preferred.",
)
FALLBACK = Variable(
    "TF_TVM_OPS_FALLBACK",
    "auto",
    ("auto", "generic", "stock"),
    "What serves a product that no pack has a kernel for: the generic kernel, TensorFlow's own, "
    "or whichever is expected to be faster.",
)
LOG = Variable(
    "TF_TVM_OPS_LOG",
    "warning",
    ("error", "warning", "info"),
    "The least severe message that is written to standard error.",
)
CPU_TARGET = Variable(
    "TF_TVM_OPS_CPU_TARGET",
    "",
    (
        *("", "none", "cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:x86-64-v4-bf16"),
        *("cpu:x86-64-v4-amx-bf16", "cpu:x86-64-v4-amx-fp16"),
    ),
    "The best CPU target to use even if the CPU has a better one; 'none' uses no pack image.",
)
XLA = Variable(
    "TF_TVM_OPS_XLA",
    "on",
    ("on", "off"),
    "Whether the XLA kernels of the ops, for jit_compile=True and auto-clustering, are loaded with "
    "them; tf_tvm_ops.load_xla() loads them in any case.",
)
REWRITE = Variable(
    "TF_TVM_OPS_REWRITE",
    "on",
    ("on", "off", "report"),
    "Whether graphs are rewritten to use the ops from the moment the library is loaded; 'report' "
    "also writes to standard error what became of each product of each graph.",
)
CUDA_RUNTIME = Variable(
    "TF_TVM_OPS_CUDA_RUNTIME",
    "",
    (),
    "Folders to look in first for what kernels for GPUs need, separated by colons: "
    "libcudart.so.13, libtvm_runtime.so and libtvm_runtime_cuda.so.",
)

ALL = (PACKS, FALLBACK, LOG, CPU_TARGET, XLA, REWRITE, CUDA_RUNTIME)


def header() -> str:
    """The names, defaults and choices as a C++ header."""
    lines = ["// Written by tf_tvm_ops/config.py. Do not edit.", "#pragma once", ""]
    lines += ["#include <array>", "#include <string_view>", ""]
    lines.append("namespace tf_tvm_ops::config {")
    for variable in ALL:
        stem = "".join(p.title() for p in variable.name.removeprefix("TF_TVM_OPS_").split("_"))
        lines.append(f'inline constexpr char k{stem}[] = "{variable.name}";')
        lines.append(f'inline constexpr char k{stem}Default[] = "{variable.default}";')
        choices = ", ".join(f'"{choice}"' for choice in variable.choices)
        lines.append(
            f"inline constexpr std::array<std::string_view, {len(variable.choices)}> "
            f"k{stem}Choices{{{choices}}};"
        )
    lines.append("}  // namespace tf_tvm_ops::config")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(header(), end="")
