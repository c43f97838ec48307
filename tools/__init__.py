"""Tools around the kernels: the command line, benchmarks, the demo."""
