"""The ops on GPUs: cc/ops/gpu_batch_matmul_op.cc and gpu_stock.cc.

TensorFlow is the one without CUDA; devices, driver and stock kernels are fakes that compute on the
CPU, and the kernels of the pack run on the emulator. So what is shown is who computes what, where
and in which order, and that the numbers are right; not what a real GPU makes of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tf.processes import own_messages

Run = Callable[..., str]


def test_kernels_of_the_pack_serve(on_gpus: Run) -> None:
    found = json.loads(
        on_gpus("""
        a, b, mask = random(2, 3, 17, 64), random(2, 3, 17, 64), random(2, 1, 1, 17)
        found = []
        for index in (0, 1):
            with tf.device(f"/GPU:{index}"):
                a_, b_, mask_ = tf.identity(a), tf.identity(b), tf.identity(mask)
                launches = count("fake_launches")
                plain = batch_matmul(a_, b_, adj_y=True)
                added = batch_matmul_add(a_, b_, mask_, adj_y=True, scale=0.125)
                swapped = batch_matmul_transpose(a_, b_, adj_y=True)
                first = batch_matmul(
                    tf.identity(a.swapaxes(1, 2)), tf.identity(b.swapaxes(1, 2)),
                    adj_y=True, a_length_first=True, b_length_first=True,
                )
                server = name_of(served_by(a_, b_, adj_y=True))
            assert plain.device.endswith(f"GPU:{index}"), plain.device
            bt = b.swapaxes(-1, -2)
            check_matmul(plain, a, bt)
            check_matmul(added, a, bt, scale=0.125, addend=mask)
            check_matmul(np.swapaxes(swapped, 1, 2), a, bt)
            check_matmul(first, a, bt)
            found.append([count("fake_launches") - launches, count("fake_device"), server])
        with tf.device("/CPU:0"):
            found.append(name_of(served_by(a, b, adj_y=True)))
        found.append(stock_ran())
        print(json.dumps(found))
        """)
    )
    first, second, on_cpu, stock = found
    assert first[:2] == [4, 0]
    assert second[:2] == [4, 1]
    assert first[2] == second[2]
    assert first[2].startswith("bmm_f32_m17_n17_k64_lk_rk_")
    assert on_cpu.startswith("bmm_f32_m17_n17_k64_lk_rk_")
    assert on_cpu != first[2]
    assert stock == []


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_generic_kernels_serve(on_gpus: Run, dtype: str) -> None:
    found = json.loads(
        on_gpus(
            f"""
            dtype = tf.as_dtype("{dtype}").as_numpy_dtype
            a, b, mask = (random(*s, dtype=dtype) for s in ((5, 7, 9), (5, 9, 3), (7, 3)))
            with tf.device("/GPU:0"):
                check_matmul(batch_matmul(a, b), a, b)
                check_matmul(batch_matmul_add(a, b, mask, scale=0.5), a, b, scale=0.5, addend=mask)
                print(json.dumps([name_of(served_by(a, b)), count("fake_launches"), stock_ran()]))
            """,
            TF_TVM_OPS_FALLBACK="generic",
        )
    )
    server, launches, stock = found
    assert "_generic_lk_rn_" in server
    assert launches == 2
    assert stock == []


_CHOICE = """
def server(m, n, k, **options):
    with tf.device("/GPU:0"):
        return name_of(served_by(random(2, m, k), random(2, k, n), **options))[:15]

fused = ({"scale": 0.5}, {"has_addend": True}, {"transpose": True})
print(json.dumps([
    [server(*extents), *(server(*extents, **options) for options in fused)]
    for extents in ((8, 8, 8), (64, 64, 64), (65, 64, 64))
]))
"""


@pytest.mark.parametrize(
    ("fallback", "plain", "small", "large"),
    [
        ("auto", "stock (no_kerne", "bmm_f32_generic", "stock (no_kerne"),
        ("generic", *["bmm_f32_generic"] * 3),
        ("stock", *["stock (no_kerne"] * 3),
    ],
)
def test_choice(on_gpus: Run, fallback: str, plain: str, small: str, large: str) -> None:
    found = json.loads(on_gpus(_CHOICE, TF_TVM_OPS_FALLBACK=fallback))
    assert found == [
        [plain, small, small, small],
        [plain, small, small, small],
        [large, large, large, large],
    ]


_STOCK = """
def ran(got, a, b, **expected):
    check_matmul(got, a, b, **expected)
    return stock_ran()

a, b = random(2, 3, 5, 7), random(2, 3, 7, 4)
mask, large = random(2, 1, 1, 4), random(6, 1, 1, 5, 4)
found = {}
with tf.device("/GPU:0"):
    found["plain"] = ran(batch_matmul(a, b), a, b)
    found["adjoint"] = ran(
        batch_matmul(a.swapaxes(-1, -2).copy(), b.swapaxes(-1, -2).copy(), adj_x=True, adj_y=True),
        a, b,
    )
    found["scaled"] = ran(batch_matmul(a, b, scale=0.3), a, b, scale=0.3)
    found["added"] = ran(
        batch_matmul_add(a, b, mask, scale=2.0), a, b, scale=2.0, addend=mask
    )
    found["enlarged"] = ran(batch_matmul_add(a, b, large), a, b, addend=large)
    found["swapped"] = stock_ran() + ran(
        np.swapaxes(batch_matmul_transpose(a, b), 1, 2), a, b
    )
    found["first"] = ran(
        batch_matmul(
            a.swapaxes(1, 2).copy(), b.swapaxes(1, 2).copy(),
            a_length_first=True, b_length_first=True,
        ), a, b,
    )
    off = stock.FakeGpuMisalign(x=tf.identity(a))
    found["misaligned"] = ran(batch_matmul(off, b), a, b)
    found["server"] = name_of(served_by(a, b))
print(json.dumps(found))
"""


def test_stock_serves_by_the_ops_of_the_graph(on_gpus: Run) -> None:
    found = json.loads(on_gpus(_STOCK, TF_TVM_OPS_FALLBACK="stock"))
    assert found == {
        "plain": ["BatchMatMulV2"],
        "adjoint": ["BatchMatMulV2"],
        "scaled": ["BatchMatMulV2", "Mul"],
        "added": ["BatchMatMulV2", "Mul", "AddV2"],
        "enlarged": ["BatchMatMulV2", "AddV2"],
        "swapped": ["BatchMatMulV2", "Transpose"],
        "first": ["Transpose", "Transpose", "BatchMatMulV2"],
        "misaligned": ["BatchMatMulV2"],
        "server": "stock (no_kernel)",
    }


@pytest.mark.parametrize("fallback", ["generic", "stock"])
def test_empty_products(on_gpus: Run, fallback: str) -> None:
    """No kernel of a pack sees an extent of 0, and the host writes no zeros."""
    printed = on_gpus(
        """
        a, b, ones = np.ones((2, 3, 0), "f"), np.ones((2, 0, 4), "f"), np.ones(4, "f")
        with tf.device("/GPU:0"):
            zeros = batch_matmul(a, b).numpy()
            added = batch_matmul_add(a, b, ones, scale=2.0).numpy()
            swapped = batch_matmul_transpose(a, b).numpy()
            nothing = batch_matmul(np.ones((0, 3, 5), "f"), np.ones((0, 5, 4), "f")).numpy()
        assert (zeros == 0).all() and zeros.shape == (2, 3, 4)
        assert (added == 1).all() and added.shape == (2, 3, 4)
        assert (swapped == 0).all() and swapped.shape == (3, 2, 4)
        assert nothing.shape == (0, 3, 4)
        print(count("fake_launches"), *stock_ran())
        """,
        TF_TVM_OPS_FALLBACK=fallback,
    )
    assert printed == "0 BatchMatMulV2 BatchMatMulV2 Mul AddV2 BatchMatMulV2 Transpose"


def test_addend_that_enlarges_the_product_of_a_kernel(on_gpus: Run) -> None:
    printed = on_gpus("""
        a, b, addend = random(17, 64), random(17, 64), random(3, 17, 17)
        with tf.device("/GPU:0"):
            got = batch_matmul_add(a, b, addend, adj_y=True, scale=0.5)
        check_matmul(got, a, b.T, scale=0.5, addend=addend)
        print(count("fake_launches"), *stock_ran())
        """)
    assert printed == "1 Mul AddV2"


def test_inputs_are_never_written(on_gpus: Run) -> None:
    """Stock kernels may write over an operand that is theirs alone."""
    on_gpus(
        """
        @tf.function
        def both(a, b, addend):
            first = batch_matmul_add(a, b, addend, scale=0.5)
            return first, batch_matmul_add(a, b, addend, scale=3.0), addend

        a, b, addend = random(5, 7), random(7, 4), random(5, 4)
        with tf.device("/GPU:0"):
            first, second, same = both(a, b, addend)
        check_matmul(first, a, b, scale=0.5, addend=addend)
        check_matmul(second, a, b, scale=3.0, addend=addend)
        np.testing.assert_array_equal(same, addend)
        assert stock_ran() == ["BatchMatMulV2", "Mul", "AddV2"] * 2

        @tf.function
        def scaled(x):
            return batch_matmul(x, x, scale=0.5)

        # As many elements as the scale has.
        with tf.device("/GPU:0"):
            assert [scaled(tf.fill([1, 1], 2.0)).numpy().item() for _ in range(3)] == [2, 2, 2]
        """,
        TF_TVM_OPS_FALLBACK="stock",
    )


def test_many_batches(on_gpus: Run) -> None:
    """tensorflow#29374: grids are limited to 65,535 in y and z."""
    batch = 65536 + 1  # one is enough, the emulator is slow
    printed = on_gpus(
        f"""
        ones = np.ones(({batch}, 1, 1), np.float32)
        with tf.device("/GPU:0"):
            got = batch_matmul(ones, ones).numpy()
        print(int(got.sum()), got.shape == ones.shape, count("fake_launches") > 0)
        """,
        TF_TVM_OPS_FALLBACK="generic",
    )
    assert printed == f"{batch} True True"


@pytest.mark.parametrize("fallback", ["generic", "stock"])
def test_gradients(on_gpus: Run, fallback: str) -> None:
    on_gpus(
        """
        a, b, mask = random(2, 5, 7), random(7, 4), random(5, 1)

        def gradients(device):
            with tf.device(device), tf.GradientTape() as tape:
                x = [tf.Variable(v) for v in (a, b, mask)]
                y = batch_matmul_add(*x, scale=0.5)
                loss = tf.reduce_sum(y * y)
            return [g.numpy() for g in tape.gradient(loss, x)]

        for got, want in zip(gradients("/GPU:0"), gradients("/CPU:0")):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        """,
        TF_TVM_OPS_FALLBACK=fallback,
    )


def test_threads(on_gpus: Run) -> None:
    """tvm#1142: the first call among them."""
    on_gpus(
        """
        import threading
        shapes = ((17, 64, 17), (5, 7, 3), (1, 20, 30))
        barrier, failures = threading.Barrier(16), []

        def work(index):
            m, k, n = shapes[index % 3]
            a, b = random(2, m, k), random(2, k, n)
            barrier.wait()
            try:
                for _ in range(5):
                    with tf.device(f"/GPU:{index % 2}"):
                        check_matmul(batch_matmul(a, b), a, b)
            except Exception as error:
                failures.append(repr(error))

        workers = [threading.Thread(target=work, args=(index,)) for index in range(16)]
        [worker.start() for worker in workers]
        [worker.join() for worker in workers]
        assert not failures, failures
        """,
        TF_TVM_OPS_FALLBACK="generic",
    )


def test_errors(on_gpus: Run) -> None:
    printed = on_gpus("""
        with tf.device("/GPU:0"):
            for a, b in (((2, 1, 4), (2, 6, 1)), ((4,), (4, 4))):
                try:
                    batch_matmul(random(*a), random(*b))
                except tf.errors.InvalidArgumentError as error:
                    print(str(error.message).split("} ")[-1])
            check_matmul(batch_matmul(random(5, 7), random(7, 5)), random(5, 7), random(7, 5))
        """)
    size, rank = printed.splitlines()
    assert "lhs shape [2,1,4], rhs shape [2,6,1]" in size
    assert "at least 2 dimensions" in rank


_ANSWER = """
a, b = random(17, 64), random(64, 17)
with tf.device("/GPU:0"):
    for _ in range(2):
        check_matmul(batch_matmul(a, b, scale=0.5), a, b, scale=0.5)
    print(name_of(served_by(a, b, scale=0.5)))
"""


def test_gpu_of_another_compute_capability(ended: Callable[..., object], on_gpus: Run) -> None:
    done = ended(_ANSWER, capability="8.0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "stock (no_kernel)"
    (message,) = own_messages(done.stderr)
    assert "no kernels for a GPU of compute capability 8.0, only for cuda:sm_90" in message


def test_gpu_that_does_not_tell_its_compute_capability(on_gpus: Run) -> None:
    assert on_gpus(_ANSWER, capability="") == "stock (no_kernel)"


def test_driver_that_is_too_old(ended: Callable[..., object]) -> None:
    done = ended(_ANSWER, FAKE_DRIVER_FAILURE="35")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "stock (no_kernel)"
    (message,) = own_messages(done.stderr)
    assert "kernels for GPUs are not used" in message


def test_no_driver(ended: Callable[..., object], tmp_path: Path) -> None:
    """The pack is refused, with one warning, and stock serves."""
    done = ended(_ANSWER, LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "stock (no_kernel)"
    (message,) = own_messages(done.stderr)
    assert "this machine has no NVIDIA driver (libcuda.so.1)" in message


def test_nothing_is_opened_before_a_gpu_wants_it(on_gpus: Run) -> None:
    printed = on_gpus("""
        def opened(name):
            return any(name in line for line in open("/proc/self/maps"))

        names = ("libtvm_runtime_cuda.so", "libcudart.so.13")
        tf_tvm_ops.load()
        with tf.device("/CPU:0"):
            batch_matmul(random(17, 64), random(64, 17))
        print(*map(opened, names))
        with tf.device("/GPU:0"):
            batch_matmul(random(17, 64), random(17, 64), adj_y=True)
        print(*map(opened, names), *(tf_tvm_ops.packs.loaded()[0].targets))
        """)
    assert printed.splitlines() == ["False False", "True True cuda:sm_90"]


def test_doctor_says_whether_kernels_for_gpus_can_be_used(ended: Callable[..., object]) -> None:
    code = """
        from tf_tvm_ops.tools.cli import main
        main(["doctor"])
        """
    done = ended(code)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kernels for GPUs" in done.stdout
    assert "usable" in done.stdout
    done = ended(code, FAKE_DRIVER_FAILURE="35")
    assert done.returncode == 1
    assert "problem: kernels for GPUs are not used: CUDA cannot be used" in done.stdout
