"""Killed commands lose nothing, leave nothing unreadable and end as those never killed; a faulty command is found out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.hostile import kills

LOSES = """
import sys, time
from pathlib import Path
done = Path("done")
if sys.argv[1] == "breaks" and done.exists():
    done.write_text("broken"); time.sleep(9)
if sys.argv[1] == "forgets" and done.exists():
    done.unlink(); time.sleep(9)
done.touch()
with done.open("a") as stream:
    for number in range(4):
        stream.write(f"{number}\\n"); stream.flush(); time.sleep(0.05)
print("the end" if sys.argv[1] != "differs" or len(done.read_text().splitlines()) == 4 else "another end")
"""


def lines_of(folder: Path) -> Counter[str]:
    path = folder / "done"
    return Counter(str(int(line)) for line in path.read_text().splitlines()) if path.exists() else Counter()


def faulty(how: str) -> kills.Command:
    return kills.Command(
        make=lambda folder: None, arguments=("-c", LOSES, how), finished=lines_of, result=lambda folder, said: said
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", [name if name == "import" else pytest.param(name, marks=pytest.mark.nightly) for name in kills.COMMANDS]
)
def test_a_command_that_is_killed_again_and_again_ends_as_one_that_was_not(name: str) -> None:
    found = kills.kill(name, 4, 11)
    assert found.wrong == []
    assert (found.killed, found.ended >= 1) == (4, True)


@pytest.mark.full
@pytest.mark.parametrize(
    ("how", "said"), [("breaks", "unreadable: ValueError"), ("forgets", "lost: "), ("differs", "other words")]
)
def test_what_a_kill_does_to_a_faulty_command_is_found(how: str, said: str) -> None:
    assert any(said in each for each in kills.kill(how, 12, 1, faulty(how)).wrong)


@pytest.mark.nightly
def test_an_evaluation_that_is_killed_after_its_words_but_before_its_end_resumes(tmp_path: Path) -> None:
    command = kills.COMMANDS["evaluation"]
    command.make(tmp_path)
    (tmp_path / "conftest.py").write_text(
        "import os, signal\n\n\ndef pytest_terminal_summary():\n"
        "    if 'KILLED' in os.environ:\n        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    os.utime(tmp_path / "conftest.py", (1_000_000_000, 1_000_000_000))

    def session(**more: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, *command.arguments], cwd=tmp_path, env={**os.environ, **more}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    assert session(KILLED="1")[0] == -signal.SIGKILL
    finished = command.finished(tmp_path)
    code, said = session()
    assert code == 0
    assert said.count("resumed: 9 of 9 cells") == 2
    assert kills._logged(tmp_path) == Counter({run: count for run, count in finished.items() if run.startswith("test_shop")})
    assert not list((tmp_path / ".mat").glob("*/*.jsonl"))
