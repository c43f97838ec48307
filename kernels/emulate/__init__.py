"""Runs the CUDA C++ of kernels on the CPU, to check them where there is no GPU."""
