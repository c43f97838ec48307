"""``tf-tvm-ops tune``: the search for the fastest kernels, and the proof that they win."""
