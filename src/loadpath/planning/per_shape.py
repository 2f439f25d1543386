"""Results that depend on a model's shape and little else, computed once: a sweep asks for them thousands of times."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from loadpath.core.shape import ModelShape

P = ParamSpec("P")
T = TypeVar("T")
KEPT = 4096


def per_shape(function: Callable[Concatenate[ModelShape, P], T]) -> Callable[Concatenate[ModelShape, P], T]:
    """Cache of `function(shape, *small hashable arguments)`. A shape is known by identity: hashing one walks its layers."""
    kept: dict[Hashable, tuple[ModelShape, T]] = {}

    @wraps(function)
    def cached(shape: ModelShape, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (id(shape), args, tuple(kwargs.items()))
        found = kept.get(key)
        if found is None or found[0] is not shape:
            if len(kept) >= KEPT:
                kept.clear()
            found = kept[key] = (shape, function(shape, *args, **kwargs))
        return found[1]

    return cast(Callable[Concatenate[ModelShape, P], T], cached)
