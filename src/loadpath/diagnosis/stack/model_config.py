"""Do the checkpoint, the command line and the engine's abilities fit together?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.errors import PythonException, Symptom
from loadpath.core.report import Finding
from loadpath.core.vocabulary import Boundary
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.stack.stack import groups, unclaimed
from loadpath.engines import registry as engines
from loadpath.knowledge.tables import findings

MOST_RANKS = 16
# Parts of a class name that say what kind of checkpoint it is.
_GENERATES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "ForSeq2SeqLM", "ForImageTextToText")
_CLASSIFIES = ("ForSequenceClassification", "ForTokenClassification", "RewardModel", "ForRewardModel")
_PLAIN = (
    "quantisation-mismatch",
    "quantisation-config-missing",
    "dtype-not-for-quantisation",
    "remote-code-needed",
    "combination-not-supported",
    "device-map-in-training",
    "quantised-model-on-cpu-parts",
    "batched-tokens-below-context",
    "context-over-model",
    "quantisation-unknown",
    "config-missing",
    "model-not-found",
    "hub-access-denied",
    "hub-offline",
    "weights-missing",
    "weights-damaged",
    "weights-do-not-fit-model",
    "tokenizer-not-loadable",
    "rope-scaling-not-understood",
    "config-invalid",
    "chat-template-missing",
    "chat-roles-rejected",
    "lora-does-not-fit",
    "runner-does-not-fit-model",
    "attention-config-unsupported",
    "setting-rejected",
)
_DEFAULTS = {
    "quantisation-unknown": {"q": "given"},
    "config-missing": {"what": "The given path"},
    "model-not-found": {"what": "nothing of that name"},
    "hub-access-denied": {"code": "401 or 403"},
    "weights-missing": {"what": "the model's folder"},
    "lora-does-not-fit": {"what": "The adapter's rank or modules are not allowed by the engine's settings"},
}


def heads(case: Case) -> Iterator[Finding]:
    """Heads that do not divide: which sizes do, and what else uses all the GPUs."""
    symptoms = unclaimed(case, "heads-not-divisible")
    if not symptoms:
        return
    values = groups(symptoms)
    title = None
    count, asked = int(values.get("h", 0)), int(values.get("t", 0))
    if count and asked:
        sizes = divisors(count)
        best = max((s for s in sizes if s < asked), default=1)
        values["sizes"] = _listed(sizes)
        values["tp_flag"] = engines.flag(case.engine, "tensor-parallel", best) or f"--tensor-parallel-size {best}"
        pipeline = engines.flag(case.engine, "pipeline-parallel", asked) or f"--pipeline-parallel-size {asked}"
        values["pp_flag"] = (
            f"{engines.flag(case.engine, 'tensor-parallel', 1) or '--tensor-parallel-size 1'} {pipeline}"
        )
    else:
        title = "The model's attention heads cannot be divided evenly by the tensor-parallel size"
        values["sizes"] = "one that divides num_attention_heads, and for this check num_key_value_heads, in config.json"
        values["tp_flag"] = (
            engines.flag(case.engine, "tensor-parallel", 2) or "--tensor-parallel-size 2"
        ) + "  (or 4, 8)"
    yield finding("heads-not-divisible", symptoms, case=case, values=values, title=title)


def sizes(case: Case) -> Iterator[Finding]:
    """Another dimension that does not divide."""
    symptoms = unclaimed(case, "size-not-divisible")
    if not symptoms:
        return
    values = groups(symptoms)
    values["sizes"] = _listed(divisors(int(values["a"])))
    yield finding("size-not-divisible", symptoms, case=case, values=values)


def divisors(number: int) -> list[int]:
    """The group sizes up to 16 that divide `number`, powers of two first in mind."""
    return [n for n in range(1, MOST_RANKS + 1) if number % n == 0 and (n & (n - 1) == 0 or n in (3, 5, 6, 7, 12))]


def _listed(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes))


def shards(case: Case) -> Iterator[Finding]:
    """A quantised matrix cut inside a group or tile: the arithmetic for this and for smaller sizes."""
    symptoms = unclaimed(case, "quantised-shard-not-aligned")
    if not symptoms:
        return
    values = groups(symptoms)
    if "n" not in values:
        values |= {"n": "the share", "g": "the group size", "tp_advice": "--tensor-parallel-size <half of it>"}
    if values["n"].isdigit() and values["g"].isdigit():
        values |= _alignment(int(values["n"]), int(values["g"]), _tensor_parallel(case))
    kind = values.get("kind", "")
    if kind in ("k", "n") or kind.startswith("min_thread"):
        values["kind"] = f"Marlin's min_thread_{kind[-1]}"
        values["kernel_flag"] = "--quantization gptq"
    yield finding("quantised-shard-not-aligned", symptoms, case=case, values=values)


def _alignment(share: int, group: int, parallel: int | None) -> dict[str, str]:
    told = f"{share} = {share / group:.2f} × {group}, which is not a whole number"
    if parallel is None:
        factor = next((n for n in (2, 4, 8) if share * n % group == 0), 0)
        larger = share * (factor or 2)
        words = {2: "half", 4: "a quarter", 8: "an eighth"}
        return {
            "arithmetic": f"{told}: the share of one rank at this tensor-parallel size.",
            "elsewhere": f"At {words[factor or 2]} of that size the share would be {larger} ({larger / group:g} × {group}): "
            f"that {'fits' if factor else 'does not fit either'}.",
            "tp_advice": f"--tensor-parallel-size <{words[factor]} of the present size>" if factor else "",
        }
    whole = share * parallel
    fitting = [n for n in divisors(whole) if n < parallel and (whole // n) % group == 0]
    advice = f"--tensor-parallel-size {max(fitting)}" if fitting else ""
    return {
        "arithmetic": f"{whole} over {parallel} ranks is {share}; {told}.",
        "elsewhere": f"Sizes whose share is a multiple of {group}: {_listed(fitting) or 'none below this one'}.",
        "tp_advice": advice,
    }


def _tensor_parallel(case: Case) -> int | None:
    value = case.setting("tensor-parallel-size", "tp-size", "tp", "num-shard")
    return int(value) if value and value.isdigit() else None


def architecture(case: Case) -> Iterator[Finding]:
    """A class that the engine does not have: too new for it, of another kind, or only its import failed."""
    symptoms: list[Symptom | PythonException] = [*unclaimed(case, "model-class-unknown")]
    values = groups(unclaimed(case, "model-class-unknown"))
    if not symptoms and (unknown := _unknown_type(case)):
        symptoms, values = [unknown], {"type": unknown.message.strip("'\"")}
    if not symptoms or case.symptoms("model-inspection-failed"):
        return
    boundary: Boundary = "model-config"
    name = values.get("arch") or values.get("gguf") or values.get("type") or "of this file"
    values["arch"] = f"`{name}`" if name != "of this file" else name
    values["as_such"] = ""
    if "gguf" in values or "who" in values:
        boundary = "framework-engine"
        values |= _newer_build(case)
    elif "until" in values:
        values |= _removed(values["until"])
    elif "loader" in values:
        values |= _gguf_outside_llama(values["type"])
    elif "type" in values:
        values |= _newer_transformers(values["type"], case.engine)
    elif name.endswith(_CLASSIFIES):
        values |= _pooling(name, "a reward or classification model")
    elif not name.endswith(_GENERATES) and name.endswith("Model"):
        values |= _pooling(name, "the bare backbone without a language-model head (as Sentence-Transformers saves "
                           "embedding models), not a causal language model")  # fmt: skip
    else:
        values |= _newer_engine(case)
    yield finding("model-class-unknown", symptoms, case=case, values=values, boundary=boundary,
                  title=f"This build does not know the model's architecture {values['arch']}",
                  cause=_words(values))  # fmt: skip


_FAMILIES = re.compile(
    r"'(?:qwen|llama|gemma|mistral|mixtral|phi|deepseek|glm|granite|olmo|intern|minicpm|falcon|gpt_oss|kimi|ernie|exaone"
    r"|nemotron|bailing|hunyuan|seed_oss|step|mimo|dots|cohere|smollm|minimax|jamba|aya|arctic)[a-z0-9_]*'"
)


def _unknown_type(case: Case) -> PythonException | None:
    """transformers looks a model type up in its table: an old release fails with nothing but KeyError and the type."""
    for error in case.all(PythonException):
        word = error.exception == "KeyError" and re.fullmatch(r"'[a-z][a-z0-9_]+'", error.message)
        looked_up = any("configuration_auto" in file for file, _, _ in error.frames)
        if word and (looked_up or _FAMILIES.fullmatch(error.message)):
            return error
    return None


def _words(values: dict[str, str]) -> str:
    return " ".join(part for part in (values.get("said", ""), values.get("kind_words", "")) if part)


def _newer_build(case: Case) -> dict[str, str]:
    who = "Ollama" if case.engine == "ollama" else "this llama.cpp build (or fork, or binding around it)"
    return {
        "said": f"The file was read and names an architecture that {who} does not know.",
        "kind_words": "It is older than the architecture, or a fork that is behind upstream; the file itself is in order.",
        "first": "Use a newer build: upstream llama.cpp (or a release of Ollama or the binding that contains it)",
        "first_command": "git pull && cmake -B build -DGGML_CUDA=ON && cmake --build build -j",
        "second": "If upstream does not know it either: use the fork or branch that the model's page names",
        "second_command": "",
    }


def _removed(until: str) -> dict[str, str]:
    return {
        "said": f"vLLM had this model class until {until} and removed it.",
        "first": f"Install the last release that has it ({until})",
        "first_command": f"pip install 'vllm<={until}'",
        "second": "Or use the Transformers implementation in the newer release",
        "second_command": "--model-impl transformers",
    }


def _gguf_outside_llama(kind: str) -> dict[str, str]:
    return {
        "said": f"transformers reads GGUF files of a few architectures only, and `{kind}` is none of them in this version.",
        "kind_words": "llama.cpp may well serve the same file; it is in order.",
        "first": "Serve the checkpoint in its original format (safetensors), quantised as AWQ, GPTQ or FP8 where memory is short",
        "first_command": "",
        "second": "Or serve the GGUF file with llama.cpp",
        "second_command": "llama-server -m <file>.gguf",
        "third": "Or upgrade transformers and the engine: architectures are added with time",
        "third_command": "pip install -U transformers gguf",
    }


def _newer_transformers(kind: str, engine: str | None) -> dict[str, str]:
    upgrade = f"pip install -U {engine}" if engine in ("vllm", "sglang", "lmdeploy") else "pip install -U vllm"
    if engine == "tgi":
        upgrade = "docker pull ghcr.io/huggingface/text-generation-inference:latest"
    return {
        "said": f"The installed transformers has no model type `{kind}`.",
        "kind_words": "Mostly it is older than the model; otherwise the type in config.json is misspelt or its code is remote.",
        "first": "Upgrade the engine to a release that serves this model; it brings a transformers that knows it",
        "first_command": upgrade,
        "second": "Or upgrade transformers alone, within the engine's pins",
        "second_command": "pip install -U transformers",
        "third": "If the repository brings its own code: allow it",
        "third_command": "--trust-remote-code",
    }


def _pooling(name: str, kind: str) -> dict[str, str]:
    causal = name.removesuffix("Model") + "ForCausalLM"
    override = "" if name.endswith(_CLASSIFIES) else f'--hf-overrides \'{{"architectures": ["{causal}"]}}\''
    return {
        "said": f"config.json names {name}: {kind}.",
        "kind_words": "This version serves no such class for generation.",
        "first": "For an embedding, reward or classification model: serve it as one, on a version that supports this class",
        "first_command": "--runner pooling  (before vLLM 0.10: --task embed | reward | classify)",
        "second": "If it should generate: take the checkpoint that was saved with its language-model head (…ForCausalLM), or "
        "correct `architectures` in config.json where the weights do contain lm_head",
        "second_command": override,
        "third": "Or upgrade the engine: newer versions convert backbones to embedding models themselves",
        "third_command": "pip install -U vllm",
    }  # fmt: skip


def _newer_engine(case: Case) -> dict[str, str]:
    engine = case.engine if case.engine in ("vllm", "sglang", "lmdeploy", "tensorrt-llm", "tgi") else "vllm"
    return {
        "said": "The class is not in this version's list: the model is newer than the engine, or the engine has never had it.",
        "kind_words": "If other lines report a failed import or inspection, that is the real cause.",
        "first": "Upgrade the engine to a release whose list of supported models has this class",
        "first_command": f"pip install -U {engine}",
        "second": "Or run it through the Transformers implementation (slower)",
        "second_command": "--model-impl transformers --trust-remote-code",
    }


def plain(case: Case) -> Iterator[Finding]:
    """Findings whose words need no arithmetic, only the name that the message gives (or a word in its stead)."""
    for row_id in _PLAIN:
        if symptoms := unclaimed(case, row_id):
            values = _DEFAULTS.get(row_id, {}) | groups(symptoms)
            values["what"] = values.get("what", findings()[row_id].title).rstrip(".")
            if row_id == "weights-do-not-fit-model" and (hint := _quantised_tensor(values["what"])):
                values["hint"] = hint
            elif row_id == "weights-do-not-fit-model" and "lm_head.weight" in values["what"]:
                values["hint"] = (
                    "A checkpoint without lm_head ties it to the embedding: config.json then needs tie_word_embeddings."
                )
            yield finding(row_id, symptoms, case=case, values=values)


def _quantised_tensor(what: str) -> str:
    """A tensor name that only quantised checkpoints have says which side does not know of the quantisation."""
    suffix = re.search(
        r"\.(qweight|qzeros|scales|g_idx|absmax|SCB|quant_state\S*|weight_scale\w*|w13_\w+|w2_\w+)\b", what
    )
    if suffix is None:
        return ""
    return (
        f"`{suffix[1]}` belongs to a quantised layer: the checkpoint is quantised there and this engine version built "
        "that layer without (or does not support the format for this kind of layer)."
    )


RULES = (
    Rule(heads, (Symptom,), ("heads-not-divisible",)),
    Rule(sizes, (Symptom,), ("size-not-divisible",)),
    Rule(shards, (Symptom,), ("quantised-shard-not-aligned",)),
    Rule(architecture, (), ("model-class-unknown",), (Symptom, PythonException)),
    Rule(plain, (Symptom,), _PLAIN),
)
