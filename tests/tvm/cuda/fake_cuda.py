"""libcuda and libcudart without a GPU, as TVM's CUDA runtime and the loader name them."""

from __future__ import annotations

import subprocess
from pathlib import Path

HERE = Path(__file__).parent


def fake_libraries(folder: Path) -> None:
    """Put both into a folder, for ``LD_LIBRARY_PATH``."""
    script = folder / "versions.map"
    script.write_text("libcudart.so.13 { global: *; };\n")
    for source, name, flags in (
        ("fake_driver.cc", "libcuda.so.1", []),
        ("fake_runtime.cc", "libcudart.so.13", [f"-Wl,--version-script={script}"]),
    ):
        command = ["c++", "-shared", "-fPIC", "-std=c++17", *flags, f"-Wl,-soname,{name}"]
        subprocess.run([*command, HERE / source, "-o", folder / name], check=True)
