"""Measuring the ops inside TensorFlow graphs, and the kernels against other libraries."""
