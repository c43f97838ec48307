"""Models that others wrote, small and with random weights, for tests of the rewriter.

Heads have a realistic depth; everything else is small. `MODELS` lists them; what they need is in
``tests/requirements-models.txt``, and is imported when a model is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from .model import Inputs, Model, ModelCase, Shape

VOCABULARY = 97
WIDTH = 128  # of the models
HEADS, DEPTH = 4, 32
LONGEST = 32  # sequence that a model with learned positions takes


def _tokens(rng: np.random.Generator, *shape: int) -> Any:
    return rng.integers(1, VOCABULARY, shape, dtype=np.int32)


def _features(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape, dtype=np.float32)


def _padding(batch: int, length: int) -> Any:
    """Ones, then zeros where a sequence has ended; the first sequence is full."""
    ends = length - np.arange(batch) % max(1, length // 2)
    return (np.arange(length)[None] < ends[:, None]).astype(np.int32)


# Layers of Keras 3 and 2


def _query_value(shape: Shape) -> dict[str, Any]:
    rng = shape.rng()
    return {
        "query": _features(rng, shape.batch, shape.length, 64),
        "value": _features(rng, shape.batch, shape.source, 64),
    }


def _query_value_mask(shape: Shape) -> dict[str, Any]:
    mask = shape.rng().random((shape.batch, shape.length, shape.source)) < 0.7
    mask[..., 0] = True  # a row without any is another story
    return {**_query_value(shape), "mask": mask}


def _query(shape: Shape) -> dict[str, Any]:
    return {"query": _features(shape.rng(), shape.batch, shape.length, 64)}


def _multi_head(
    keras: str = "keras",
    make_inputs: Callable[[Shape], dict[str, Any]] = _query_value_mask,
    layer: str = "MultiHeadAttention",
    sizes: tuple[int, ...] = (HEADS, DEPTH),
    options: Mapping[str, Any] | None = None,
    **call_options: Any,
) -> Model:
    """One attention layer with projections; self-attention where there is no ``value``."""
    layers = import_module(keras).layers
    attention = getattr(layers, layer)(*sizes, **(options or {}))

    def call(inputs: Inputs, training: bool) -> Any:
        masks = {"attention_mask": inputs["mask"]} if "mask" in inputs else {}
        value = inputs.get("value", inputs["query"])
        return attention(inputs["query"], value, training=training, **masks, **call_options)

    return Model(attention, call, make_inputs)


def _attention(keras: str) -> Model:
    """Keras's attention without heads or projections: rank 3, and a scale that is a weight."""
    layer = import_module(keras).layers.Attention(use_scale=True)

    def call(inputs: Inputs, training: bool) -> Any:
        return layer([inputs["query"], inputs["value"]], training=training)

    return Model(layer, call, _query_value)


# keras-hub


def _encoder_inputs(shape: Shape) -> dict[str, Any]:
    return {
        "token_ids": _tokens(shape.rng(), shape.batch, shape.length),
        "padding_mask": _padding(shape.batch, shape.length),
    }


def _segmented_inputs(shape: Shape) -> dict[str, Any]:
    segments = np.arange(shape.length, dtype=np.int32)[None] >= shape.length // 2
    return {
        **_encoder_inputs(shape),
        "segment_ids": np.repeat(segments, shape.batch, 0).astype(np.int32),
    }


def _seq2seq_inputs(shape: Shape) -> dict[str, Any]:
    rng = shape.rng()
    return {
        "encoder_token_ids": _tokens(rng, shape.batch, shape.source),
        "encoder_padding_mask": _padding(shape.batch, shape.source),
        "decoder_token_ids": _tokens(rng, shape.batch, shape.length),
        "decoder_padding_mask": _padding(shape.batch, shape.length),
    }


def _hub_config(**more: Any) -> dict[str, Any]:
    return {
        "vocabulary_size": VOCABULARY,
        "num_layers": 2,
        "num_heads": HEADS,
        "hidden_dim": WIDTH,
        "intermediate_dim": 2 * WIDTH,
        **more,
    }


def _hub(
    backbone: str,
    make_inputs: Callable[[Shape], dict[str, Any]] = _encoder_inputs,
    config: Mapping[str, Any] | None = None,
) -> Model:
    hub = import_module("keras_hub")
    model = getattr(hub.models, backbone)(**(config or _hub_config(max_sequence_length=LONGEST)))
    return Model(model, lambda x, training: model(dict(x), training=training), make_inputs)


def _hub_deberta() -> Model:
    config = _hub_config(max_sequence_length=LONGEST, bucket_size=8)
    return _hub("DebertaV3Backbone", config=config)


def _hub_llama() -> Model:
    config = _hub_config(num_query_heads=HEADS, num_key_value_heads=2)
    del config["num_heads"]
    return _hub("LlamaBackbone", config=config)


def _hub_vit() -> Model:
    hub = import_module("keras_hub")
    model = hub.models.ViTBackbone(
        image_shape=(32, 32, 3),
        patch_size=8,
        num_layers=2,
        num_heads=HEADS,
        hidden_dim=WIDTH,
        mlp_dim=2 * WIDTH,
    )
    return Model(
        model,
        lambda x, training: model(x["images"], training=training),
        lambda shape: {"images": _features(shape.rng(), shape.batch, 32, 32, 3)},
    )


def _hub_whisper() -> Model:
    config = _hub_config(
        num_mels=16, max_encoder_sequence_length=16, max_decoder_sequence_length=LONGEST
    )

    def make_inputs(shape: Shape) -> dict[str, Any]:
        rng = shape.rng()
        return {
            "encoder_features": _features(rng, shape.batch, 16, 16),
            "decoder_token_ids": _tokens(rng, shape.batch, shape.length),
            "decoder_padding_mask": _padding(shape.batch, shape.length),
        }

    return _hub("WhisperBackbone", make_inputs, config)


def _hub_generate() -> Model:
    """The loop of generation: a pass over the prompt, then a token at a time with a cache."""
    hub = import_module("keras_hub")
    backbone = hub.models.GPT2Backbone(**_hub_config(max_sequence_length=LONGEST))
    model = hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)
    model.compile(sampler="greedy", run_eagerly=True)  # who calls it makes the graph

    def call(inputs: Inputs, training: bool) -> Any:
        return model.generate_step(dict(inputs), stop_token_ids=None)["token_ids"]

    def make_inputs(shape: Shape) -> dict[str, Any]:
        prompt = np.arange(shape.length)[None] < shape.length // 2
        return {
            "token_ids": _tokens(shape.rng(), shape.batch, shape.length),
            "padding_mask": np.repeat(prompt, shape.batch, 0),
        }

    return Model(model, call, make_inputs)


# tf-models-official


def _official(decode: bool) -> Model:
    """The translation Transformer: teacher-forced, or beam search in a loop with a cache."""
    models = import_module("official.nlp.modeling.models")
    config = {
        "num_layers": 2,
        "num_attention_heads": HEADS,
        "intermediate_size": 2 * WIDTH,
        "dropout_rate": 0.1,
        "attention_dropout_rate": 0.1,
        "intermediate_dropout": 0.1,
    }
    model = models.Seq2SeqTransformer(
        vocab_size=VOCABULARY,
        embedding_width=WIDTH,
        dropout_rate=0.1,
        decode_max_length=8,
        extra_decode_length=4,
        beam_size=2,
        encoder_layer=models.TransformerEncoder(**config),
        decoder_layer=models.TransformerDecoder(**config),
    )

    def make_inputs(shape: Shape) -> dict[str, Any]:
        rng = shape.rng()
        made = {"inputs": _tokens(rng, shape.batch, shape.source)}
        if not decode:
            made["targets"] = _tokens(rng, shape.batch, shape.length)
        return made

    return Model(model, lambda x, training: model(dict(x), training=training), make_inputs)


def _official_bert() -> Model:
    networks = import_module("official.nlp.modeling.networks")
    model = networks.BertEncoderV2(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_layers=2,
        num_attention_heads=HEADS,
        max_sequence_length=LONGEST,
        inner_dim=2 * WIDTH,
    )

    def make_inputs(shape: Shape) -> dict[str, Any]:
        words, padding, types = _segmented_inputs(shape).values()
        return {"input_word_ids": words, "input_mask": padding, "input_type_ids": types}

    return Model(model, lambda x, training: model(dict(x), training=training), make_inputs)


# Hugging Face transformers, version 4


def _hugging_face(name: str, config: Mapping[str, Any], decoder: bool = False) -> Model:
    transformers = import_module("transformers")
    settings = getattr(transformers, f"{name}Config")(vocab_size=VOCABULARY, **config)
    model = getattr(transformers, f"TF{name}Model")(settings)

    def make_inputs(shape: Shape) -> dict[str, Any]:
        rng = shape.rng()
        length = shape.source if decoder else shape.length
        made = {
            "input_ids": _tokens(rng, shape.batch, length),
            "attention_mask": _padding(shape.batch, length),
        }
        if decoder:
            made["decoder_input_ids"] = _tokens(rng, shape.batch, shape.length)
        return made

    return Model(model, lambda x, training: model(dict(x), training=training)[0], make_inputs)


def _hugging_face_bert() -> Model:
    return _hugging_face(
        "Bert",
        {
            "hidden_size": WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": HEADS,
            "intermediate_size": 2 * WIDTH,
        },
    )


def _hugging_face_distilbert() -> Model:
    config = {"dim": WIDTH, "n_layers": 2, "n_heads": HEADS, "hidden_dim": 2 * WIDTH}
    return _hugging_face("DistilBert", config)


def _hugging_face_gpt2() -> Model:
    config = {"n_embd": WIDTH, "n_layer": 2, "n_head": HEADS, "use_cache": False}
    return _hugging_face("GPT2", config)


def _hugging_face_t5() -> Model:
    return _hugging_face(
        "T5",
        {
            "d_model": WIDTH,
            "d_kv": DEPTH,
            "d_ff": 2 * WIDTH,
            "num_layers": 2,
            "num_heads": HEADS,
            "use_cache": False,
        },
        decoder=True,
    )


def _hugging_face_bart() -> Model:
    return _hugging_face(
        "Bart",
        {
            "d_model": WIDTH,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": HEADS,
            "decoder_attention_heads": HEADS,
            "encoder_ffn_dim": 2 * WIDTH,
            "decoder_ffn_dim": 2 * WIDTH,
            "max_position_embeddings": LONGEST,
            "use_cache": False,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 2,
        },
        decoder=True,
    )


def _case(
    keras: str, name: str, title: str, attention: int, builder: Any, **more: Any
) -> ModelCase:
    return ModelCase(name, title, keras, builder, attention, **more)


_keras3 = partial(_case, "keras")
_keras2 = partial(_case, "tf_keras")
_MULTI_HEAD = "Keras MultiHeadAttention"

MODELS = (
    _keras3("keras", _MULTI_HEAD, 2, lambda: _multi_head(make_inputs=_query_value)),
    _keras3("keras-mask", f"{_MULTI_HEAD}, mask", 2, _multi_head),
    _keras3(
        "keras-causal",
        f"{_MULTI_HEAD}, causal",
        2,
        lambda: _multi_head(make_inputs=_query, use_causal_mask=True),
    ),
    _keras3(
        "keras-scores",
        f"{_MULTI_HEAD}, scores returned",
        2,
        lambda: _multi_head(return_attention_scores=True),
    ),
    _keras3(
        "keras-dropout",
        f"{_MULTI_HEAD}, dropout",
        2,
        lambda: _multi_head(options={"dropout": 0.1}),
    ),
    _keras3(
        "keras-bfloat16",
        f"{_MULTI_HEAD}, mixed_bfloat16",
        2,
        lambda: _multi_head(options={"dtype": "mixed_bfloat16"}),
        precision="bfloat16",
    ),
    _keras3(
        "keras-float16",
        f"{_MULTI_HEAD}, dropout, mixed_float16",
        2,
        lambda: _multi_head(options={"dropout": 0.1, "dtype": "mixed_float16"}),
        precision="float16",
    ),
    _keras3(
        "keras-grouped-query",
        "Keras GroupQueryAttention",
        2,
        lambda: _multi_head(layer="GroupQueryAttention", sizes=(DEPTH, HEADS, 2)),
    ),
    _keras3("keras-attention", "Keras Attention", 2, lambda: _attention("keras")),
    _keras3("hub-bert", "keras-hub BERT", 4, lambda: _hub("BertBackbone", _segmented_inputs)),
    _keras3("hub-gpt2", "keras-hub GPT-2", 4, lambda: _hub("GPT2Backbone")),
    _keras3("hub-gpt2-generate", "keras-hub GPT-2, generate", 8, _hub_generate, trains=False),
    _keras3("hub-bart", "keras-hub BART", 12, lambda: _hub("BartBackbone", _seq2seq_inputs)),
    _keras3(
        "hub-t5", "keras-hub T5", 12, lambda: _hub("T5Backbone", _seq2seq_inputs, _hub_config())
    ),
    _keras3("hub-llama", "keras-hub Llama", 4, _hub_llama),
    _keras3("hub-bloom", "keras-hub Bloom", 4, lambda: _hub("BloomBackbone", config=_hub_config())),
    # Each layer has two more products, of positions.
    _keras3("hub-deberta", "keras-hub DeBERTa", 8, _hub_deberta),
    _keras3("hub-vit", "keras-hub ViT", 4, _hub_vit),
    _keras3("hub-whisper", "keras-hub Whisper", 12, _hub_whisper),
    _keras2("keras2-mask", "Keras 2 MultiHeadAttention, mask", 2, lambda: _multi_head("tf_keras")),
    _keras2("official-bert", "tf-models-official BERT", 4, _official_bert),
    _keras2(
        "official-transformer",
        "tf-models-official Transformer",
        12,
        lambda: _official(decode=False),
    ),
    _keras2(
        "official-decoding",
        "tf-models-official Transformer, beam search",
        12,
        lambda: _official(decode=True),
        trains=False,
    ),
    _keras2("huggingface-bert", "Hugging Face BERT", 4, _hugging_face_bert),
    _keras2("huggingface-distilbert", "Hugging Face DistilBERT", 4, _hugging_face_distilbert),
    _keras2("huggingface-gpt2", "Hugging Face GPT-2", 4, _hugging_face_gpt2),
    _keras2("huggingface-t5", "Hugging Face T5", 12, _hugging_face_t5),
    _keras2("huggingface-bart", "Hugging Face BART", 12, _hugging_face_bart),
)
