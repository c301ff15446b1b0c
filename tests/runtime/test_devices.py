"""Devices by kind, and the simulator behind the same interface."""

import pytest

from treadle.errors import TreadleError
from treadle.runtime import device
from treadle.runtime.simulated import SimDevice


def test_survey_and_choice() -> None:
    found = {d.kind: d for d in device.survey()}
    assert list(found) == ["cuda", "hip", "sim"]
    assert found["sim"].available
    for kind in ("cuda", "hip"):
        assert bool(found[kind].target) == found[kind].available
        assert found[kind].description
    assert device.default_device("sim").kind == "sim"
    if not (found["cuda"].available or found["hip"].available):
        assert device.default_device().kind == "sim"
    with pytest.raises(TreadleError) as caught:
        device.default_device("sm_10")
    assert caught.value.code == "TR602"
    with pytest.raises(TreadleError) as caught:
        device.open_device("tpu")
    assert caught.value.code == "TR601"


def test_the_simulator_refuses_programs_for_gpus() -> None:
    from runtime.programs import vector_add_manifest

    with pytest.raises(TreadleError) as caught:
        SimDevice().load(vector_add_manifest("sm_90a"), {"k0.bin": b""})
    assert caught.value.code == "TR602"
