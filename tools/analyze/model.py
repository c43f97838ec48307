"""Work, traffic, occupancy and predicted time of the kernels in a manifest.

Everything follows from problem, config and resources, and from data sheets: neither TVM nor a GPU
is needed, and nothing is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tf_tvm_ops.kernels.cuda import cost, work
from tf_tvm_ops.kernels.cuda.cost import Bounds
from tf_tvm_ops.kernels.cuda.gpus import Gpu, typical_gpu
from tf_tvm_ops.kernels.cuda.targets import WARP, CudaTarget, is_cuda, parse_cuda_target
from tf_tvm_ops.kernels.cuda.work import Work
from tf_tvm_ops.kernels.elements import ELEMENT_BYTES
from tf_tvm_ops.kernels.manifest import ImageEntry, KernelEntry, Manifest
from tf_tvm_ops.kernels.problem import Problem

VENDOR_TILES = ((64, 64), (128, 64))
"""Tiles of M x N, of either orientation, that stand for a vendor's library. cuBLAS names its
kernels after theirs (``ampere_sgemm_128x64_nn``) and has some that are smaller (32x32) and larger
(256x128); which one it takes is its secret."""


@dataclass(frozen=True)
class Row:
    """One kernel with a batch on a GPU.

    Attributes
    ----------
    target
        Name of its image's target.
    gpu
        Where it would run.
    kernel
        As the manifest has it, with fixed extents.
    batch
        Matrices, each with operands of its own, without an addend.
    """

    target: str
    gpu: Gpu
    kernel: KernelEntry
    batch: int

    def check(self) -> None:
        """Raise :exc:`ValueError` if the manifest does not tell enough of the kernel."""
        _ = self.work, self.registers, self.shared_bytes

    @property
    def problem(self) -> Problem:
        """What it computes."""
        return self.kernel.problem

    @property
    def rule(self) -> str:
        """Name of the schedule rule."""
        return str(self.kernel.config.get("rule", ""))

    @cached_property
    def work(self) -> Work:
        """What it does."""
        return work.of_config(self.problem, self.kernel.config)

    @property
    def flops_needed(self) -> int:
        """Two for each multiply-add of the definition."""
        m, n, k = self.problem.extents()
        return 2 * self.batch * m * n * k

    @property
    def flops_executed(self) -> int:
        """With those on padding, whose results are thrown away or that a condition masks."""
        return self.work.flops(self.batch)

    def vendor_flops(self, rows: int, columns: int) -> int:
        """What a library would execute that pads M and N to tiles, the way round that wastes less.

        K is left as it is, to the library's advantage.
        """
        m, n, k = self.problem.extents()
        padded = min(
            -(-m // height) * height * -(-n // width) * width
            for height, width in ((rows, columns), (columns, rows))
        )
        return 2 * self.batch * padded * k

    @property
    def bytes_needed(self) -> int:
        """Each element of operands and result once."""
        m, n, k = self.problem.extents()
        return self.batch * (m * k + k * n + m * n) * ELEMENT_BYTES[self.problem.dtype]

    @property
    def bytes_moved(self) -> int:
        """What blocks ask of the second cache, and write."""
        return self.work.bytes_requested(self.problem, self.batch)

    @property
    def memory_bytes(self) -> int:
        """What passes between memory and the second cache.

        Tiles of a matrix run side by side: they share what the cache can hold of all matrices that
        are being computed.
        """
        tiles = self.work.tiles_m * self.work.tiles_n
        at_once = self.resident_blocks * self.gpu.multiprocessors * self.work.matrices / tiles
        of_matrix = self.bytes_needed / self.batch
        held = min(self.batch, max(1.0, at_once)) * of_matrix <= self.gpu.cache_bytes
        return self.bytes_needed if held else self.bytes_moved

    @property
    def intensity(self) -> float:
        """Operations needed for each byte needed."""
        return self.flops_needed / self.bytes_needed

    @property
    def registers(self) -> int:
        """Of a thread."""
        return self._resource("registers")

    @property
    def shared_bytes(self) -> int:
        """Of a block."""
        return self._resource("shared_bytes")

    def _resource(self, name: str) -> int:
        value = (self.kernel.resources or {}).get(name)
        if value is None:
            raise ValueError(
                f"{self.kernel.symbol}: the manifest does not tell its {name}; generate the pack "
                "again"
            )
        return value

    @property
    def resident_blocks(self) -> int:
        """Blocks that a multiprocessor runs at a time."""
        return cost.resident_blocks(
            self.gpu.machine, self.work.threads, self.registers, self.shared_bytes
        )

    @property
    def occupancy(self) -> float:
        """Warps that a multiprocessor runs at a time, of those it could, if there are enough."""
        warps = -(-self.work.threads // WARP)
        return self.resident_blocks * warps * WARP / self.gpu.machine.threads

    @property
    def blocks(self) -> int:
        """Of the whole batch."""
        return self.work.blocks(self.batch)

    @property
    def waves(self) -> float:
        """How often the GPU is filled with blocks."""
        return self.blocks / (self.resident_blocks * self.gpu.multiprocessors)

    @cached_property
    def bounds(self) -> Bounds:
        """How long each limit alone would make it take."""
        return cost.bounds(
            self.work,
            self.gpu.machine,
            batch=self.batch,
            bytes_moved=self.memory_bytes,
            resident=self.resident_blocks,
            float64=self.problem.dtype == "float64",
        )

    @property
    def tflops(self) -> float:
        """Operations needed in the predicted time, 10¹² a second."""
        return self.flops_needed / self.bounds.time / 1e3


@dataclass(frozen=True)
class Analysis:
    """The kernels of one image on one GPU.

    Attributes
    ----------
    target
        The image's.
    gpu
        What they would run on.
    batch
        Number of matrices.
    rows
        Kernels with fixed extents, as the manifest orders them.
    generic
        Number of those left out, whose work depends on the call.
    """

    target: CudaTarget
    gpu: Gpu
    batch: int
    rows: tuple[Row, ...]
    generic: int


def analyze(
    manifest: Manifest, batch: int, *, gpu: Gpu | None = None, target: str | None = None
) -> list[Analysis]:
    """The images of a pack for GPUs.

    Parameters
    ----------
    manifest
        That of the pack.
    batch
        Number of matrices.
    gpu
        Where kernels would run; the image that is nearest to it is analysed alone. None for a
        common GPU of each image's architecture.
    target
        The image to analyse. None for all.

    Raises
    ------
    ValueError
        If there is no such image, if the GPU does not run it, if all its kernels are generic, or
        if one is not of this version.
    """
    images = list(_images(manifest, target))
    if gpu is not None:
        images = [_nearest(images, gpu)]
    found = [_analyze(image, parsed, gpu or typical_gpu(parsed), batch) for image, parsed in images]
    if not any(analysis.rows for analysis in found):
        names = ", ".join(analysis.target.name for analysis in found)
        raise ValueError(f"{names}: only generic kernels, whose work depends on the call")
    return found


def _images(manifest: Manifest, target: str | None) -> Iterator[tuple[ImageEntry, CudaTarget]]:
    names = [image.target for image in manifest.images]
    has = f"the pack has {', '.join(names) or 'no image'}"
    if target is not None and not is_cuda(target):
        raise ValueError(f"{target}: only kernels for GPUs are analysed; {has}")
    if target is not None and target not in names:
        raise ValueError(f"no image for {target}: {has}")
    if not any(map(is_cuda, names)):
        raise ValueError(
            f"no kernels for GPUs: {has}, and only kernels for GPUs are analysed; generate some "
            "with --target cuda:sm_90"
        )
    for image in manifest.images:
        if is_cuda(image.target) and target in (None, image.target):
            yield image, parse_cuda_target(image.target)


def _nearest(
    images: list[tuple[ImageEntry, CudaTarget]], gpu: Gpu
) -> tuple[ImageEntry, CudaTarget]:
    """The one the GPU would run: of the highest capability, PTX where there is no other."""
    fit = [(image, target) for image, target in images if gpu.runs(target)]
    if not fit:
        names = ", ".join(target.name for _, target in images)
        capability = f"{gpu.capability // 10}.{gpu.capability % 10}"
        raise ValueError(
            f"{gpu.name} has compute capability {capability} and runs none of {names}; generate "
            f"with --target cuda:sm_{gpu.capability}"
        )
    return max(fit, key=lambda pair: (not pair[1].is_virtual, pair[1].capability))


def _analyze(image: ImageEntry, target: CudaTarget, gpu: Gpu, batch: int) -> Analysis:
    fixed = [kernel for kernel in image.kernels if not kernel.problem.is_generic]
    rows = tuple(Row(target.name, gpu, kernel, batch) for kernel in fixed)
    for row in rows:
        row.check()
    return Analysis(target, gpu, batch, rows, len(image.kernels) - len(fixed))
