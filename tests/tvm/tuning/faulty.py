"""A rule whose candidates fail in every way there is, for real compilers and processes."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from tf_tvm_ops.kernels.schedules import Choice, Config, Rule
from tf_tvm_ops.kernels.schedules.cpu_broadcast import BroadcastConfig, CpuBroadcast
from tf_tvm_ops.kernels.tuning.backend import CpuBackend
from tf_tvm_ops.kernels.tuning.space import Candidate


@dataclass(frozen=True)
class FaultyConfig(Config):
    """``fault`` is ``""`` or what is wrong with the kernel; ``number`` tells good ones apart."""

    fault: str
    number: int = 0


class Faulty(Rule[FaultyConfig]):
    name = "cpu_faulty"
    config_type = FaultyConfig

    def refusal(self, problem, target) -> None:
        return None

    def space(self, problem, target) -> Iterator[FaultyConfig]:
        raise NotImplementedError

    def cost(self, problem, target, config) -> float:
        return 1.0

    def emit(self, matrix, target, config) -> None:
        if config.fault == "raises":
            raise ValueError("no such tile")
        if config.fault == "compiler_killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if config.fault == "compiler_hangs":
            time.sleep(3600)
        if config.fault == "ends_parent":
            parent = tirx.call_extern("int32", "getppid")
            kill = tirx.IntImm("int32", signal.SIGKILL)
            T.evaluate(tirx.call_extern("int32", "kill", parent, kill))
        if config.fault == "crashes":
            T.evaluate(tirx.call_extern("int32", "raise", tirx.IntImm("int32", signal.SIGSEGV)))
        if config.fault == "hangs":
            T.evaluate(tirx.call_extern("int32", "pause"))
        if config.fault == "hangs_later":
            # A check has few matrices. What is timed has more, and no addend.
            with T.If(matrix.lhs_offset > 1000), T.Then():
                T.evaluate(tirx.call_extern("int32", "pause"))
        if config.fault == "wrong":
            matrix = dataclasses.replace(matrix, k=matrix.k - 1)
        CpuBroadcast().emit(matrix, target, BroadcastConfig(1 + config.number % 3, 1))


RULE = Faulty()


class FaultyBackend(CpuBackend):
    """Its space is one good candidate, then those with ``faults``."""

    def __init__(self, target, cache, faults) -> None:
        super().__init__(target, cache)
        self.faults = faults

    def space(self, problem):
        return [
            Candidate(Choice(RULE, FaultyConfig(fault, number)), 100.0 + number)
            for number, fault in enumerate(self.faults)
        ]
