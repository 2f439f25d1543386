"""A person's words are told from output; unsure is output."""

from __future__ import annotations

import pytest

from loadpath.intake.clean import clean

ISSUE = """\
### Your current environment

<details>
<summary>The output of `python collect_env.py`</summary>

```text
PyTorch version: 2.7.0+cu126
```

</details>

### 🐛 Describe the bug

Hi, I tried to serve a model on my 2 x RTX 4090 machine and it fails with an out of memory error.
When I run the command below it stops after loading the
weights. Lowering the memory utilization does not change anything.

vllm serve org/model-32b --max-model-len 32768

Here is the log:

```
I wonder if this is output, and it is: everything between fences is
RuntimeError: CUDA error: no kernel image is available for execution on the device
```

It prints `RuntimeError: CUDA error: an illegal memory access was encountered` too, in my case.

Thanks!
"""


def test_an_issues_story_is_prose_and_what_it_shows_is_not() -> None:
    spoken = {line.text for line in clean(ISSUE.encode()) if line.prose}
    output = {line.text for line in clean(ISSUE.encode()) if line.text and not line.prose}
    assert output == {
        "PyTorch version: 2.7.0+cu126",
        "vllm serve org/model-32b --max-model-len 32768",
        "I wonder if this is output, and it is: everything between fences is",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "It prints `RuntimeError: CUDA error: an illegal memory access was encountered` too, in my case.",
    }
    assert "weights. Lowering the memory utilization does not change anything." in spoken


@pytest.mark.parametrize(
    "text",
    [
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
        "If this is a GPU node, did you configure the NVIDIA Container Toolkit?",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest driver is installed.",
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error",
        "The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache (23648).",
        "# GPU blocks: 1478, # CPU blocks: 2048",
        "Killed",
        "$ nvidia-smi",
        "root@gpu1:/# nvidia-smi",
        "docker run --gpus all vllm/vllm-openai:latest --model org/model",
        "Environment loaded.",
        "Failed to initialize NVML: Driver/library version mismatch",
        "Please check the instructions at https://pytorch.org/get-started/locally/",
        "We've detected an older driver with an RTX 4000 series GPU.",
    ],
)
def test_what_programs_print_is_no_prose(text: str) -> None:
    assert not any(line.prose for line in clean(text.encode()))


@pytest.mark.parametrize(
    "text",
    [
        "How can I fix that?",
        "Has anyone seen this before?",
        "I get this error when I start the server with two GPUs.",
        "Any help would be appreciated, thanks in advance.",
        "### Steps to reproduce",
        "- [x] Make sure you already searched for relevant issues.",
    ],
)
def test_what_people_say_is_prose(text: str) -> None:
    assert all(line.prose for line in clean(text.encode()))
