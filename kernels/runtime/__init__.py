"""What calls kernels without TVM and without TensorFlow: the standard library is enough.

The modules do not import one another, so each of them works when it is copied into another package.
"""
