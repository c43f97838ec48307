"""What a worker holds: the GPU, a stream that kernels go to, and the images of the bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tf_tvm_ops.kernels import manifest
from tf_tvm_ops.kernels.manifest import ImageEntry
from tf_tvm_ops.kernels.runtime import cuda
from tf_tvm_ops.tools.gpu_check.images import PACK, Images, usable


@dataclass(frozen=True)
class Session:
    """See the module.

    Attributes
    ----------
    device
        The first GPU that is visible.
    context, stream
        Of the GPU. Functions of images enqueue their work on this stream.
    images
        Loads functions.
    usable
        The images that the GPU can run, the best one first.
    """

    device: cuda.Device
    context: cuda.Context
    stream: cuda.Stream
    images: Images
    usable: list[ImageEntry]


@contextmanager
def opened(bundle: Path) -> Iterator[Session]:
    """A session with the kernels of a bundle.

    Raises
    ------
    OSError
        If a library is missing.
    CudaError
        If there is no GPU.
    """
    driver = cuda.Driver()
    device = driver.devices()[0]
    with cuda.Context(driver, device.ordinal) as context, context.stream() as stream:
        images = Images(bundle)
        images.library.set_stream(device.ordinal, stream.handle)
        fit = usable(manifest.load(bundle / PACK), device.capability)
        yield Session(device, context, stream, images, fit)


class ContextLostError(RuntimeError):
    """The GPU's context does not work any more: only a new process helps."""


def survives(session: Session) -> bool:
    """Whether the GPU still does what it is told, after something went wrong."""
    try:
        session.context.synchronize()
    except cuda.CudaError:
        return False
    return True


def guarded(session: Session, attempt: Callable[[], Any], report: Callable[[str], None]) -> Any:
    """What ``attempt`` gives; what goes wrong with it is reported, and None given.

    Raises
    ------
    ContextLostError
        If the GPU's context did not survive it.
    """
    try:
        return attempt()
    except Exception as error:
        report(one_line(error))
        if not survives(session):
            raise ContextLostError(str(error)) from error
    return None


def one_line(error: BaseException) -> str:
    """The last line of an error's text that says something, with its class."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else 'no message'}"
