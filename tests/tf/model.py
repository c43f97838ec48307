"""A model as a function of named tensors, so that all ways of running treat all models alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class Shape:
    """How large one set of inputs is."""

    batch: int
    length: int
    source: int  # length of what cross attention reads

    def rng(self) -> np.random.Generator:
        """Numbers that depend on nothing else."""
        return np.random.default_rng([self.batch, self.length, self.source])


SHAPES = (Shape(batch=2, length=7, source=12), Shape(batch=3, length=17, source=9))


class Model(tf.Module):
    """A function of named tensors, with the variables it reads.

    ``call(inputs, training)`` computes; ``make_inputs(shape)`` gives arrays for it.
    """

    def __init__(
        self,
        layer: Any,
        call: Callable[[Inputs, bool], Any],
        make_inputs: Callable[[Shape], dict[str, Any]],
    ) -> None:
        super().__init__()
        self.layer = layer
        self._call = call
        self._make_inputs = make_inputs
        self(self.inputs(SHAPES[0]))  # makes what weights are still missing
        # A SavedModel in a session restores these, but not those of Keras 3 layers.
        self.state = [tensorflow_variable(v) for v in layer.variables]

    def __call__(self, inputs: Inputs, training: bool = False) -> list[Any]:
        """The outputs of one forward pass, flattened."""
        return list(tf.nest.flatten(self._call(inputs, training)))

    def inputs(self, shape: Shape) -> dict[str, Any]:
        """Inputs of a shape, the same at each call."""
        return {name: tf.constant(x) for name, x in self._make_inputs(shape).items()}

    def signature(self) -> dict[str, Any]:
        """Types of the inputs, with those dimensions open that differ between `SHAPES`."""
        first, second = (self.inputs(shape) for shape in SHAPES)
        specs = {}
        for name, x in first.items():
            dims = [m if m == n else None for m, n in zip(x.shape, second[name].shape)]
            specs[name] = tf.TensorSpec(dims, x.dtype, name=name)
        return specs

    def function(self) -> Any:
        """The forward pass as a graph for every shape."""
        return tf.function(lambda inputs: self(inputs), input_signature=[self.signature()])

    def save(self, path: Path) -> None:
        """Write a SavedModel with the signature ``serving_default``."""
        specs = self.signature()

        def serve(*values: Any) -> dict[str, Any]:
            return {f"out{i}": x for i, x in enumerate(self(dict(zip(specs, values))))}

        # Keras wraps a dictionary argument; plain ones keep their names in any loader.
        self.serve = tf.function(serve, input_signature=list(specs.values()))
        tf.saved_model.save(self, str(path), signatures=self.serve.get_concrete_function())

    def gradients(self, inputs: Inputs) -> tuple[Any, list[Any]]:
        """A loss in training mode and its gradients, to be traced or called.

        Dropout makes it another one at each call, the same for models that `ModelCase.build`
        made anew. A weight that the outputs do not depend on has None.
        """
        weights = [tensorflow_variable(v) for v in self.layer.trainable_variables]
        with tf.GradientTape() as tape:
            # Plain means of what layer normalization gives depend on nothing.
            loss = tf.add_n(
                [
                    tf.reduce_mean(tf.cast(x, tf.float32) * tf.cos(tf.range(float(x.shape[-1]))))
                    for x in self(inputs, training=True)
                    if x.dtype.is_floating
                ]
            )
        return loss, tape.gradient(loss, weights)


@dataclass(frozen=True)
class ModelCase:
    """How to make a model, and what is known of it.

    Attributes
    ----------
    name
        Of its library, and what it is.
    title
        What it is called in the documentation.
    keras
        The Keras that it is made of, whose random numbers are its weights.
    builder
        Makes it.
    attention
        Products of attention in one inference: two for each attention, in loops once.
    trains
        Whether it has a training step.
    precision
        The dtype that it computes in.
    """

    name: str
    title: str
    keras: str
    builder: Callable[[], Model] = field(repr=False)
    attention: int
    trains: bool = True
    precision: str = "float32"

    def build(self) -> Model:
        """The model, with the same weights at each call."""
        import_module(self.keras).utils.set_random_seed(7)
        return self.builder()


def tensorflow_variable(variable: Any) -> Any:
    """What a variable of Keras 3 stands for; those of Keras 2 are it."""
    return variable if isinstance(variable, tf.Variable) else variable.value
