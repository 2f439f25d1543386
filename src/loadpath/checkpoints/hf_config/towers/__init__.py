"""Encoders beside the language model: their parameters by formula, and the tokens of one image or clip."""

from loadpath.checkpoints.hf_config.towers.towers import towers

__all__ = ["towers"]
