"""Tests; each folder says what it needs: nothing (unit), TVM (tvm), TensorFlow (tf)."""
