"""What docs/howto/clusters.md and examples/slurm.sh say is so, with two nodes on this machine."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]

from loadeval.data.folder import processes_in
from tests.launch.conftest import ROOT, environment

PAGE = (ROOT / "docs" / "howto" / "clusters.md").read_text(encoding="utf-8")
SLURM = ROOT / "examples" / "slurm.sh"
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)
ON_A_NODE = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0]
POD = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0])
BOTH = ["rank0.jsonl", "rank1.jsonl"]
TRAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for (batch,) in DataLoader(TensorDataset(torch.randn(240, 4)), 4):
        model(batch).sum().backward()
        optimizer.step()
"""
STUBS = {
    "srun": """#!/bin/bash
[[ $1 == --ntasks-per-node=* ]] && shift
SLURM_PROCID=0 SLURM_NODEID=0 "$@" & first=$!
SLURM_PROCID=1 SLURM_NODEID=1 "$@" & second=$!
wait $first; code=$?
wait $second || exit $?
exit $code
""",
    "scontrol": "#!/bin/bash\necho 127.0.0.1\necho another-node\n",
    "aws": '#!/bin/bash\nmkdir -p "${5#s3://}"\ncp "${4#s3://}"/* "${5#s3://}"\n',
}
"""As little of each as is used. The copy goes into a folder here."""


class Cluster(NamedTuple):
    """The working folder of a job, with train.py, and its environment."""

    folder: Path
    variables: dict[str, str]

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """A line of the shell; if it hangs, all that it has started is ended."""
        return subprocess.run(
            ["timeout", "--kill-after=5", "90", "/bin/bash", "-c", command],  # noqa: S607 - of any system
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    def here(self, text: str) -> str:
        """The text with folders and a port of this test in place of the page's."""
        moved = text.replace("/tmp/", f"{self.folder}/").replace("/logs/", f"{self.folder}/logs/")  # noqa: S108 - the page's
        return moved.replace(":29500", f":{self.variables['PORT']}")


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path) -> Cluster:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, text in STUBS.items():
        (binaries / name).write_text(text)
        (binaries / name).chmod(0o755)
    (tmp_path / "train.py").write_text(TRAIN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = environment()
    path = [str(binaries), str(Path(sys.executable).parent), own["PATH"]]
    slurm = {
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_NNODES": "2",
        "SLURM_GPUS_ON_NODE": "1",
    }
    place = {"PATH": os.pathsep.join(path), "HEAD": "127.0.0.1", "PORT": str(port)}
    return Cluster(tmp_path, {**own, **slurm, **place})


def command(beginning: str) -> str:
    """The command of the page that begins so."""
    matching: list[str] = [command for command in COMMANDS if command.startswith(beginning)]
    (only,) = matching
    return only


def logs_in(folder: Path) -> list[str]:
    """The logs of the training loaders."""
    logs = [process.main.log for process in processes_in(folder) if process.main is not None]
    assert set(logs) <= {path.name for path in folder.iterdir()}
    return logs


def with_torchrun(script: str) -> str:
    """The script with its second way to launch."""
    start = script.index("# head=")
    end = script.index("\n\n", start)
    lines = script[start:end].splitlines()
    return script[:start] + "\n".join(line.removeprefix("# ") for line in lines) + script[end:]


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_the_job_script_measures_and_reports(launcher: str, cluster: Cluster) -> None:
    script = SLURM.read_text(encoding="utf-8")
    script = with_torchrun(script) if launcher == "torchrun" else script
    job = cluster.folder / "job.sh"
    job.write_text(cluster.here(script))
    assert cluster.run("bash -n job.sh").returncode == 0
    done = cluster.run("bash job.sh train.py")
    assert done.returncode == 0, done.stderr
    logs = cluster.folder / "loadeval-runs" / "17"
    assert logs_in(logs) == BOTH
    assert (logs / "report.html").exists()


def test_the_job_script_ends_as_the_training(cluster: Cluster) -> None:
    (cluster.folder / "train.py").write_text(f"{TRAIN}raise SystemExit(3)\n")
    done = cluster.run(f"bash {SLURM} train.py")
    assert done.returncode == 3
    assert "Page written to" in done.stdout


def test_all_tasks_of_srun_are_measured(cluster: Cluster) -> None:
    done = cluster.run(command("loadeval run --mode alternate --output logs -- srun"))
    assert done.returncode == 0, done.stderr
    assert logs_in(cluster.folder / "logs") == BOTH
    assert "on all 2 ranks" in done.stderr


def test_nodes_that_share_nothing(cluster: Cluster) -> None:
    """Their logs meet in a bucket, where they are one job's."""
    (cluster.folder / "node.sh").write_text(cluster.here(ON_A_NODE))
    done = cluster.run(command("srun"))
    assert done.returncode == 0, done.stderr
    assert logs_in(cluster.folder / "bucket" / "job") == BOTH
    for beginning in ("aws s3 cp --recursive s3:", "loadeval compare job"):
        done = cluster.run(command(beginning))
        assert done.returncode == 0, done.stderr
    assert "on all 2 ranks" in done.stdout


def test_pods_are_measured_and_told_as_one_job(cluster: Cluster) -> None:
    (name,) = (variable["name"] for variable in POD["env"])
    words = [re.sub(r"\$\((\w+)\)", r"$\1", word) for word in POD["command"]]
    assert f"/logs/${name}" in words
    line = cluster.here(" ".join(words))
    done = cluster.run(f"(POD_NAME=a; {line}) & (POD_NAME=b; {line}) && wait $!")
    assert done.returncode == 0, done.stderr
    for beginning in ("mkdir", "cp", "loadeval report job"):
        done = cluster.run(cluster.here(command(beginning)))
        assert done.returncode == 0, done.stderr
    assert logs_in(cluster.folder / "job") == BOTH
    assert (cluster.folder / "job" / "report.html").exists()
