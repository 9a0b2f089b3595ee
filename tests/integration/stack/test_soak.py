"""A short soak: real processes are killed under load, and every copy equals its source at the end."""

import pytest

from compose.soak import run_soak


@pytest.mark.slow
@pytest.mark.parametrize("faults", ["a worker is killed", "Kafka is killed", "PostgreSQL is killed", "log is rotated"])
def test_nothing_is_lost_grows_or_leaks(faults: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run_soak(1 / 60, rate=5, pause_s=10, seed=3, faults=faults)
    output = capsys.readouterr().out
    assert code == 0, output
    assert f"times: {faults}" in output or faults in output
    assert "every copy equals the source" in output
