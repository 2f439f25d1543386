"""The one exception of this folder: a model that could not be read, in a sentence for the user."""

from __future__ import annotations


class ModelError(ValueError):
    """A model, or one of its files, that cannot be read. `near`: names that may have been meant."""

    def __init__(self, message: str, near: tuple[str, ...] = ()) -> None:
        super().__init__(f"{message}; near names: {', '.join(near)}" if near else message)
        self.near = near
