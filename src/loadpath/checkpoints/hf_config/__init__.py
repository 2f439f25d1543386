"""config.json of Hugging Face models → `ModelShape`, for every architecture family and, guessed, for unknown ones.

`family.py` holds what a family's code fixes, one row each; families whose layers are put together in ways of their own
have a reader (`READERS`). Encoders beside the language model are in `towers`, encoder-decoder models in `seq2seq.py`.
"""

from loadpath.checkpoints.hf_config.reading import shape_of

__all__ = ["shape_of"]
