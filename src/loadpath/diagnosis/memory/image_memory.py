"""Image and video generation that ran out of GPU memory: which part of the pipeline, and each program's own levers."""

from __future__ import annotations

from loadpath.core.case import Case
from loadpath.core.facts.errors import OutOfMemory
from loadpath.core.report import Remedy
from loadpath.diagnosis.memory.oom_words import says

_COMFY = ("comfy", "ran out of memory on your gpu", "exception during processing", "got an oom, unloading")
_WEBUI = ("stable-diffusion-webui", "modules/processing", "modules/sd_samplers", "backend/diffusion_engine")
_PARTS = {
    "VAE": "The VAE was at work: it needs memory by the pixels (and frames) of the whole picture at once, not by the model's size.",
    "denoising model": "The denoising model was at work: its weights lie on the card, and a step's activations grow with pixels, "
    "frames and batch.",
    "text encoder": "The text encoder was at work: it need not stay on the card beside the denoising model.",
}  # fmt: skip
_SMALLER = Remedy("Smaller pictures, fewer frames, a batch of one", "width, height, num_frames, batch_size = 1",
                  "activations shrink in proportion")  # fmt: skip


def program(case: Case, fact: OutOfMemory) -> str:
    if says(case, fact, *_COMFY, back=150):
        return "comfyui"
    return "webui" if says(case, fact, *_WEBUI, back=150) else "diffusers"


def words(oom: OutOfMemory) -> dict[str, str]:
    """Which part of the pipeline, and what its memory grows with."""
    part = _PARTS.get(
        oom.operation, "Weights of all parts that are on the card and the activations of one step do not fit together."
    )
    where = f" ({oom.operation})" if oom.operation in _PARTS else ""
    figures = "" if oom.requested_bytes is not None else "The message carries no figures."
    return {"no_figures": figures, "part": part, "where": f"image generation{where}"}


def remedies(case: Case, fact: OutOfMemory) -> tuple[Remedy, ...]:
    """The program's own switches; for the VAE tiling comes first, else fewer weights on the card."""
    which = program(case, fact)
    tiles, offload, smaller = {
        "comfyui": (
            Remedy("Decode in tiles", "node VAE Decode (Tiled)", "the VAE works on a part of the picture at a time"),
            Remedy("Keep less of the models on the card", "python main.py --lowvram (or --novram) --reserve-vram 1",
                   "parts move to host memory while they are not at work; slower"),
            Remedy("Use smaller weights", "fp8 weights (weight_dtype fp8_e4m3fn) or a GGUF quantisation of the model"),
        ),
        "webui": (
            Remedy("Decode in tiles", "Tiled VAE extension, or --no-half-vae off"),
            Remedy("Keep less of the model on the card", "--medvram (or --lowvram)", "slower, and fits"),
            Remedy("Use 16-bit weights and an attention that keeps no scores", "--xformers (or --opt-sdp-attention); no --no-half"),
        ),
        "diffusers": (
            Remedy("Decode in tiles and slices", "pipe.vae.enable_tiling(); pipe.vae.enable_slicing()",
                   "the VAE works on a part of the picture at a time"),
            Remedy("Keep only the part that is at work on the card",
                   "pipe.enable_model_cpu_offload() (enable_sequential_cpu_offload() where that is not enough); no pipe.to('cuda')",
                   "the others wait in host memory; slower"),
            Remedy("Use smaller weights", "torch_dtype=torch.bfloat16; quantization_config (bitsandbytes 4 bits, or GGUF)"),
        ),
    }[which]  # fmt: skip
    if fact.operation == "VAE":
        return (tiles, _SMALLER, offload, smaller)
    return (offload, smaller, _SMALLER, tiles)
