"""From command line to images with machine code: kernels/cuda and tools/generate.py."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.tvm.cuda.conftest import NEW, OLD
from tf_tvm_ops.kernels import manifest as manifest_format
from tf_tvm_ops.kernels.cuda import assembler, build, generate, nvrtc
from tf_tvm_ops.kernels.cuda import compile as compile_module
from tf_tvm_ops.kernels.cuda.assembler import Resources
from tf_tvm_ops.kernels.cuda.build import CudaKernel
from tf_tvm_ops.kernels.cuda.compile import Compiled, compile_cuda
from tf_tvm_ops.kernels.cuda.packages import CompilerError
from tf_tvm_ops.kernels.cuda.targets import CUDA_TARGETS, parse_cuda_target
from tf_tvm_ops.kernels.manifest import file_sha256
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules.cuda_rule import CudaChoice
from tf_tvm_ops.kernels.schedules.cuda_thread import CudaThread, ThreadConfig
from tf_tvm_ops.tools.cli import main
from tf_tvm_ops.tools.generate import generate as command

ROW = "rows:\n- {site: a, m: 3, n: 5, k: 7}\n"
PROBLEM = Problem(3, 5, 7)
CHOICE = CudaChoice(CudaThread(), ThreadConfig(4, 32, 1))
EM_CUDA = 190  # of an ELF header


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shapes") / "shapes.yaml"
    path.write_text(ROW)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory, shapes: Path, cache: Path) -> Path:
    """A pack for a CPU, a GPU and those to come."""
    out = tmp_path_factory.mktemp("pack") / "p"
    targets = ("cpu:x86-64-v3", NEW.name, "cuda:compute_80")
    given = [item for target in targets for item in ("--target", target)]
    result = run("--shapes", shapes, *given, "--out", out, "--cache", cache)
    assert result.exit_code == 0, result.output
    assert f"5 for {NEW.name}, 5 for cuda:compute_80" in result.output
    return out


def modules(image: Path) -> list[tuple[str, bytes]]:
    """Format and code of the CUDA modules in an image, read as TVM's runtime reads them."""
    program = (
        "import sys, tvm_ffi\n"
        "from tf_tvm_ops.kernels.emulate.run import load_runtime\n"
        "load_runtime()\n"
        "empty = tvm_ffi.load_module(sys.argv[2])\n"
        "@tvm_ffi.register_global_func('ffi.Module.load_from_bytes.cuda')\n"
        "def load(content):\n"
        "    print(bytes(content).hex())\n"
        "    return empty\n"
        "tvm_ffi.load_module(sys.argv[1])\n"
    )
    other = image.with_name("other.so")
    subprocess.run(["c++", "-shared", "-o", other, "-x", "c", "/dev/null"], check=True)
    done = subprocess.run(
        [sys.executable, "-c", program, image, other], capture_output=True, text=True, check=True
    )
    found = []
    for line in done.stdout.splitlines():
        content = bytes.fromhex(line)
        (length,) = struct.unpack_from("<Q", content)
        start = content.rindex(b"\x7fELF") if b"\x7fELF" in content else content.index(b"//\n")
        found.append((content[8 : 8 + length].decode(), content[start:]))
    return found


def test_images_hold_machine_code(pack, tmp_path):
    manifest = manifest_format.load(pack)
    images = {image.target: image for image in manifest.images}
    assert list(images) == ["cpu:x86-64-v3", NEW.name, "cuda:compute_80"]
    assert manifest.made_with["nvrtc"] == nvrtc.TOOL.version()
    assert manifest.made_with["ptxas"] == assembler.TOOL.version()
    for target, image in images.items():
        assert file_sha256(pack / image.file) == image.sha256
        for kernel in image.kernels:
            assert (kernel.resources is None) == target.startswith("cpu:")
            if kernel.resources is not None:
                assert kernel.resources["registers"] > 0
                assert kernel.resources["spill_bytes"] == kernel.resources["stack_bytes"] == 0
    found = modules(pack / images[NEW.name].file)
    assert len(found) == 5
    for code_format, code in found:
        assert code_format == "cubin"
        (machine,) = struct.unpack_from("<H", code, 18)
        (flags,) = struct.unpack_from("<I", code, 48)
        assert (machine, flags & 0xFF) == (EM_CUDA, 90)
    found = modules(pack / images["cuda:compute_80"].file)
    assert [code_format for code_format, _ in found] == ["ptx"] * 5
    assert all(b".target sm_80" in code and code.endswith(b"\0") for _, code in found)
    assert b"__global__" not in b"".join((pack / i.file).read_bytes() for i in images.values())


def test_unchanged_kernels_are_not_compiled_again(pack, shapes, cache, tmp_path):
    arguments = ("--shapes", shapes, "--target", NEW.name, "--cache", cache)
    again = run(*arguments, "--out", tmp_path / "p")
    assert "0 compiled, 5 reused" in again.output
    first = {image.target: image.sha256 for image in manifest_format.load(pack).images}
    (second,) = manifest_format.load(tmp_path / "p").images
    assert second.sha256 == first[NEW.name], "the same input gives the same bytes"


def test_kernel_that_fails_its_check_is_left_out(shapes, tmp_path, monkeypatch):
    real = generate.check

    def one_fault(candidates):
        assert real(candidates) == [""] * len(candidates)
        return ["wrong", *[""] * (len(candidates) - 1)]

    monkeypatch.setattr(generate, "check", one_fault)
    problems = [PROBLEM, Problem(1, 2, 3)]
    with InProcess() as pool:
        made = generate.make_images(
            pool, problems, [OLD], {}, tmp_path / "c", tmp_path, lambda *step: None
        )
        assert [len(entry.kernels) for entry in made.entries] == [1]
        (rejected,) = made.rejected
        assert rejected.endswith(": wrong")
        # Nor does it count as checked the next time.
        monkeypatch.setattr(generate, "check", lambda candidates: ["again"] * len(candidates))
        made = generate.make_images(
            pool, problems, [OLD], {}, tmp_path / "c", tmp_path, lambda *step: None
        )
        assert [line.split(": ")[1] for line in made.rejected] == ["again"]


class InProcess:
    """A pool of no processes: what is patched here is seen by the work."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, work, *arguments):
        from concurrent.futures import Future

        future: Future = Future()
        future.set_result(work(*arguments))
        return future


def test_every_architecture_compiles(tmp_path):
    kernel = CudaKernel(PROBLEM, CHOICE)
    code = {}
    for target in CUDA_TARGETS.values():
        built = build.build_kernel(kernel, target, tmp_path)
        assert not built.resources.spills
        code[target.name] = built.module.read_bytes()
    assert len(set(code.values())) == len(CUDA_TARGETS)


def test_alike_architectures_share_a_compilation(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        compile_module, "_ptx", lru_cache(lambda *a: asked.append(a[1]) or nvrtc.compile_ptx(*a))
    )
    for target in CUDA_TARGETS.values():
        build.build_kernel(CudaKernel(PROBLEM, CHOICE), target, tmp_path)
    assert asked == [70, 80, 100]


def instructions(cubin: bytes) -> bytes:
    """The section of an ELF file that has a kernel's instructions."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count)]
    start = sections[names][4]
    (found,) = (s for s in sections if cubin[start + s[0] :].startswith(b".text."))
    return cubin[found[4] : found[4] + found[5]]


@pytest.mark.parametrize("target", CUDA_TARGETS.values(), ids=str)
def test_shared_ptx_gives_the_code_of_an_architecture_of_its_own(target):
    """Another release of the compiler may tell more architectures apart."""
    text = build.lower(CudaKernel(PROBLEM, CHOICE)).cuda
    shared, own = (
        assembler.assemble(nvrtc.compile_ptx(text, capability), f"sm_{target.capability}")
        for capability in (target.ptx_capability, target.capability)
    )
    assert instructions(shared[0]) == instructions(own[0])
    assert shared[1] == own[1]


def test_spilling_kernel_is_refused_unless_nothing_else_fits(tmp_path, monkeypatch):
    choices = [CudaChoice(CudaThread(), ThreadConfig(4, 32, unroll)) for unroll in (1, 2, 4)]
    monkeypatch.setattr(build, "_first", lambda problem, target: choices)
    spilled = {1: 8, 2: 4, 4: 0}

    def compiled(text, target):
        unroll = int(text.split("#pragma unroll ")[1].split()[0])
        return Compiled("cubin", b"", Resources(32, 0, 0, spilled[unroll]))

    monkeypatch.setattr(build, "compile_cuda", compiled)
    assert build.build_best(PROBLEM, OLD, tmp_path / "a").kernel.choice == choices[2]
    spilled[4] = 16
    assert build.build_best(PROBLEM, OLD, tmp_path / "b").kernel.choice == choices[1]


def test_resources_of_a_kernel_that_spills():
    spiller = (
        'extern "C" __global__ void __maxnreg__(24) k(float* a) {\n float v[64];\n'
        "#pragma unroll\n for (int i = 0; i < 64; ++i) v[i] = a[i * 977];\n __syncthreads();\n"
        "#pragma unroll\n for (int i = 0; i < 64; ++i) a[i] = v[63 - i] * v[i];\n}\n"
    )
    resources = compile_cuda(spiller, NEW).resources
    assert resources.registers <= 24
    assert resources.spill_bytes > 0
    assert resources.spills


def test_code_shown_is_the_one_that_was_assembled_in_the_end(monkeypatch):
    """A kernel that spills is compiled again, with the promise that one block is enough."""
    text = 'extern "C" __global__ void __launch_bounds__(64) k(float* a) { a[0] = 1; }\n'

    def spilling(ptx, arch):
        return b"", Resources(32, 0, 0, 0 if b".minnctapersm 1" in ptx else 8)

    assert ".minnctapersm" not in compile_module.ptx_of(text, NEW)
    monkeypatch.setattr(compile_module, "_assemble", spilling)
    assert ".minnctapersm 1" in compile_module.ptx_of(text, NEW)
    assert not compile_cuda(text, NEW).resources.spills


def test_arithmetic_is_ieee():
    """Denormals stay, and division is the exact one: neither is an approximation in the code."""
    text = 'extern "C" __global__ void k(float* a) { a[0] = a[1] / a[2] + a[3] * 1e-40f; }\n'
    ptx = compile_cuda(text, CUDA_TARGETS["cuda:compute_80"]).code.decode()
    assert "div.rn.f32" in ptx
    assert ".ftz" not in ptx
    assert ".approx" not in ptx


@pytest.mark.parametrize("name", ["cuda:sm_999", "cuda:sm_90a", "cuda:", "cuda:90", "cuda:sm_60"])
def test_an_architecture_is_never_guessed(name, shapes, tmp_path):
    with pytest.raises(ValueError, match=f"unknown target '{name}': expected one of cuda:sm_70"):
        parse_cuda_target(name)
    result = run("--shapes", shapes, "--target", name, "--out", tmp_path / "p")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "unknown target" in line
    assert not (tmp_path / "p").exists()


@pytest.fixture(params=[nvrtc, assembler], ids=lambda module: module.TOOL.what)
def missing(request, monkeypatch):
    """The package that brings one of the two, as where the extra is not installed."""
    module = request.param
    tool = replace(module.TOOL, package="absent-package", file="absent")
    monkeypatch.setattr(module, "TOOL", tool)
    for cached in (nvrtc._library, assembler._program, build.versions):
        cached.cache_clear()
    yield tool.package
    for cached in (nvrtc._library, assembler._program, build.versions):
        cached.cache_clear()


def test_missing_compiler_is_one_line(shapes, tmp_path, missing):
    text = 'extern "C" __global__ void k(float* a) { a[0] = 1; }'
    with pytest.raises(CompilerError, match=rf"tf-tvm-ops\[cuda-build\]' brings {missing}"):
        compile_cuda(text, NEW)
    result = run("--shapes", shapes, "--target", NEW.name, "--out", tmp_path / "p")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "pip install 'tf-tvm-ops[cuda-build]'" in line


def test_assembler_that_may_not_be_executed_is_one_line(tmp_path, monkeypatch):
    """As an installer leaves it that takes the permissions of the package's archive as they are."""
    path = tmp_path / "ptxas"
    path.touch(0o600)
    monkeypatch.setattr(assembler, "_program", lambda: str(path))
    with pytest.raises(CompilerError, match=r"cannot be started: .*Permission denied: .*ptxas"):
        assembler.assemble(b"", "sm_90")


def test_code_that_is_not_assembled_is_one_line():
    ptx = b".version 8.7\n.target sm_90\n.address_size 64\nno_such\n"
    with pytest.raises(CompilerError, match=r"assembler failed for sm_90: .*no_such") as error:
        assembler.assemble(ptx, "sm_90")
    assert "\n" not in str(error.value)


def test_code_that_does_not_compile_is_one_line():
    with pytest.raises(CompilerError, match=r"failed for compute_80: .*no_such") as error:
        compile_cuda('extern "C" __global__ void k() { no_such(); }', NEW)
    assert "\n" not in str(error.value)


def test_dispatcher_ignores_images_of_gpus(pack, capfd):
    """A pack for both serves a CPU; what it does not use is named, and is no warning."""
    from tf_tvm_ops import _native

    dispatcher = _native.Dispatcher()
    info = dispatcher.load_pack(str(pack))
    assert info.targets == ["cpu:x86-64-v3"]
    assert {line.split(": ")[0] for line in info.ignored} == {NEW.name, "cuda:compute_80"}
    assert capfd.readouterr().err == ""
    rng = np.random.default_rng()
    lhs = rng.standard_normal((2, 3, 7)).astype(np.float32)
    rhs = rng.standard_normal((2, 7, 5)).astype(np.float32)
    result, kernel = dispatcher.matmul(lhs, rhs)
    assert kernel is not None
    assert kernel.target == "cpu:x86-64-v3"
    np.testing.assert_allclose(result, lhs @ rhs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("target", "form", "words"),
    [
        (NEW.name, "tir", "T.launch_thread"),
        (NEW.name, "cuda", "__global__"),
        (NEW.name, "ptx", ".target sm_80"),
        (NEW.name, "asm", "asm: a kernel for GPUs has tir, cuda and ptx"),
        ("cpu:x86-64-v3", "tir", "T.func_attr"),
        ("cpu:x86-64-v3", "asm", "vfmadd"),
        ("cpu:x86-64-v3", "ptx", "ptx: a kernel for CPUs has tir and asm"),
        ("cuda:sm_70", "tir", "no kernel "),
    ],
)
def test_code_of_a_kernel(pack, target, form, words):
    kernels = {
        image.target: next(k.symbol for k in image.kernels if not k.problem.is_generic)
        for image in manifest_format.load(pack).images
    }
    symbol = kernels.get(target, "bmm_absent")
    arguments = ["inspect", str(pack), symbol, "--target", target, "--show", form]
    result = CliRunner().invoke(main, arguments)
    assert words in result.output
    assert (result.exit_code == 0) == (": a kernel" not in words and "no kernel" not in words)
