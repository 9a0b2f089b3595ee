"""A short soak: real processes are killed under load, and every copy equals its source at the end."""

import pytest

from compose.soak import run_soak


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    ["it comes back when the other one has its work", "Kafka is killed", "PostgreSQL is killed", "log is rotated"],
)
def test_nothing_is_lost_grows_or_leaks(faults: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run_soak(1 / 60, rate=5, pause_s=10, seed=3, faults=faults)
    output = capsys.readouterr().err
    assert code == 0, output
    (happened,) = [line for line in output.splitlines() if " times: " in line]
    assert faults in happened
    assert "every copy equals the source" in output
