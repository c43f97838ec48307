"""What ``tf-tvm-ops inspect PACK KERNEL --show ...`` prints: a kernel's code on its way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tf_tvm_ops.kernels.manifest import ImageEntry, KernelEntry

FORMS = ("tir", "cuda", "ptx", "asm")
"""TensorIR; CUDA C++ and PTX of a kernel for GPUs; assembly of one for CPUs."""


def find(images: Iterable[ImageEntry], symbol: str, target: str | None) -> tuple[str, KernelEntry]:
    """The kernel of that name, and its target: the first of the pack, or the one asked for.

    Raises
    ------
    ValueError
        If there is none.
    """
    for image in images:
        for kernel in image.kernels:
            if kernel.symbol == symbol and target in (None, image.target):
                return image.target, kernel
    where = f" for {target}" if target else ""
    raise ValueError(f"no kernel {symbol}{where} in the pack; without a name, all are listed")


def code(target: str, entry: KernelEntry, form: str) -> str:
    """A kernel's code, made again from its config.

    Raises
    ------
    ValueError
        If the kernel has no such form, or its rule is not one of this version.
    ImportError
        Without TVM.
    """
    from tf_tvm_ops.kernels.cuda.targets import is_cuda

    return _of_gpu(target, entry, form) if is_cuda(target) else _of_cpu(target, entry, form)


def _choice_parts(rules: Iterable[Any], config: Mapping[str, Any]) -> tuple[Any, Any]:
    knobs = dict(config)
    name = knobs.pop("rule")
    for rule in rules:
        if rule.name == name:
            return rule, rule.config_type(**knobs)
    raise ValueError(f"rule {name!r} is not one of this version of tf_tvm_ops")


def _of_gpu(name: str, entry: KernelEntry, form: str) -> str:
    from tf_tvm_ops.kernels.cuda import build
    from tf_tvm_ops.kernels.cuda.compile import ptx_of
    from tf_tvm_ops.kernels.cuda.targets import parse_cuda_target
    from tf_tvm_ops.kernels.schedules.cuda_rule import CudaChoice
    from tf_tvm_ops.kernels.schedules.cuda_rules import CUDA_RULES

    choice = CudaChoice(*_choice_parts(CUDA_RULES, entry.config))
    kernel = build.CudaKernel(entry.problem, choice)
    if form == "tir":
        return str(build.function(kernel).script())
    if form == "cuda":
        return build.lower(kernel).cuda
    if form == "ptx":
        return ptx_of(build.lower(kernel).cuda, parse_cuda_target(name))
    raise ValueError(f"{form}: a kernel for GPUs has tir, cuda and ptx")


def _of_cpu(name: str, entry: KernelEntry, form: str) -> str:
    from tf_tvm_ops.kernels import build
    from tf_tvm_ops.kernels.schedules import Choice, rules
    from tf_tvm_ops.kernels.targets import parse_target

    target = parse_target(name)
    choice = Choice(*_choice_parts(rules(target), entry.config))
    kernel = build.Kernel(entry.problem, choice, target)
    if form == "tir":
        return str(build.tir(kernel).script())
    if form == "asm":
        return build.assembly(kernel)
    raise ValueError(f"{form}: a kernel for CPUs has tir and asm")
