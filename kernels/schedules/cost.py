"""First-principles cost of a vector tile on a CPU core, in cycles.

The figures hold, near enough, for every x86 core with the vector width of the target: two fused
multiply-adds and two loads a cycle, four cycles from one sum to the next that depends on it.
Absolute times do not matter: the model ranks configs of one problem.
"""

from __future__ import annotations

FMA_PER_CYCLE = 2.0
LOADS_PER_CYCLE = 2.0
LOAD_COST = 0.05
STORES_PER_CYCLE = 1.0
FMA_LATENCY = 4.0
SHUFFLES_PER_CYCLE = 1.5
TILE_OVERHEAD = 8.0  # loop set-up, address arithmetic
# Of Intel's optimisation manual for the first CPUs with AMX; no such CPU was at hand to measure.
AMX_DOT = 16.0  # between one tile product and the next
AMX_LATENCY = 52.0  # from a product to the next one that adds to the same tile
AMX_LOAD = 8.0
AMX_STORE = 16.0
AMX_CONFIGURE = 50.0  # some 200, shared by the matrices of a call
AMX_CAUTION = 1.25  # tiles have to promise a clear win, until they are measured
STEP_OVERHEAD = 0.5  # counter and branch of one iteration, mostly hidden


def tile_step(accumulators: int, loads: int) -> float:
    """One step of K over a tile: bound by multiply-adds or loads.

    Loads cost a little even where they are not the bound, as they miss the first cache sometimes:
    of two tiles bound by multiply-adds, the one with more reuse is better.
    """
    return max(accumulators / FMA_PER_CYCLE, loads / LOADS_PER_CYCLE) + LOAD_COST * loads


def broadcast_tile(rows: int, vectors: int, k: int, k_split: int, unroll: int) -> float:
    """A tile of :func:`~tf_tvm_ops.kernels.microkernel.broadcast_tile`."""
    step = max(tile_step(rows * vectors, rows + vectors), FMA_LATENCY / k_split)
    registers = rows * vectors
    drain = registers * (k_split - 1) / FMA_PER_CYCLE + FMA_LATENCY
    return (
        k * (step + STEP_OVERHEAD / unroll) + drain + registers / STORES_PER_CYCLE + TILE_OVERHEAD
    )


def dot_tile(rows: int, columns: int, k_vectors: int, lanes: int) -> float:
    """A tile of :func:`~tf_tvm_ops.kernels.microkernel.dot_tile`."""
    count = rows * columns
    step = max(tile_step(count, rows + columns), FMA_LATENCY if count < 8 else 0.0)
    # Folding to `count` lanes first, then a tree: see microkernel.lane_sums.
    shuffles = 0.0
    width = lanes
    while width > count:
        shuffles += 2 * count
        width //= 2
    shuffles += 2 * (count - 1)
    return k_vectors * step + shuffles / SHUFFLES_PER_CYCLE + rows + TILE_OVERHEAD / 2


def transpose_block(lanes: int) -> float:
    """A block of :func:`~tf_tvm_ops.kernels.microkernel.transpose_block`."""
    rounds = lanes.bit_length() - 1
    return lanes * rounds / SHUFFLES_PER_CYCLE + lanes / STORES_PER_CYCLE


def amx_block(tile_m: int, tile_n: int, steps: int) -> float:
    """A block of :mod:`.cpu_amx`: ``tile_m`` x ``tile_n`` tiles of sums of 16 x 16."""
    tiles = tile_m * tile_n
    step = max(AMX_DOT * tiles, AMX_LOAD * (tile_m + tile_n), AMX_LATENCY)
    rows = 16 * tiles
    finish = AMX_STORE * tiles + rows / LOADS_PER_CYCLE + rows / STORES_PER_CYCLE
    return steps * step + AMX_LATENCY + finish + TILE_OVERHEAD
