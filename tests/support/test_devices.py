import subprocess
import sys

import pytest
import torch

from limpet.errors import ConfigError
from limpet.support.devices import device_named


def test_a_device_that_is_there() -> None:
    assert device_named("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["toaster", "cuda:77", "meta", ""])
def test_a_device_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"The device '{name}' cannot be used: .+\nExpected: cpu, or an accelerator"):
        device_named(name)


def test_the_name_of_a_device_is_looked_up_without_loading_torch_before() -> None:
    code = "import sys, limpet.support.devices, limpet.evaluation; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
