"""Tests that need TensorFlow and the op library."""
