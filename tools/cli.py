"""The ``tf-tvm-ops`` command. Each subcommand is imported when it is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

from tf_tvm_ops.version import __version__

# Name: module and function. `generate` and `bundle` need TVM, `bench` and `rewrite` TensorFlow,
# `tune` both, `analyze` and `inspect` neither.
_COMMANDS: Mapping[str, tuple[str, str]] = {
    "analyze": ("tf_tvm_ops.tools.analyze.command", "analyze"),
    "bench": ("tf_tvm_ops.tools.bench.command", "bench"),
    "bundle": ("tf_tvm_ops.tools.gpu_check.command", "bundle"),
    "doctor": ("tf_tvm_ops.tools.doctor", "doctor"),
    "generate": ("tf_tvm_ops.tools.generate", "generate"),
    "inspect": ("tf_tvm_ops.tools.inspect", "inspect"),
    "measure": ("tf_tvm_ops.tools.tune.measure", "measure"),
    "rewrite": ("tf_tvm_ops.tools.rewrite", "rewrite"),
    "tune": ("tf_tvm_ops.tools.tune.command", "tune"),
}

_HELP = {
    "analyze": "Predict what bounds the GPU kernels of a pack.",
    "bench": "Measure stock TensorFlow and tf_tvm_ops.",
    "bundle": "Pack the GPU kernels of a pack, to check and time them elsewhere.",
    "doctor": "Say what works here and what does not.",
    "generate": "Compile kernels for a table of shapes into a pack.",
    "inspect": "List the kernels of a pack.",
    "measure": "Check and time kernels that another machine compiled.",
    "rewrite": "Write a SavedModel that uses the ops.",
    "tune": "Search for the fastest kernels, and prove them against stock.",
}


class _LazyGroup(click.Group):
    """A group whose help does not import the subcommands, nor what they need."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, function = _COMMANDS[cmd_name]
        try:
            command = getattr(importlib.import_module(module), function)
        except ImportError as error:
            raise click.ClickException(
                f"tf-tvm-ops {cmd_name} needs a module that cannot be imported: {error}"
            ) from error
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _HELP[name]) for name in self.list_commands(ctx)])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tf-tvm-ops")
def main() -> None:
    """Fused batch-matmul kernels for TensorFlow, generated offline by TVM."""
