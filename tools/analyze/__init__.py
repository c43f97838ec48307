"""``tf-tvm-ops analyze``: what a pack's kernels do and what bounds them, without running them."""
