"""``python -m tf_tvm_ops``: the same as the ``tf-tvm-ops`` command."""

from tf_tvm_ops.tools.cli import main

if __name__ == "__main__":
    main(prog_name="tf-tvm-ops")
