"""Each quantiser's own words → `Quantisation`. Keys as the tools write them (transformers' quantisation classes,
compressed-tensors, ModelOpt, AutoRound, Quark, torchao)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from loadpath.checkpoints.quantisation.modules import Names, chosen, covered, partly, present
from loadpath.core.shape import ModelShape, Quantisation, Role

Config = Mapping[str, Any]
NVFP4_GROUP, MXFP4_GROUP, NF4_GROUP = 16, 32, 64
"""Elements that share a scale, fixed by the formats."""
_IGNORED = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "exclude", "llm_int8_skip_modules")


def quantisation(shape: ModelShape, config: Config | None, modelopt: Config | None = None) -> Quantisation | None:
    """The scheme of `shape`'s checkpoint by its `quantization_config`, or by hf_quant_config.json; None: unquantised."""
    section: Config | None = config or (modelopt or {}).get("quantization")
    if not section:
        return None
    method = str(section.get("quant_method") or ("modelopt" if "quant_algo" in section or modelopt else "")).lower()
    if not method and "config_groups" in section:
        method = "compressed-tensors"
    match method.replace("_", "-"):
        case "fp8" | "fbgemm-fp8":
            return _fp8(shape, section, method)
        case "compressed-tensors":
            return _groups(shape, section, "compressed-tensors")
        case "gptq" | "gptqmodel":
            return _gptq(shape, section, "gptq")
        case "awq":
            return _awq(shape, section)
        case "auto-round" | "intel/auto-round" | "autoround":
            return _auto_round(shape, section)
        case "modelopt" | "modelopt-fp4" | "modelopt-mixed":
            return _modelopt(shape, section, (modelopt or {}).get("quantization") or {})
        case "mxfp4":
            return _mxfp4(shape, section)
        case "bitsandbytes":
            return _bitsandbytes(shape, section)
        case "torchao":
            return _torchao(shape, section)
        case "quark":
            return _quark(shape, section)
        case _:
            return _other(shape, section, method)


def note_of(shape: ModelShape, config: Config | None, modelopt: Config | None = None) -> str:
    """What the scheme leaves unsaid: parts that are stored partly in it; "" where nothing."""
    section: Config = config or (modelopt or {}).get("quantization") or {}
    roles = partly(shape, Names(ignored(section)))
    if not roles:
        return ""
    return f"some modules of {', '.join(sorted(roles))} are left unquantised: exact only with the tensors' headers"


def ignored(section: Config) -> list[str]:
    """All modules that the section leaves in the model's dtype."""
    return [str(name) for key in _IGNORED for name in section.get(key) or ()]


def _scheme(shape: ModelShape, section: Config, method: str, bits: int, **more: Any) -> Quantisation:
    """A scheme over everything but the ignored modules."""
    modules, kept = covered(shape, Names([*ignored(section), *more.pop("also_ignored", ())]))
    return Quantisation(method=method, bits=bits, modules=modules, kept_layers=kept, **more)


def _with_head(shape: ModelShape, modules: frozenset[Role], names: Names) -> frozenset[Role]:
    """`lm_head` is a linear layer like others unless it is ignored, or one with the embedding."""
    return modules if shape.tied or names.hold("lm_head") else modules | frozenset[Role]({"lm_head"})


def _fp8(shape: ModelShape, section: Config, method: str) -> Quantisation:
    """`moe_quant_algo`: experts in a format of ModelOpt's, the rest stays in FP8 (DeepSeek-V4-NVFP4)."""
    if (algorithm := str(section.get("moe_quant_algo") or "").upper()) in _MODELOPT:
        bits, kind, fmt, group, active = _MODELOPT[algorithm]
        return Quantisation(
            method="modelopt", bits=bits, type=kind, format=fmt, group_size=group, strategy="group",
            activation_bits=active, modules=frozenset[Role]({"experts"}),
            fp8_modules=present(shape) - frozenset[Role]({"experts"}),
        )  # fmt: skip
    block = section.get("weight_block_size")
    strategy = "block" if block else "channel" if method == "fbgemm_fp8" else "tensor"
    return _scheme(
        shape, section, method, 8, type="float", activation_bits=8, strategy=strategy,
        block=tuple(block) if block else None,
    )  # fmt: skip


def _gptq(shape: ModelShape, section: Config, method: str) -> Quantisation:
    size = int(section.get("group_size") or -1)
    dynamic = section.get("dynamic") or {}
    found = _scheme(
        shape, section, method, int(section.get("bits") or 4), type="int",
        group_size=max(0, size), strategy="group" if size > 0 else "channel",
        desc_act=bool(section.get("desc_act")), zero_point=section.get("sym") is False,
        also_ignored=[f"re:{name[2:]}" for name in dynamic if name.startswith("-:")],
    )  # fmt: skip
    if section.get("lm_head"):
        return msgspec.structs.replace(found, modules=found.modules | frozenset[Role]({"lm_head"}))
    return found


def _awq(shape: ModelShape, section: Config) -> Quantisation:
    return _scheme(
        shape, section, "awq", int(section.get("bits") or section.get("w_bit") or 4), type="int", strategy="group",
        group_size=int(section.get("group_size") or section.get("q_group_size") or 128),
        zero_point=bool(section.get("zero_point", True)),
    )  # fmt: skip


def _auto_round(shape: ModelShape, section: Config) -> Quantisation:
    extra = section.get("extra_config") or {}
    kept = [name for name, own in extra.items() if int((own or {}).get("bits") or 0) >= 16]
    kept = [f"re:{name}" if any(mark in name for mark in r"\*+(|") else name for name in kept]
    size = int(section.get("group_size") or 128)
    return _scheme(
        shape, section, "auto-round", int(section.get("bits") or 4),
        type="float" if "fp" in str(section.get("data_type") or "") else "int",
        group_size=max(0, size), strategy="group" if size > 0 else "channel",
        zero_point=section.get("sym") is False, also_ignored=kept,
    )  # fmt: skip


def _mxfp4(shape: ModelShape, section: Config) -> Quantisation:
    """gpt-oss: the experts alone, whatever else the list of exceptions says."""
    return Quantisation(
        method="mxfp4", bits=4, type="float", format="mxfp4", group_size=MXFP4_GROUP, strategy="group",
        modules=present(shape) & frozenset[Role]({"experts"}),
    )  # fmt: skip


def _bitsandbytes(shape: ModelShape, section: Config) -> Quantisation:
    if section.get("load_in_8bit") or section.get("_load_in_8bit"):
        return _scheme(shape, section, "bitsandbytes", 8, type="int", strategy="channel")
    return _scheme(
        shape, section, "bitsandbytes", 4, type="float", format=str(section.get("bnb_4bit_quant_type") or "fp4"),
        group_size=NF4_GROUP, strategy="group",
    )  # fmt: skip


def _torchao(shape: ModelShape, section: Config) -> Quantisation:
    kind = section.get("quant_type")
    inner: Any = kind.get("default", kind) if isinstance(kind, Mapping) else kind
    text = str(inner.get("_type") if isinstance(inner, Mapping) else inner).lower().replace("_", "")
    data = inner.get("_data") or {} if isinstance(inner, Mapping) else {}
    four = "int4" in text or "uint4" in text
    active = 8 if "dynamicactivation" in text or "int8dynamic" in text else 0
    return _scheme(
        shape, section, "torchao", 4 if four else 8, type="float" if "float8" in text and not four else "int",
        group_size=int(data.get("group_size") or 128) if four else 0, strategy="group" if four else "channel",
        activation_bits=active,
    )  # fmt: skip


_QUARK_TYPES: dict[str, tuple[int, Literal["int", "float"], str]] = {
    "fp8_e4m3": (8, "float", ""), "fp4": (4, "float", "mxfp4"), "int4": (4, "int", ""), "uint4": (4, "int", ""),
    "int8": (8, "int", ""),
}  # fmt: skip


def _quark(shape: ModelShape, section: Config) -> Quantisation:
    whole = section.get("global_quant_config") or {}
    weight = whole.get("weight") or {}
    weight = weight[0] if isinstance(weight, list) else weight
    bits, kind, fmt = _QUARK_TYPES.get(str(weight.get("dtype")), (8, "float", ""))
    scheme = str(weight.get("qscheme") or "").removeprefix("per_")
    inputs = whole.get("input_tensors") or {}
    inputs = inputs[0] if isinstance(inputs, list) else inputs
    found = _scheme(
        shape, section, "quark", bits, type=kind, format=fmt, group_size=int(weight.get("group_size") or 0),
        strategy=scheme, activation_bits=_QUARK_TYPES.get(str(inputs.get("dtype")), (0,))[0],
    )  # fmt: skip
    kv = section.get("kv_cache_quant_config") or {}
    return msgspec.structs.replace(found, kv_bits=8) if kv else found


# ModelOpt's algorithms: bits, type, format, group, activation bits.
_MODELOPT: dict[str, tuple[int, Literal["int", "float"], str, int, int]] = {
    "FP8": (8, "float", "", 0, 8), "FP8_PB_WO": (8, "float", "", 0, 8), "FP8_PER_CHANNEL_PER_TOKEN": (8, "float", "", 0, 8),
    "NVFP4": (4, "float", "nvfp4", NVFP4_GROUP, 4), "NVFP4_AWQ": (4, "float", "nvfp4", NVFP4_GROUP, 4),
    "W4A16_NVFP4": (4, "float", "nvfp4", NVFP4_GROUP, 0), "W4A8_NVFP4_FP8": (4, "float", "nvfp4", NVFP4_GROUP, 8),
    "MXFP8": (8, "float", "mxfp8", MXFP4_GROUP, 8), "W4A8_MXFP4_FP8": (4, "float", "mxfp4", MXFP4_GROUP, 8),
    "W4A16_AWQ": (4, "int", "", 128, 0), "W4A8_AWQ": (4, "int", "", 128, 8), "W8A8_SQ_PER_CHANNEL": (8, "int", "", 0, 8),
    "INT8": (8, "int", "", 0, 8),
}  # fmt: skip


def _modelopt(shape: ModelShape, section: Config, beside: Config) -> Quantisation | None:
    algorithm = str(section.get("quant_algo") or beside.get("quant_algo") or "").upper()
    cache = str(section.get("kv_cache_quant_algo") or beside.get("kv_cache_quant_algo") or "")
    kv_bits = 8 if "8" in cache or section.get("kv_cache_scheme") else 4 if "4" in cache else 0
    layers = section.get("quantized_layers") or beside.get("quantized_layers")
    if algorithm == "MIXED_PRECISION" and layers:
        found = _mixed(shape, layers)
    elif algorithm in _MODELOPT:
        found = _by_algorithm(shape, {**beside, **section}, algorithm)
    elif "config_groups" in section:
        found = _groups(shape, section, "modelopt")
    else:
        return None
    return msgspec.structs.replace(found, kv_bits=kv_bits) if found and kv_bits else found


def _by_algorithm(shape: ModelShape, section: Config, algorithm: str) -> Quantisation:
    bits, kind, fmt, group, active = _MODELOPT[algorithm]
    names = Names(ignored(section))
    strategy = (
        "group" if group else "block" if algorithm == "FP8_PB_WO" else "channel" if "CHANNEL" in algorithm else "tensor"
    )
    found = _scheme(
        shape, section, "modelopt", bits, type=kind, format=fmt, strategy=strategy, activation_bits=active,
        group_size=int(section.get("group_size") or group) if group else 0,
        block=(128, 128) if strategy == "block" else None,
    )  # fmt: skip
    return msgspec.structs.replace(found, modules=_with_head(shape, found.modules, names) if names else found.modules)


def _mixed(shape: ModelShape, layers: Config) -> Quantisation | None:
    """A scheme a layer: the 4-bit ones lead, those in FP8 are `fp8_modules`."""
    four = Names(name for name, own in layers.items() if "4" in str(own.get("quant_algo")).replace("_", ""))
    eight = Names(name for name, own in layers.items() if str(own.get("quant_algo", "")).upper().startswith("FP8"))
    in_four = {role for role, found in chosen(shape, four).items() if found}
    in_eight = {role for role, found in chosen(shape, eight).items() if found} - in_four
    if not in_four:
        return Quantisation(method="modelopt", bits=8, type="float", activation_bits=8, strategy="tensor",
                            modules=frozenset(in_eight))  # fmt: skip
    if not shape.tied and four.hold("lm_head"):
        in_four.add("lm_head")
    first = next(str(own.get("quant_algo")).upper() for own in layers.values() if "4" in str(own.get("quant_algo")))
    bits, kind, fmt, group, active = _MODELOPT.get(first, _MODELOPT["NVFP4"])
    return Quantisation(
        method="modelopt", bits=bits, type=kind, format=fmt, group_size=group, strategy="group", activation_bits=active,
        modules=frozenset(in_four), fp8_modules=frozenset(in_eight),
    )  # fmt: skip


def _groups(shape: ModelShape, section: Config, method: str) -> Quantisation | None:
    """compressed-tensors: groups of modules, each with its weights' and activations' schemes. The narrowest leads."""
    names = Names(ignored(section))
    modules, kept = covered(shape, names)
    modules = _with_head(shape, modules, names)
    groups = [group for group in (section.get("config_groups") or {}).values() if group and group.get("weights")]
    if not groups:
        return None
    groups.sort(key=lambda group: int(group["weights"].get("num_bits") or 8))
    lead = groups[0]
    eight = _targeted(shape, groups[1], modules) if len(groups) > 1 else frozenset[Role]()
    own = _targeted(shape, lead, modules) - eight if len(groups) > 1 else _targeted(shape, lead, modules)
    weights, inputs = lead["weights"], lead.get("input_activations") or {}
    fmt = _format(str(lead.get("format") or section.get("format") or ""), weights)
    size = {"nvfp4": NVFP4_GROUP, "mxfp4": MXFP4_GROUP}.get(fmt) or int(weights.get("group_size") or 0)
    block = weights.get("block_structure")
    cache = section.get("kv_cache_scheme") or {}
    return Quantisation(
        method=method,
        bits=int(weights.get("num_bits") or 8),
        type="float" if weights.get("type") == "float" else "int",
        format=fmt,
        group_size=max(0, size),
        block=_block(block),
        zero_point=weights.get("symmetric") is False,
        desc_act=weights.get("actorder") in ("group", True),
        strategy="group" if fmt in ("nvfp4", "mxfp4") else str(weights.get("strategy") or ""),
        activation_bits=int(inputs.get("num_bits") or 0),
        modules=own,
        fp8_modules=eight,
        kept_layers=kept,
        kv_bits=int(cache.get("num_bits") or 0),
    )


def _targeted(shape: ModelShape, group: Config, modules: frozenset[Role]) -> frozenset[Role]:
    """The roles that a group's targets name: `Linear` is all, regular expressions some."""
    targets = [str(target) for target in group.get("targets") or ["Linear"]]
    if any(target in ("Linear", "LinearBase") for target in targets):
        return modules
    names = Names(targets)
    roles = {role for role, layers in chosen(shape, names).items() if layers}
    if names.hold("lm_head"):
        roles.add("lm_head")
    return frozenset(roles) & modules


def _format(text: str, weights: Config) -> str:
    found = re.match(r"(nvfp4|mxfp4|mxfp8)", text)
    if found:
        return found[1]
    if weights.get("type") == "float" and weights.get("num_bits") == 4:
        return "mxfp4" if weights.get("group_size") == MXFP4_GROUP else "nvfp4"
    return ""


def _block(value: Any) -> tuple[int, int] | None:
    """`[128, 128]`, or `"128x128"` in old files."""
    if isinstance(value, str) and (found := re.match(r"(\d+)x(\d+)", value)):
        return int(found[1]), int(found[2])
    return (int(value[0]), int(value[1])) if isinstance(value, list) and len(value) == 2 else None


def _other(shape: ModelShape, section: Config, method: str) -> Quantisation:
    """A method without a reader of its own: bits and group by the usual keys."""
    keys = ("bits", "nbits", "w_bit", "weight_bits", "num_bits")
    bits = next((int(section[key]) for key in keys if isinstance(section.get(key), int)), 0)
    if not bits:
        bits = 4 if "4" in method else 2 if method in ("bitnet", "aqlm", "quip") else 8
    size = int(section.get("group_size") or 0)
    return _scheme(shape, section, method or "unknown", bits, type="int", group_size=max(0, size),
                   strategy="group" if size > 0 else "channel")  # fmt: skip
