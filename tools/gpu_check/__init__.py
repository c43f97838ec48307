"""Checks and times GPU kernels on a machine that has a GPU but neither TensorFlow nor TVM.

What travels there needs Python 3.9, NumPy, and PyTorch and Triton if there is to be something to
compare with: everything here but :mod:`.bundle` and :mod:`.command`.
"""
