"""How a checkpoint says that its weights are stored: `quantization_config` and ModelOpt's hf_quant_config.json."""

from loadpath.checkpoints.quantisation.schemes import note_of, quantisation

__all__ = ["note_of", "quantisation"]
