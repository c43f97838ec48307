"""The offline generator: shape tables in, packs of compiled kernels out. Needs TVM."""
