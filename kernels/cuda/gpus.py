"""NVIDIA GPUs by name, with the figures of their data sheets. Needs no TVM.

Per compute capability (threads, blocks, shared memory and registers of a multiprocessor): CUDA C++
Programming Guide, section "Compute Capabilities", table "Technical Specifications per Compute
Capability". All throughputs are at the boost clock, without sparsity; a card may not hold that
clock. Nothing here was measured by this project.
"""

from __future__ import annotations

from dataclasses import dataclass

from .targets import CudaTarget, Machine


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Attributes
    ----------
    name
        As on the command line.
    capability
        Compute capability times ten.
    multiprocessors
        Number of them (SMs).
    gigahertz
        Boost clock.
    float32_tflops, float64_tflops
        Of vector instructions.
    tensor_tflops
        Of tensor cores on float16 with sums in float32, and on bfloat16 where there is that.
    gigabytes_per_second
        Of memory.
    cache_bytes
        The second cache.
    mma_share
        Part of ``tensor_tflops`` that ``mma.sync``, which our kernels use, can reach.
    """

    name: str
    capability: int
    multiprocessors: int
    gigahertz: float
    float32_tflops: float
    float64_tflops: float
    tensor_tflops: float
    gigabytes_per_second: float
    cache_bytes: int
    mma_share: float = 1.0

    @property
    def machine(self) -> Machine:
        """What the cost model knows of it."""
        limits = _LIMITS[self.capability]
        return Machine(
            registers=65536,
            shared_bytes=limits.shared_kib << 10,
            threads=limits.threads,
            multiprocessors=self.multiprocessors,
            gigabytes_per_second=self.gigabytes_per_second,
            blocks=limits.blocks,
            gigahertz=self.gigahertz,
            float32_lanes=self._lanes(self.float32_tflops),
            float64_lanes=self._lanes(self.float64_tflops),
            tensor_lanes=self._lanes(self.tensor_tflops * self.mma_share),
            loads_per_cycle=limits.loads_per_cycle,
            reserved_shared_bytes=limits.reserved_shared_bytes,
            shared_unit=limits.shared_unit,
        )

    def _lanes(self, tflops: float) -> float:
        """Multiply-adds of one multiprocessor in a cycle."""
        return tflops * 1e3 / (2 * self.multiprocessors * self.gigahertz)

    def runs(self, target: CudaTarget) -> bool:
        """Whether an image for ``target`` can be loaded."""
        return target.runs_on(self.capability)


@dataclass(frozen=True)
class _Limits:
    """What a multiprocessor of a compute capability has."""

    threads: int
    blocks: int
    shared_kib: int
    reserved_shared_bytes: int = 1024
    shared_unit: int = 128
    loads_per_cycle: float = 1.0


_LIMITS = {
    70: _Limits(2048, 32, 96, 0, 256),
    # Half the bandwidth of shared memory: Jia et al., "Dissecting the NVidia Turing T4 GPU via
    # Microbenchmarking" (2019), table 3.1.
    75: _Limits(1024, 16, 64, 0, 256, 0.5),
    80: _Limits(2048, 32, 164),
    86: _Limits(1536, 16, 100),
    89: _Limits(1536, 24, 100),
    90: _Limits(2048, 32, 228),
    100: _Limits(2048, 32, 228),
    120: _Limits(1536, 24, 100),
}

# Of the peak of wgmma: Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture
# via Microbenchmarking" (2024), section on tensor cores.
_HOPPER_MMA_SHARE = 0.62

GPUS = {
    gpu.name: gpu
    for gpu in (
        # "NVIDIA Tesla V100 GPU Architecture" (WP-08608-001), table 1, SXM2. No bfloat16.
        Gpu("V100", 70, 80, 1.53, 15.7, 7.8, 125, 900, 6 << 20),
        # "NVIDIA Turing GPU Architecture" (WP-09183-001), appendix on T4; "NVIDIA T4" data sheet.
        Gpu("T4", 75, 40, 1.59, 8.1, 0.25, 65, 320, 4 << 20),
        # "NVIDIA A100 Tensor Core GPU Architecture", table 1; data sheet of the 80 GB SXM card.
        Gpu("A100", 80, 108, 1.41, 19.5, 9.7, 312, 2039, 40 << 20),
        # "NVIDIA Ampere GA102 GPU Architecture", table of the GeForce RTX 3090.
        Gpu("RTX-3090", 86, 82, 1.695, 35.6, 0.56, 71, 936, 6 << 20),
        # "NVIDIA L4 Tensor Core GPU" data sheet, whose tensor figures are halved: with sparsity.
        Gpu("L4", 89, 58, 2.04, 30.3, 0.49, 121, 300, 48 << 20),
        # "NVIDIA Ada GPU Architecture", appendix A, GeForce RTX 4090.
        Gpu("RTX-4090", 89, 128, 2.52, 82.6, 1.29, 165.2, 1008, 72 << 20),
        # "NVIDIA H100 Tensor Core GPU Architecture", table of the SXM5 card, and its data sheet.
        Gpu("H100", 90, 132, 1.98, 67, 34, 989.4, 3350, 50 << 20, _HOPPER_MMA_SHARE),
        # "NVIDIA H200 Tensor Core GPU" data sheet, SXM.
        Gpu("H200", 90, 132, 1.98, 67, 34, 989.4, 4800, 50 << 20, _HOPPER_MMA_SHARE),
        # "NVIDIA Blackwell" data sheet: an eighth of HGX B200. Multiprocessors, clock and cache are
        # not in it: as the driver reports them. What mma.sync reaches is not known.
        Gpu("B200", 100, 148, 1.965, 75, 37, 2250, 7700, 126 << 20),
        # "NVIDIA RTX Blackwell GPU Architecture", appendix A, GeForce RTX 5090.
        Gpu("RTX-5090", 120, 170, 2.41, 104.8, 1.64, 209.5, 1792, 96 << 20),
    )
}

_TYPICAL = {70: "V100", 75: "T4", 80: "A100", 86: "RTX-3090", 89: "L4", 90: "H100", 100: "B200"}
_TYPICAL[120] = "RTX-5090"


def parse_gpu(name: str) -> Gpu:
    """The GPU of that name, in any case, with a space or a hyphen.

    Raises
    ------
    ValueError
        If there is none; the message lists those there are.
    """
    for gpu in GPUS.values():
        if gpu.name.lower() == name.strip().lower().replace(" ", "-"):
            return gpu
    raise ValueError(f"unknown GPU {name!r}: expected one of {', '.join(GPUS)}")


def typical_gpu(target: CudaTarget) -> Gpu:
    """A common GPU that runs images for ``target``."""
    return GPUS[_TYPICAL[target.capability]]
