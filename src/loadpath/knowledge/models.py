"""The table of published models, typed: a name as people print it → the model's shape.

A name finds its row by id or alias, whatever its case, separators and organisation. A name that is a known model plus
a scheme (`…-AWQ`, `…-GPTQ-Int4`, `…-Q4_K_M.gguf`) gets that model's shape with the scheme's usual storage, and says
so in `basis` and `note`. Any other name is unknown: `close` offers what was perhaps meant.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from functools import cache
from pathlib import Path

import msgspec

from loadpath.core.shape import (
    Dense,
    Drafter,
    Dtype,
    Layer,
    ModelShape,
    Quantisation,
    Rope,
    Tower,
)
from loadpath.knowledge.cache import cached
from loadpath.knowledge.schemes import COMPRESSORS, split_scheme

_TABLE = Path(__file__).parent / "models.toml"
_SIBLINGS = ("instruct", "it", "chat", "hf", "base")
"""Endings of tuned and base checkpoints of one shape."""


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One model of the table; see its head for `pattern`, `layer`, `basis` and `rounded`."""

    id: str
    family: str
    architecture: str
    hidden: int
    vocab: int
    tied: bool
    max_position: int
    dtype: Dtype
    pattern: str
    layer: dict[str, Layer]
    basis: str
    source: str
    aliases: tuple[str, ...] = ()
    encoder: tuple[Layer, ...] = ()
    rope: tuple[Rope, ...] = ()
    learned_positions: int = 0
    norm_vectors: int = 1
    lm_head_bias: bool = False
    per_layer_embedding: int = 0
    per_layer_vocab: int = 0
    state_dtype: Dtype | None = None
    hyper_connections: int = 0
    other: int = 0
    drafter: Drafter | None = None
    towers: tuple[Tower, ...] = ()
    quantisation: Quantisation | None = None
    parameters: int | None = None
    rounded: bool = False
    active_parameters: int | None = None
    checkpoint_bytes: int | None = None
    note: str = ""


class _Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A quantised checkpoint of the model `base`."""

    id: str
    base: str
    quantisation: Quantisation
    basis: str
    aliases: tuple[str, ...] = ()
    mlp_width: int = 0
    note: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: tuple[_Row, ...]
    variant: tuple[_Variant, ...]


@cache
def _file() -> _File:
    import loadpath.core.shape as shape  # the cached form is of these structs

    files = (_TABLE, Path(__file__), Path(str(shape.__file__)))
    return cached("models", files, _File, lambda: msgspec.convert(tomllib.loads(_TABLE.read_text("utf-8")), _File))


def _rows() -> tuple[_Row | _Variant, ...]:
    return (*_file().model, *_file().variant)


_TOKEN = re.compile(r"(\d*)(?:([A-Za-z])|\(([^()]*)\))")


def expand(pattern: str) -> str:
    """The letters of a pattern, one a layer: `"3D 2(2L F)"` → `"DDDLLFLLF"`."""
    return "".join(int(times or 1) * (letter or expand(group)) for times, letter, group in _TOKEN.findall(pattern))


def key_of(name: str) -> str:
    """What two spellings of a name have in common: no organisation or folder, case or separators (dots count)."""
    last = name.strip().rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1].lower()
    return re.sub(r"[^a-z0-9.+()]+", "", last)


def publisher_of(name: str) -> str:
    """The organisation of a hub id, in lower case; empty for other names."""
    organisation, slash, rest = name.strip().lower().partition("/")
    return organisation if slash and rest and "/" not in rest else ""


@cache
def _identified() -> dict[str, _Row | _Variant]:
    """Rows by their whole ids, in lower case."""
    return {row.id.lower(): row for row in _rows()}


@cache
def _index() -> dict[str, _Row | _Variant]:
    """Rows by the keys of their ids and aliases; where two claim one key, an id goes before an alias."""
    rows: dict[str, _Row | _Variant] = {}
    for row in _rows():
        rows.setdefault(key_of(row.id), row)
    for row in _rows():
        for alias in row.aliases:
            rows.setdefault(key_of(alias), row)
    return rows


@cache
def _spellings() -> dict[str, str]:
    """Keys of aliases that are repositories of their own → the repository's id."""
    return {key_of(alias): alias for row in _rows() for alias in reversed(row.aliases) if "/" in alias}


@cache
def names() -> tuple[str, ...]:
    """The ids of every model and variant, in the table's order."""
    return tuple(row.id for row in _rows())


@cache
def model(name: str) -> ModelShape | None:
    """The shape of the model that people call `name`; None where the table does not know it."""
    publisher = publisher_of(name)
    row = _identified().get(name.strip().lower()) or _index().get(key_of(name))
    if row and not (isinstance(row, _Variant) and publisher in COMPRESSORS and publisher_of(row.id) != publisher):
        return _called(_shape(row), row, key_of(name))
    if row := _sibling(key_of(name)):
        return _renamed(row, name, f"shape of {row.id}")
    rest, scheme = split_scheme(name)
    if scheme is None:
        return None
    key = key_of(rest)
    row = _index().get(key) or _sibling(key)
    if row is None or not key:
        return None
    if isinstance(row, _Variant):  # a second scheme on a quantised checkpoint: only its own name says what it holds
        return None
    shape = _renamed(row, name, f"shape of {row.id}, stored as usual for {scheme.name}")
    return msgspec.structs.replace(shape, quantisation=scheme.quantisation(row.family, publisher), **scheme.changes)


def close(name: str, most: int = 5) -> tuple[str, ...]:
    """Ids whose name resembles `name`, the most alike first."""
    keys = {key: row.id for key, row in _index().items()}
    bare = re.sub(r"\s*\(.*?\)", "", name)
    found: dict[str, None] = {}
    for wanted in dict.fromkeys(key_of(said) for said in (name, bare, split_scheme(bare)[0])):
        for key in difflib.get_close_matches(wanted, keys, n=most, cutoff=0.72):
            found.setdefault(keys[key])
    return tuple(found)[:most]


def _sibling(key: str) -> _Row | None:
    """A model whose name differs only in the ending that tells a tuned from a base checkpoint."""
    stem = next((key.removesuffix(end) for end in _SIBLINGS if key.endswith(end) and len(key) > len(end) + 4), key)
    for end in ("", *_SIBLINGS):
        row = _index().get(stem + end)
        if isinstance(row, _Row):
            return row
    return None


def _shape(row: _Row | _Variant) -> ModelShape:
    return _of_row(row) if isinstance(row, _Row) else _of_variant(row)


def _called(shape: ModelShape, row: _Row | _Variant, key: str) -> ModelShape:
    """The shape under the id of the repository that was named, where that is another than the row's."""
    other = _spellings().get(key)
    if key == key_of(row.id) or other is None:
        return shape
    source = f"{shape.source}; same shape as {row.id}".removeprefix("; ")
    return msgspec.structs.replace(shape, id=other, source=source)


def _renamed(row: _Row, name: str, note: str) -> ModelShape:
    shape = _of_row(row)
    return msgspec.structs.replace(
        shape, id=name, basis="inferred", note=f"{note}; {shape.note}" if shape.note else note
    )


@cache
def _base(identifier: str) -> _Row:
    return next(row for row in _file().model if row.id == identifier)


def _of_row(row: _Row) -> ModelShape:
    return ModelShape(
        id=row.id,
        family=row.family,
        architecture=row.architecture,
        hidden=row.hidden,
        vocab=row.vocab,
        tied=row.tied,
        max_position=row.max_position,
        dtype=row.dtype,
        layers=tuple(row.layer[letter] for letter in expand(row.pattern)),
        encoder=row.encoder,
        rope=row.rope,
        learned_positions=row.learned_positions,
        norm_vectors=row.norm_vectors,
        lm_head_bias=row.lm_head_bias,
        per_layer_embedding=row.per_layer_embedding,
        per_layer_vocab=row.per_layer_vocab,
        state_dtype=row.state_dtype,
        hyper_connections=row.hyper_connections,
        other=row.other,
        drafter=row.drafter,
        towers=row.towers,
        quantisation=row.quantisation,
        parameters=row.parameters,
        active_parameters=row.active_parameters,
        basis=row.basis,
        source=row.source,
        note=row.note,
    )


def _of_variant(row: _Variant) -> ModelShape:
    base = _base(row.base)
    shape = _of_row(base)
    layers = shape.layers
    if row.mlp_width:
        padded = {layer: _widened(layer, row.mlp_width) for layer in set(layers)}
        layers = tuple(padded[layer] for layer in layers)
    return msgspec.structs.replace(
        shape,
        id=row.id,
        layers=layers,
        quantisation=row.quantisation,
        basis=row.basis,
        note="; ".join(filter(None, (row.note, shape.note))),
    )


def _widened(layer: Layer, width: int) -> Layer:
    feeds = tuple(msgspec.structs.replace(f, width=width) if isinstance(f, Dense) else f for f in layer.feeds)
    return msgspec.structs.replace(layer, feeds=feeds)
