"""Arguments with which a soak can't run are refused before anything starts."""

import pytest

from worker.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "0"], "give positive numbers for --hours and --rate"),
        (["--hours", "-1"], "give positive numbers for --hours and --rate"),
        (["--pause", "-1"], "0 or more for --pause"),
        (["--faults", "earthquake"], "no fault's name holds 'earthquake'; there are: a worker is killed"),
    ],
)
def test_a_soak_that_can_not_run_says_why(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["soak", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("millrace: ")
    assert message in error
