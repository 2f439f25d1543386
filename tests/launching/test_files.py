"""The files that `launch` writes: valid by their own schemas, and the same plan when they are read back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest
import yaml

from loadpath.forecast.commands import from_file
from loadpath.forecast.deploy import deployment
from loadpath.forecast.planned import planned
from loadpath.forecast.request import Request
from loadpath.launching.build import Options, launch
from loadpath.launching.spec import Launch
from loadpath.launching.training import training
from loadpath.launching.write import written

KINDS = {"docker": "sh", "podman": "sh", "compose": "yaml", "kubernetes": "yaml", "quadlet": "container",
         "systemd": "service", "command": "sh"}  # fmt: skip
CONTAINERS = ("docker", "podman", "compose", "kubernetes", "quadlet")
SETTINGS = {
    "vllm": {"max-model-len": "16384", "tensor-parallel-size": "2", "enforce-eager": "True"},
    "sglang": {"context-length": "16384", "tp-size": "2"},
    "tgi": {"max-total-tokens": "16384", "num-shard": "2"},
}
MODEL = "Qwen/Qwen3-14B"


def made(engine: str = "vllm", options: Options | None = None, model: str = MODEL, **settings: str) -> Launch:
    own = SETTINGS[engine] | settings
    plan = planned(deployment(Request(MODEL, ("L40S",), 2, engine, settings=own)))
    return launch(plan, model, own, options or Options())


@pytest.mark.parametrize("engine", SETTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_written_gives_the_same_plan(engine: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"start.{KINDS[kind]}"
    file.write_text(written(made(engine), kind))
    asked = from_file(str(file))
    again = planned(
        deployment(Request(asked.model, ("L40S",), asked.count, asked.engine, asked.version, asked.settings))
    )
    first = planned(deployment(Request(MODEL, ("L40S",), 2, engine, settings=SETTINGS[engine])))
    assert (asked.model, asked.engine) == (MODEL, engine)
    assert (again.kv_tokens, again.max_model_len, again.gpus) == (first.kv_tokens, first.max_model_len, 2)
    if kind in CONTAINERS:
        assert again.engine_version == first.engine_version


@pytest.mark.parametrize("options", [Options(), Options(devices=(0, 1)), Options(cdi=True, devices=(0, 1))])
def test_compose_is_valid_by_the_compose_specification(options: Options, tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    file = tmp_path / "compose.yaml"
    file.write_text(written(made(options=options), "compose"))
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("options", [Options(), Options(runtime_class="nvidia"), Options(gate=True)])
def test_kubernetes_objects_are_valid_by_its_own_schema(options: Options) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    for document in yaml.safe_load_all(written(made(options=options), "kubernetes")):
        validate.validate(document, validate.latest_version(), strict=True)


def test_a_unit_is_valid_by_systemd(tmp_path: Path) -> None:
    if which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    file = tmp_path / "engine.service"
    file.write_text(written(made(), "systemd"))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True)
    assert "Unknown" not in done.stderr, done.stderr
    assert "Failed to parse" not in done.stderr, done.stderr


@pytest.mark.parametrize("kind", ["docker", "command"])
def test_scripts_are_valid_shell(kind: str) -> None:
    done = subprocess.run(["sh", "-n"], input=written(made(), kind), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_named_devices_keep_the_quotes_that_docker_needs() -> None:
    text = written(made(options=Options(devices=(0, 1))), "docker")
    assert """--gpus '"device=0,1"'""" in text
    assert "--device nvidia.com/gpu=0" in written(made(options=Options(devices=(0, 1), cdi=True)), "docker")


@pytest.mark.parametrize(("options", "told"), [
    (Options(devices=(0,)), "--devices names 1 GPU.* for 2"), (Options(name="Bad Name!"), "DNS label"),
])  # fmt: skip
def test_what_contradicts_the_plan_or_no_engine_takes_is_refused(options: Options, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        made(options=options)


def test_a_bare_program_listens_on_this_machine_and_is_no_path_of_an_image() -> None:
    plan = planned(deployment(Request(MODEL, ("L40S",), engine="llama.cpp", settings={"ctx-size": "4096"})))
    text = written(launch(plan, MODEL, {"ctx-size": "4096"}, Options(bare=True)), "command")
    assert "--host 127.0.0.1" in text
    assert "/app/" not in text


def test_an_adapter_is_mounted_and_named(tmp_path: Path) -> None:
    own = SETTINGS["vllm"] | {"enable-lora": "True", "lora-modules": f"sql={tmp_path}"}
    plan = planned(deployment(Request(MODEL, ("L40S",), 2, "vllm", settings=own)))
    text = written(launch(plan, MODEL, own, Options(), adapters=(str(tmp_path),)), "docker")
    assert f"--volume {tmp_path}:/adapters/{tmp_path.name}:ro" in text
    assert f"--lora-modules sql=/adapters/{tmp_path.name}" in text


def test_a_server_comes_back_and_stays_on_this_machine() -> None:
    text = written(made(), "docker")
    assert "--restart unless-stopped" in text and "--rm \\" not in text
    assert "--publish 127.0.0.1:8000:8000" in text
    assert "--ipc=host" in text


def test_a_local_model_is_mounted_read_only_and_nothing_is_fetched(tmp_path: Path) -> None:
    text = written(made(model=str(tmp_path)), "docker")
    assert f"--volume {tmp_path}:/models/{tmp_path.name}:ro" in text
    assert "HF_HUB_OFFLINE=1" in text


def test_the_token_is_never_written() -> None:
    for kind in KINDS:
        assert "HF_TOKEN=" not in "\n".join(
            line for line in written(made(), kind).splitlines() if not line.lstrip().startswith("#")
        )


def test_the_start_is_given_more_time_than_it_is_predicted_to_take() -> None:
    pod = next(iter(yaml.safe_load_all(written(made(), "kubernetes"))))
    container = pod["spec"]["template"]["spec"]["containers"][0]
    given = container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"]
    probes = made().probes
    assert probes is not None and given >= 2 * probes.predicted_seconds
    assert pod["spec"]["progressDeadlineSeconds"] > given
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 2


def test_every_flag_of_the_engine_has_a_reason() -> None:
    assert all(argument.why for argument in made().arguments)


def test_training_shares_memory_and_locks_it() -> None:
    options = Options(image="nvcr.io/nvidia/pytorch:25.09-py3")
    text = written(
        training(("torchrun", "--nproc-per-node", "8", "train.py"), 8, options, ("./data:/data", "./out:/out:rw")),
        "docker",
    )
    for flag in (
        "--ipc=host",
        "--ulimit memlock=-1",
        "--ulimit stack=67108864",
        "--volume ./data:/data:ro",
        "--volume ./out:/out ",
    ):
        assert flag in text
    assert text.rstrip().endswith("--nproc-per-node 8 \\\n  train.py")


@pytest.mark.parametrize("volume", ["data", "./data:data", "./data:/data:x"])
def test_a_wrong_volume_says_what_was_expected(volume: str) -> None:
    with pytest.raises(ValueError, match="SOURCE:/TARGET"):
        training(("true",), 1, Options(image="x"), (volume,))
