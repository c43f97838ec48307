"""Kernels for NVIDIA GPUs, compiled without a GPU and without a CUDA toolkit."""
