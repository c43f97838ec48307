"""What a pack's ``manifest.json`` says: see ``docs/architecture.md`` for the format."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .problem import Problem

SCHEMA = 1
FILE_NAME = "manifest.json"
NATIVE, EMULATED = "native", "emulated"
"""How kernels were checked: their machine code was run, or the same code but for the instructions
that the machine lacked, which were emulated."""

IMAGE_PATTERN = re.compile(r"[a-z0-9-]+-[0-9a-f]{16}\.so")
"""Names of images. Nothing else in a pack's folder is ever removed by the generator."""


class ManifestError(ValueError):
    """A manifest that cannot be used; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Duel:
    """A kernel and stock, timed in turns in one process.

    Attributes
    ----------
    kernel_us, stock_us
        Median microseconds for the op, inside a graph.
    noise_us
        Half the interquartile range of their difference, round by round.
    """

    kernel_us: float
    stock_us: float
    noise_us: float

    @property
    def won(self) -> bool:
        """Whether the kernel was faster by more than the noise."""
        return self.stock_us - self.kernel_us > self.noise_us

    @property
    def lost(self) -> bool:
        """Whether stock was faster by more than the noise."""
        return self.kernel_us - self.stock_us > self.noise_us

    def to_json(self) -> dict[str, float]:
        """As the manifest has it."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Timing:
    """How a kernel did against stock at one setting.

    Attributes
    ----------
    matrices
        Batch times heads.
    threads
        Intra-op threads.
    cache
        ``"hot"`` or ``"cold"``: whether the operands were in the processor's caches.
    epilogue
        What follows the product: ``"none"``, ``"add"`` (scale and addend) or ``"transpose"``; ops
        of their own in stock.
    onednn, eigen
        Against stock with oneDNN on, as TensorFlow ships, and off. None where stock ended the
        process that measured; the kernel serves there.
    """

    matrices: int
    threads: int
    cache: str
    epilogue: str
    onednn: Duel | None
    eigen: Duel | None

    @property
    def duels(self) -> tuple[Duel, ...]:
        """Those that were fought to the end."""
        return tuple(duel for duel in (self.onednn, self.eigen) if duel is not None)

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        return {
            "matrices": self.matrices,
            "threads": self.threads,
            "cache": self.cache,
            "epilogue": self.epilogue,
            "onednn": self.onednn and self.onednn.to_json(),
            "eigen": self.eigen and self.eigen.to_json(),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Timing:
        """The inverse of :meth:`to_json`."""
        names = ("matrices", "threads", "cache", "epilogue")
        found = (fields[name] for name in ("onednn", "eigen"))
        duels = (None if duel is None else Duel(**duel) for duel in found)
        return cls(*(fields[name] for name in names), *duels)


@dataclass(frozen=True)
class KernelEntry:
    """A kernel of an image.

    Attributes
    ----------
    symbol
        Name of its function.
    problem
        What it computes.
    config
        How: ``rule`` and that rule's knobs.
    workspace_bytes
        Scratch memory it needs in each thread.
    resources
        What a block of it takes of a GPU: ``registers`` of a thread, ``shared_bytes``,
        ``stack_bytes`` and ``spill_bytes``. None for a CPU.
    timings
        How it did against stock when the pack was tuned.
    model
        Of a generic kernel of a tuned pack: see :mod:`.tuning.fallback_model`.
    """

    symbol: str
    problem: Problem
    config: Mapping[str, Any]
    workspace_bytes: int
    resources: Mapping[str, int] | None = None
    timings: tuple[Timing, ...] = ()
    model: Mapping[str, Sequence[float]] | None = None

    def expected_to_win(self, matrices: int, epilogue: str, *, onednn: bool) -> bool:
        """Whether the kernel serves: the twin of ``Duels`` in ``cc/dispatch/measured.h``."""
        if not self.timings:
            return True

        def distance(timing: Timing) -> float:
            return max(timing.matrices, matrices) / max(1, min(timing.matrices, matrices))

        nearest = min(self.timings, key=distance).matrices
        fought: dict[str, list[Duel | None]] = {}
        for timing in self.timings:
            if timing.matrices == nearest:
                duel = timing.onednn if onednn else timing.eigen
                fought.setdefault(timing.epilogue, []).append(duel)
        # What was measured fused says more than what was measured bare.
        duels = fought.get(epilogue, fought.get("none"))
        if duels is None:
            return False
        known = [duel for duel in duels if duel is not None]
        if len(known) < len(duels):
            return True
        return any(duel.won for duel in known) and not any(duel.lost for duel in known)

    @property
    def serves_everywhere(self) -> bool:
        """Whether it serves every number of matrices and epilogue that were measured."""
        return all(
            self.expected_to_win(timing.matrices, timing.epilogue, onednn=onednn)
            for timing in self.timings
            for onednn in (True, False)
        )

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        fields = {
            "symbol": self.symbol,
            "problem": self.problem.to_json(),
            "config": dict(self.config),
            "workspace_bytes": self.workspace_bytes,
        }
        if self.resources is not None:
            fields["resources"] = dict(self.resources)
        if self.timings:
            fields["timings"] = [timing.to_json() for timing in self.timings]
        if self.model is not None:
            fields["model"] = {name: list(weights) for name, weights in self.model.items()}
        return fields


@dataclass(frozen=True)
class ImageEntry:
    """A shared library with all kernels of one target.

    Attributes
    ----------
    target
        Name of the target.
    file
        Name inside the pack's folder.
    bytes, sha256
        Size and checksum of the file.
    kernels
        Those that matched the oracle.
    verified
        How: ``NATIVE`` or ``EMULATED``.
    """

    target: str
    file: str
    bytes: int
    sha256: str
    kernels: tuple[KernelEntry, ...]
    verified: str = NATIVE


@dataclass(frozen=True)
class Manifest:
    """A whole manifest.

    Attributes
    ----------
    abi
        Version of the kernels' argument list.
    made_with
        Versions of what made the pack.
    images
        One for each target.
    """

    abi: int
    made_with: Mapping[str, str]
    images: tuple[ImageEntry, ...]

    def dump(self) -> str:
        """JSON text, one kernel to a line; the same manifest always gives the same text."""
        out = ["{", f' "schema": {SCHEMA},', f' "abi": {self.abi},']
        out += [f' "made_with": {json.dumps(dict(self.made_with))},', ' "images": [']
        for index, image in enumerate(self.images):
            out += [
                "  {",
                f'   "target": {json.dumps(image.target)},',
                f'   "file": {json.dumps(image.file)},',
                f'   "bytes": {image.bytes},',
                f'   "sha256": {json.dumps(image.sha256)},',
                f'   "verified": {json.dumps(image.verified)},',
                '   "kernels": [',
                ",\n".join(f"    {json.dumps(k.to_json())}" for k in image.kernels),
                "   ]",
                "  }," if index + 1 < len(self.images) else "  }",
            ]
        out += [" ]", "}"]
        return "\n".join(line for line in out if line) + "\n"


def load(pack: Path) -> Manifest:
    """The manifest of a pack.

    Raises
    ------
    ManifestError
        If there is none, or it does not follow the format of this version.
    """
    path = pack / FILE_NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ManifestError(f"{path}: {error.strerror}; expected a pack's manifest") from error
    except ValueError as error:
        raise ManifestError(f"{path}: not JSON ({error}); generate the pack again") from error
    try:
        if document["schema"] != SCHEMA:
            raise ManifestError(
                f"{path}: schema {document['schema']!r}, expected {SCHEMA}; generate the pack with "
                "the tf_tvm_ops that reads it"
            )
        return Manifest(
            abi=document["abi"],
            made_with=document["made_with"],
            images=tuple(
                ImageEntry(
                    target=image["target"],
                    file=image["file"],
                    bytes=image["bytes"],
                    sha256=image["sha256"],
                    kernels=tuple(
                        KernelEntry(
                            symbol=kernel["symbol"],
                            problem=Problem.from_json(kernel["problem"]),
                            config=kernel["config"],
                            workspace_bytes=kernel["workspace_bytes"],
                            resources=kernel.get("resources"),
                            timings=tuple(map(Timing.from_json, kernel.get("timings", ()))),
                            model=kernel.get("model"),
                        )
                        for kernel in image["kernels"]
                    ),
                    verified=image.get("verified", NATIVE),
                )
                for image in document["images"]
            ),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ManifestError(f"{path}: incomplete ({error!r}); generate the pack again") from error


def image_name(target: str, sha256: str) -> str:
    """The file name of an image: content-addressed, so that no image overwrites another."""
    return f"{target.replace(':', '-').replace('_', '-')}-{sha256[:16]}.so"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, as 64 hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
